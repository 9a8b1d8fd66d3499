import doctest
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


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'cake_kernels' has no attribute 'megamoe'"):
        _ = cake_kernels.megamoe


@pytest.mark.parametrize(
    ("capability", "arch"), [((8, 0), "sm_80"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((12, 0), "sm_120a")]
)
def test_arch_is_architecture_specific_from_9_0_on(capability, arch):
    assert arch_of(*capability) == arch


def test_the_examples_of_the_docs_print_what_they_show():
    page = Path(__file__).parents[3] / "docs" / "grouped_gemm.md"

    results = doctest.testfile(str(page), module_relative=False)

    assert (results.attempted, results.failed) == (2, 0)
