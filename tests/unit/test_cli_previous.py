"""``cake-bench run --previous``: what is loaded, what is kept, what the run file and the table say of it."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness import arms as arm_files
from harness import runfile
from harness.arms._previous import NOT_GIVEN
from harness.cli import _previous, main
from harness.cli import run as run_command
from harness.kernels import Kernels, current
from harness.model.run import Previous
from tests import tiny_kernels
from tests.bench import FakeArm

SHAPE = "E=3,M=8,N=16,K=8,dist=balanced"
ROW = "E3 M8 N16 K8 balanced"
LESS = "E2 M6 N16 K8 balanced"
RunCli = Callable[..., int]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunCli]:
    """``cake-bench`` in a folder with a previous revision, ``old/``; ours is the fake ``cake_det``, its kernels tiny.

    The tiny programs do fwd and dX; of the previous revision's only that of dX differs.
    """
    load = arm_files.load
    fakes = {name: FakeArm(name) for name in ("cake_det", "cublas_loop", "reference")}
    names = (*fakes, "previous_det", "previous_nondet")
    monkeypatch.setattr(arm_files, "load", lambda name: fakes[name] if name in fakes else load(name))
    monkeypatch.setattr(arm_files, "names", lambda: names)
    tiny_kernels.write(tmp_path / "site", package="tiny_now")
    monkeypatch.syspath_prepend(tmp_path / "site")
    now = tiny_kernels.kernels(tmp_path / "site", "tiny_now")
    monkeypatch.setattr(run_command, "current", lambda revision: replace(now, revision=revision))
    old = tiny_kernels.write(tmp_path / "old", {"cuda/dgrad.cu": "void dgrad_tiny(int) {}\n"})
    (old / "REVISION").write_text("0ld\n")
    times = {"cake_det": [5000], "previous_det": [6000], "previous_nondet": [7000], "cublas_loop": [9000]}
    (tmp_path / "script.json").write_text(json.dumps(times))
    monkeypatch.chdir(tmp_path)
    yield lambda *words: main([*words])
    for name in [name for name in sys.modules if name.partition(".")[0] == "tiny_now"]:
        del sys.modules[name]


def run(*words: str, ops: str = "fwd,dX,dW") -> list[str]:
    return [
        "run", "--device", "cpu", "--timer", "scripted:script.json", "--revision", "new", "--shape", SHAPE,
        "--shape", "E=2,M=6,N=16,K=8,dist=balanced", "--op", ops, *(() if "--resume" in words else ("--run-id", "r")),
        *words,
    ]  # fmt: skip


def old(tmp_path: Path) -> Kernels:
    return tiny_kernels.kernels(tmp_path / "old", "cake_kernels")


def test_both_sides_are_measured_and_the_run_file_names_both(cli: RunCli, tmp_path: Path) -> None:
    assert cli(*run("--arm", "cake_det,previous_det", "--previous", "old")) == 0

    found = runfile.load(Path("reports/r.json"))
    rows = {row.case.case_id: row for row in found.rows}
    assert found.previous == Previous(
        revision="0ld (stamp)",
        sources_sha256=old(tmp_path).sha256,
        controls=(f"boost/adhoc/fwd {ROW}", f"boost/adhoc/fwd {LESS}"),
    )
    assert found.sources_sha256 == tiny_kernels.kernels(tmp_path / "site", "tiny_now").sha256
    assert {name: set(row.samples.arm) for name, row in rows.items()} == {
        f"{op} {size}": {"cake_det", *(("previous_det",) if op != "dW" else ())}
        for op in ("fwd", "dX", "dW")
        for size in (ROW, LESS)
    }
    assert rows[f"dW {ROW}"].arms["previous_det"].reason == "revision 0ld (stamp): no program for wgrad"
    assert found.arms[1].note == (
        "cake_kernels of revision 0ld (stamp), deterministic; offs on the device, output preallocated, a step's"
        " allocated"
    )
    assert [name for name in sys.modules if name.startswith("cake_kernels_previous")] == []


def test_the_table_has_a_column_for_previous_and_shows_controls(
    cli: RunCli, capsys: pytest.CaptureFixture[str]
) -> None:
    cli(*run("--arm", "cake_det,previous_det", "--previous", "old"))
    capsys.readouterr()

    assert cli("report", "--format", "json", "reports/r.json") == 0
    page = json.loads(capsys.readouterr().out)
    assert cli("report", "reports/r.json") == 0
    text = capsys.readouterr().out

    assert page["against"] == ["sota", "previous"]
    assert page["previous_revision"] == "0ld (stamp)"
    assert [(row["op"], row["control"], row["ratios"].get("previous", {}).get("median")) for row in page["rows"]] == [
        ("fwd", True, 1.2), ("dX", False, 1.2), ("dW", False, None),
        ("fwd", True, 1.2), ("dX", False, 1.2), ("dW", False, None),
    ]  # fmt: skip
    means = {g["op"]: (g["value"], g["n"]) for g in page["geomeans"] if g["against"] == "previous"}
    assert means == {"fwd": (None, 0), "dX": (pytest.approx(1.2), 2), "dW": (None, 0)}
    assert f"| {ROW} | fwd | **5.000** | 6.000 | – | – | 1.200 [1.200, 1.200] | control |" in text


def test_only_affected_keeps_the_affected_and_the_smallest_control(
    cli: RunCli, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(*run("--arm", "cake_det,previous_det", "--previous", "old", "--only-affected")) == 0

    found = runfile.load(Path("reports/r.json"))
    assert [row.case.case_id for row in found.rows] == [f"dX {ROW}", f"fwd {LESS}", f"dX {LESS}"]
    assert found.previous is not None
    assert found.previous.controls == (f"boost/adhoc/fwd {LESS}",)
    assert "--only-affected: 2 of 6 rows, and 1 as controls" in capsys.readouterr().err


def test_no_affected_row_gives_three_and_the_reason(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--arm", "cake_det,previous_det", "--previous", "old", "--only-affected"]

    assert cli(*run(*words, ops="fwd,dW")) == 3
    assert (
        "no row is affected by what changed since revision 0ld (stamp): of 4 rows 2 run the same program on both sides,"
        " 2 have none on either" in capsys.readouterr().err
    )
    assert not Path("reports").exists()


def test_on_a_cpu_our_kernels_have_no_program_on_either_side(
    cli: RunCli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_command, "current", current)
    tiny_kernels.write(Path("none"), {"registry.py": "def find(problem, variant): raise LookupError"})

    assert cli(*run("--arm", "cake_det,previous_det", "--previous", "none", "--only-affected")) == 3
    assert "of 6 rows 0 run the same program on both sides, 6 have none on either" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "variants"),
    [
        (("cake_det", "cublas_loop"), ["det"]),
        (("cake_nondet", "previous_det"), ["det", "nondet"]),
        (("previous_nondet", "previous_det"), ["det", "nondet"]),
        (("previous_nondet",), ["nondet"]),
    ],
)
def test_the_variants_compared_are_those_of_the_arms(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: tuple[str, ...], variants: list[str]
) -> None:
    monkeypatch.setattr(_previous, "compare", lambda cases, variants, *_: variants)
    kernels = tiny_kernels.kernels(tiny_kernels.write(tmp_path), "cake_kernels")

    assert _previous.compare_sides((), [arm_files.load(name) for name in names], "sm_90a", kernels, kernels) == variants


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), ["cake_det", "cublas_loop"]),
        (("--arm", "all"), ["cake_det", "cublas_loop", "reference"]),
        (("--previous", "old"), ["previous_det", "previous_nondet", "cake_det", "cublas_loop"]),
    ],
)
def test_arms_of_another_revision_are_among_the_default_only_with_one(
    cli: RunCli, words: tuple[str, ...], names: list[str]
) -> None:
    cli(*run(*words, ops="fwd"))

    found = runfile.load(Path("reports/r.json"))
    assert [arm.name for arm in found.arms] == names
    assert (found.previous is None) == ("--previous" not in words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--arm", "previous_det"), "--arm previous_det measures another revision; name it by --previous PATH or"),
        (("--arm", "cake_det", "--only-affected"), "--only-affected compares with another revision; name it"),
        (("--arm", "cake_det", "--previous", "old"), "--previous is for the arms previous_det and previous_nondet"),
        (("--arm", "previous_det", "--previous", "site"), "--previous: site must hold cake_kernels/__init__.py"),
        (("--arm", "previous_det", "--previous", "no-such-thing"), "got 'no-such-thing', which is n"),
        (
            ("--arm", "previous_det", "--previous", "old", "--only-affected", "--profile"),
            "--only-affected does not apply to --profile",
        ),
    ],
)
def test_what_is_wrong_gives_two_and_a_message(
    cli: RunCli, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert cli(*run(*words)) == 2
    assert message in capsys.readouterr().err
    assert not Path("reports").exists()


def test_a_revision_that_fails_to_import_gives_two_in_one_line(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    Path("old/cake_kernels/registry.py").write_text("1 / 0")

    assert cli(*run("--arm", "previous_det", "--previous", "old")) == 2
    assert capsys.readouterr().err == (
        "cake-bench: Error: --previous: cake_kernels of old (0ld (stamp)) fails to import: ZeroDivisionError:"
        " division by zero; choose another revision\n"
    )


def test_a_revision_that_is_wrong_has_no_time_and_gives_five(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    gemm = tiny_kernels.FILES["grouped_gemm/__init__.py"] or ""
    Path("old/cake_kernels/grouped_gemm/__init__.py").write_text(
        gemm.replace("x[rows].double()", "2 * x[rows].double()")
    )

    assert cli(*run("--arm", "cake_det,previous_det", "--previous", "old", ops="fwd")) == 5
    assert "failed: previous_det wrong: rel L2 1 is above" in capsys.readouterr().err


def test_the_plan_calls_controls_by_their_name(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(*run("--arm", "cake_det,previous_det", "--previous", "old", "--only-affected", "--dry-run")) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == [f"dX {ROW}", f"fwd {LESS} (control)", f"dX {LESS}"]


def test_resume_refuses_other_kernels_on_either_side(
    cli: RunCli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["--arm", "cake_det,previous_det", "--previous", "old"]
    cli(*run(*words, "--time-limit", "0.000001s"))
    again = run(*words, "--resume", "reports/r.json")

    notes = Path("old/cake_kernels/NOTES.md")
    notes.write_text("changed")
    assert cli(*again) == 2
    assert "--resume: previous of run r differs from this command's" in capsys.readouterr().err
    notes.write_text("")
    now = run_command.current
    Path("site/tiny_now/NOTES.md").write_text("changed")
    changed = tiny_kernels.kernels(tmp_path / "site", "tiny_now")
    monkeypatch.setattr(run_command, "current", lambda revision: replace(changed, revision=revision))
    assert cli(*again) == 2
    assert "--resume: cake_kernels has changed since run r began; run anew" in capsys.readouterr().err
    monkeypatch.setattr(run_command, "current", now)
    assert cli(*again) == 0
    assert len(runfile.load(Path("reports/r.json")).rows) == 6


def test_list_says_why_the_arms_cannot_run(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("list", "arms", "--suite", "smoke", "--op", "fwd") == 0

    assert f"previous_det: cannot do 4 of 4 rows of smoke: {NOT_GIVEN}" in capsys.readouterr().out.splitlines()
