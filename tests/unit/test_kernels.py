import shutil
import subprocess
from pathlib import Path

import pytest

import cake_kernels
from harness.kernels import current, read_sources
from tests import tiny_kernels


def test_the_hash_is_what_sha256sum_says_of_its_own_lines(tmp_path: Path) -> None:
    if not shutil.which("sha256sum"):
        pytest.skip("sha256sum is not installed")
    tiny_kernels.write(tmp_path)
    by_hand = "find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum | sha256sum"

    said = subprocess.run(
        by_hand, shell=True, cwd=tmp_path / "cake_kernels", check=True, capture_output=True, text=True
    ).stdout

    assert tiny_kernels.kernels(tmp_path, "cake_kernels").sha256 == said.split()[0]


@pytest.mark.parametrize(
    "changes",
    [{"NOTES.md": "measured"}, {"NOTES.md": None}, {"NOTES.md": None, "NOTES.txt": ""}, {"launch.py": "GRID = 131\n"}],
)
def test_the_hash_changes_with_each_files_bytes_and_name(tmp_path: Path, changes: dict[str, str | None]) -> None:
    tiny_kernels.write(tmp_path / "a")
    tiny_kernels.write(tmp_path / "b", changes)

    one, other = (tiny_kernels.kernels(tmp_path / name, "cake_kernels").sha256 for name in "ab")

    assert one != other


def test_what_python_compiles_is_no_source(tmp_path: Path) -> None:
    tiny_kernels.write(tmp_path, {"__pycache__/registry.cpython-311.pyc": "", "cuda/__pycache__/x": ""})

    assert list(read_sources(tmp_path / "cake_kernels")) == sorted(tiny_kernels.FILES)


def test_the_current_kernels_are_the_installed_ones() -> None:
    kernels = current("abc")

    assert (kernels.package, kernels.revision) == ("cake_kernels", "abc")
    assert kernels.sources["registry.py"] == Path(cake_kernels.__path__[0], "registry.py").read_bytes()
    assert kernels.module("registry").__name__ == "cake_kernels.registry"
