"""``rounds run --python``: two arms in two environments that really differ, each seeing its own and nothing else."""

import json
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from harness.cli import main
from harness.rounds import file

TOP = Path(__file__).parents[2]

ARM = """
import os, sys
from dataclasses import replace
from pathlib import Path
import arm_dep
from harness.arms.cublas_loop import ARM as LOOP

class NeedsDep:
    info = replace(LOOP.info, name="needs_dep", key="")

    def why_not(self, case, machine):
        return None

    def prepare(self, case, operands):
        with open(os.environ["SEEN"], "a") as seen:
            seen.write(f"{Path(sys.prefix).name} {arm_dep.VERSION}\\n")
        return LOOP.prepare(case, operands)

ARM = NeedsDep()
"""


def distribution(site: Path, name: str, version: str, *more: str, entry_points: str = "") -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("\n".join(("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *more)))
    (info / "entry_points.txt").write_text(entry_points)


def environment(folder: Path, dep: str) -> Path:
    """Make a virtual environment with ``dep`` of arm_dep, an arm that needs it, and all that this one has; no network.

    Returns its interpreter.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(folder), "platbase": str(folder)}))
    shared = sysconfig.get_path("purelib")
    (site / "shared.pth").write_text(f"import site; site.addsitedir({shared!r})\n{TOP}\n")
    (site / "arm_dep.py").write_text(f"VERSION = {dep!r}\n")
    (site / "needs_dep.py").write_text(ARM)
    distribution(site, "arm_dep", dep)
    arms = "[cake_bench.arms]\nneeds_dep = needs_dep:ARM\n"
    distribution(site, "needs_dep", "0.5", "Requires-Dist: arm-dep >=1 ; python_version > '3'", entry_points=arms)
    return folder / "bin" / "python"


def test_two_environments_see_their_own_versions_and_the_file_has_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = environment(tmp_path / "old", "1.0"), environment(tmp_path / "new", "2.0")
    for decoy in ("here", "on_the_path"):
        (tmp_path / decoy).mkdir()
        (tmp_path / decoy / "arm_dep.py").write_text(f"VERSION = {decoy!r}\n")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "on_the_path"))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    (tmp_path / "script.json").write_text(json.dumps({"needs_dep": [20_000]}))
    words = ["--shape", "E=3,M=9,N=16,K=16,dist=skew", "--op", "fwd", "--device", "cpu", "--mode", "pre-sleep"]
    words += ["--baseline", "needs_dep", "--new", "needs_dep", "--rounds", "2", "--iterations", "2"]
    words += ["--python", f"baseline={old}", "--python", f"new={new}", "--timer", f"scripted:{tmp_path}/script.json"]

    code = main(["rounds", "run", *words, "--out", str(tmp_path), "--run-id", "r1"])

    assert (code, capsys.readouterr().err.count(": measured\n")) == (0, 2)
    assert (tmp_path / "seen").read_text().split("\n") == ["old 1.0", "new 2.0", "new 2.0", "old 1.0", ""]
    run = file.load(tmp_path / "r1.json")
    reports = [report for played in run.rounds for report in played.reports]
    versions = {(r.timings[0].role, run.machines[r.machine].versions.get("arm_dep")) for r in reports}
    assert versions == {("baseline", "1.0"), ("new", "2.0")}
    assert {machine.versions["cake_kernels"] for machine in run.machines} == {f"sources {run.sources_sha256[:12]}"}
    assert {machine.versions["needs_dep"] for machine in run.machines} == {"0.5"}
    assert {machine.versions["python"] for machine in run.machines} == {".".join(map(str, sys.version_info[:3]))}
    assert str(tmp_path) not in (tmp_path / "r1.json").read_text()
    assert main(["rounds", "report", str(tmp_path / "r1.json")]) == 0
    measured_on = capsys.readouterr().out.partition("Measured on:")[2].split("\n- ")[1:]
    assert [(line.partition(": ")[0], "arm_dep 1.0" in line, "arm_dep 2.0" in line) for line in measured_on] == [
        ("baseline", True, False),
        ("new", False, True),
    ]
