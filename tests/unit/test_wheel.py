import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness import runfile
from tests.unit.test_runfile import small_run

TOP = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    # From a copy of the tracked files, so that nothing that lies about in the checkout can get in.
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "LICENSE", "README.md", "shapes.yaml"):
        (source / name).write_bytes((TOP / name).read_bytes())
    for folder in ("harness", "cake_kernels", "templates"):
        subprocess.run(["cp", "-r", str(TOP / folder), str(source / folder)], check=True)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)],
        check=True,
        capture_output=True,
    )
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def run_outside(site: Path, *words: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_templates_and_shapes_lie_inside_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    assert "harness/data/shapes.yaml" in names
    assert {f"harness/data/templates/{p.name}" for p in (TOP / "templates").iterdir()} <= names


def test_every_module_and_device_source_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = [p for folder in ("harness", "cake_kernels") for p in (TOP / folder).rglob("*") if p.is_file()]
    wanted = {str(p.relative_to(TOP)) for p in sources if p.suffix in (".py", ".cu", ".cuh", ".typed")}

    assert wanted <= names


def test_the_installed_package_lists_suites_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    assert "moe-training: 164 rows" in run_outside(installed, "-m", "harness", "list", "suites", folder=tmp_path)
    where = run_outside(installed, "-c", "import harness; print(harness.__file__)", folder=tmp_path)
    assert where.startswith(str(installed))


def test_the_installed_package_renders_a_report_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    runfile.save(small_run(), tmp_path / "r1.json")

    assert "| tiny |" in run_outside(installed, "-m", "harness", "report", "r1.json", folder=tmp_path)
