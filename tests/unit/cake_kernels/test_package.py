import doctest
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import cake_kernels
from cake_kernels.device import arch_of


def test_the_version_is_that_of_the_installed_distribution_or_unknown():
    try:
        installed = metadata.version("cake-kernels")
    except metadata.PackageNotFoundError:
        installed = "unknown"

    assert cake_kernels.__version__ == installed


def test_grouped_gemm_is_reached_from_the_package():
    assert sorted(cake_kernels.grouped_gemm.__all__) == [
        "Prepared", "dgrad", "forward", "ops", "prepare_dgrad", "prepare_forward", "prepare_wgrad", "reference",
        "wgrad",
    ]  # fmt: skip


def test_grouped_mm_is_reached_from_the_package_and_stays_a_function():
    import cake_kernels.facade
    import cake_kernels.moe

    assert callable(cake_kernels.grouped_mm)
    assert cake_kernels.grouped_mm is cake_kernels.facade.grouped_mm
    assert cake_kernels.moe.grouped_mm is cake_kernels.grouped_mm
    assert sorted(cake_kernels.__all__) == ["__version__", "grouped_gemm", "grouped_mm", "moe"]


def test_programs_are_listed_without_torch():
    code = "import sys; sys.modules['torch'] = None; import cake_kernels, cake_kernels.registry as r; r.programs()"

    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'cake_kernels' has no attribute 'megamoe'"):
        _ = cake_kernels.megamoe


@pytest.mark.parametrize(
    ("capability", "arch"), [((8, 0), "sm_80"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((12, 0), "sm_120a")]
)
def test_arch_is_architecture_specific_from_9_0_on(capability, arch):
    assert arch_of(*capability) == arch


@pytest.mark.parametrize(("page", "examples"), [("grouped_gemm.md", 2), ("grouped_mm.md", 24)])
def test_the_examples_of_the_docs_print_what_they_show(page, examples):
    results = doctest.testfile(str(Path(__file__).parents[3] / "docs" / page), module_relative=False)

    assert (results.attempted, results.failed) == (examples, 0)
