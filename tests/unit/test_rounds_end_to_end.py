"""``cake-bench rounds`` as a user calls it: real processes, real arms on the CPU, torchrun over gloo."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness import devices
from harness.cli import _rounds_run, main
from harness.errors import UsageError
from harness.rounds import file
from harness.rounds.conductor import Setting, check
from harness.rounds.model import ROLES, Side
from harness.rounds.processes import gone
from tests.unit.test_rounds_file import small_run

CASE = ("--shape", "E=3,M=9,N=16,K=16,dist=skew", "--op", "fwd")
SCRIPT = {"cublas_loop": [30_000, 50_000, 40_000], "torch_grouped_mm": [20_000], "faulty": [10_000]}

FAULTY = """
import os, time
from dataclasses import replace
from pathlib import Path
from harness.arms import load
from harness.arms.cublas_loop import ARM as LOOP

class Faulty:
    info = replace(LOOP.info, name="faulty", key="")

    def why_not(self, case, machine):
        return None

    def prepare(self, case, operands):
        folder = Path(os.environ["FAULTY_FOLDER"])
        (folder / f"{os.getpid()}.pid").touch()
        once = folder / "done"
        if os.environ["RANK"] == "1" and not once.exists():
            once.touch()
            while len(list(folder.glob("*.pid"))) < 2:
                time.sleep(0.01)  # for the other rank, so that both have signed
            os.kill(os.getpid(), 9)
        return LOOP.prepare(case, operands)

ARM = Faulty()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return f"scripted:{path}"


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the arm ``faulty`` for this process and its children; return the folder where its processes sign."""
    installed = tmp_path / "installed"
    info = installed / "faulty-1.0.dist-info"
    info.mkdir(parents=True)
    (installed / "faulty.py").write_text(FAULTY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[cake_bench.arms]\nfaulty = faulty:ARM\n")
    signed = tmp_path / "signed"
    signed.mkdir()
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("FAULTY_FOLDER", str(signed))
    return signed


def rounds_run(*words: str, out: Path) -> int:
    return main(["rounds", "run", *CASE, "--device", "cpu", *words, "--out", str(out), "--run-id", "r1"])


def test_fresh_processes_measure_what_the_script_says(
    tmp_path: Path, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--baseline", "cublas_loop", "--new", "torch_grouped_mm", "--rounds", "2", "--iterations", "3")

    code = rounds_run(*words, "--mode", "pre-sleep", "--timer", script, out=tmp_path)

    said = capsys.readouterr()
    path = tmp_path / "r1.json"
    assert (code, said.out) == (
        0,
        f"{path}: 2 of 2 rounds measured\ntable: cake-bench rounds report {path}\n",
    )
    assert said.err == "1/2 round 0, baseline first: measured\n2/2 round 1, new first: measured\n"
    run = file.load(path)
    assert {(t.role, t.span_ns) for r in run.rounds for report in r.reports for t in report.timings} == {
        ("baseline", (30_000, 50_000, 40_000)),
        ("new", (20_000, 20_000, 20_000)),
    }
    assert main(["rounds", "report", str(path)]) == 0
    assert "| fwd E3 M9 N16 K16 skew | Pre-sleep | 0.0400 | 0.0200 | 2.000x | 0.167 |" in capsys.readouterr().out


def test_four_ranks_measure_with_the_wall_clock(tmp_path: Path) -> None:
    words = ("--baseline", "cublas_loop", "--new", "cublas_loop", "--rounds", "2", "--iterations", "2", "--ranks", "4")

    assert rounds_run(*words, "--timer", "cpu", "--isolate", "session", out=tmp_path) == 0

    run = file.load(tmp_path / "r1.json")
    assert [[report.rank for report in r.reports] for r in run.rounds] == [[0, 1, 2, 3]] * 2
    spans = [s for r in run.rounds for report in r.reports for t in report.timings for s in t.span_ns]
    assert len(spans) == 2 * 4 * 2 * 2 * 2


@pytest.mark.parametrize("new", ["torch_grouped_mm", "faulty"])
def test_rounds_under_torchrun_leave_nothing_in_the_temporary_folder(
    tmp_path: Path, script: str, faulty: Path, monkeypatch: pytest.MonkeyPatch, new: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)  # this process has asked before
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))  # torch's own, one for all processes
    words = ("--baseline", "cublas_loop", "--new", new, "--rounds", "2", "--iterations", "2", "--ranks", "2")

    code = rounds_run(*words, "--mode", "pre-sleep", "--timer", script, "--max-failures", "1", out=tmp_path)

    assert code == (5 if new == "faulty" else 0)
    assert list(temporary.iterdir()) == []


def test_a_rank_that_dies_under_torchrun_is_named_no_process_is_left_and_resume_goes_on(
    tmp_path: Path,
    script: str,
    faulty: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--baseline", "cublas_loop", "--new", "faulty", "--rounds", "2", "--iterations", "2", "--ranks", "2"]
    words += ["--mode", "back-to-back", "--timer", script, "--isolate", "session"]

    code = rounds_run(*words, "--max-failures", "1", out=tmp_path)

    path = tmp_path / "r1.json"
    assert code == 5
    (attempt,) = file.load(path).rounds
    failure = "rank 1 died without a word while loading and checking 'fwd E3 M9 N16 K16 skew' in round 0"
    assert (attempt.index, attempt.failure, attempt.failed_ranks) == (0, failure, (1,))
    assert f"stopped after 1 failed rounds; go on with the same command, --resume {path} for" in capsys.readouterr().err
    signed = [int(p.stem) for p in faulty.glob("*.pid")]
    assert len(signed) == 2
    assert [pid for pid in signed if not gone(pid)] == []

    resumed = ["--round-limit", "77s", "--resume", str(path)]
    assert main(["rounds", "run", *CASE, "--device", "cpu", *words, *resumed]) == 0
    again = file.load(path)
    assert again.plan.round_limit_ns == 77_000_000_000
    assert [(r.index, bool(r.failure)) for r in again.rounds] == [(0, True), (0, False), (1, False)]
    assert main(["rounds", "report", str(path)]) == 0
    assert f"- round 0: {failure}; measured again" in capsys.readouterr().out


STUCK = """
import os, time
from dataclasses import replace
from pathlib import Path
from harness.arms import load
from harness.arms.cublas_loop import ARM as LOOP

class Stuck:
    info = replace(LOOP.info, name="faulty", key="")
    rounds = 0

    def why_not(self, case, machine):
        return None

    def prepare(self, case, operands):
        self.rounds += 1
        if self.rounds == 2:
            (Path(os.environ["FAULTY_FOLDER"]) / f"{os.getpid()}.pid").touch()
            time.sleep(600)
        return LOOP.prepare(case, operands)

ARM = Stuck()
"""


def test_sigterm_ends_the_processes_clears_the_folder_and_keeps_the_rounds_that_are_done(
    tmp_path: Path, script: str, faulty: Path
) -> None:
    (tmp_path / "installed" / "faulty.py").write_text(STUCK)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ["--baseline", "cublas_loop", "--new", "faulty", "--rounds", "2", "--iterations", "2", "--ranks", "2"]
    words += ["--mode", "pre-sleep", "--timer", script, "--isolate", "session", "--device", "cpu"]
    command = [sys.executable, "-m", "harness", "rounds", "run", *CASE, *words, "--out", str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(temporary), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}

    with subprocess.Popen([*command, "--run-id", "r1"], env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        first = running.stderr.readline()
        while len(signed := list(faulty.glob("*.pid"))) < 2 and running.poll() is None:
            time.sleep(0.02)
        running.terminate()
        running.terminate()  # a second one does not interrupt what the first began
        rest = running.communicate()[1]

    path = tmp_path / "r1.json"
    assert first == "1/2 round 0, baseline first: measured\n"
    saved = "the rounds that are done are saved; go on with the same command,"
    saved += f" --resume {path} for --out and --run-id\n"
    assert (running.returncode, rest) == (130, f"{saved}cake-bench: interrupted\n")
    assert file.load(path).done == {0}
    assert len(signed) == 2
    assert [int(p.stem) for p in signed if not gone(int(p.stem))] == []
    assert list(temporary.iterdir()) == []


def ask_to_end(first: signal.Signals, cleared: list[signal.Signals]) -> None:
    with _rounds_run.ended_as_by_ctrl_c():
        try:
            signal.raise_signal(first)
        finally:
            for another in (signal.SIGTERM, signal.SIGHUP):
                signal.raise_signal(another)
                cleared.append(another)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_interrupts_once_and_afterwards_means_what_it_did(first: signal.Signals) -> None:
    cleared: list[signal.Signals] = []
    before = signal.signal(first, signal.SIG_DFL)  # nohup, for one, has the tests ignore a hangup
    try:
        with pytest.raises(KeyboardInterrupt):
            ask_to_end(first, cleared)

        assert cleared == [signal.SIGTERM, signal.SIGHUP]
        assert signal.getsignal(first) is signal.SIG_DFL
    finally:
        signal.signal(first, before)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _rounds_run.ended_as_by_ctrl_c():
            signal.raise_signal(signal.SIGHUP)

        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_resume_with_another_command_is_refused(
    tmp_path: Path, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r1.json"
    file.save(small_run(), path)
    words = ("--baseline", "cublas_loop", "--new", "torch_grouped_mm", "--timer", script, "--resume", str(path))

    assert main(["rounds", "run", *CASE, "--device", "cpu", *words]) == 2
    assert "--resume: cases of run r1 differs from this command's" in capsys.readouterr().err
    assert file.load(path) == small_run()


REFUSED = {
    "an odd number": (("--rounds", "3"), "--rounds must be even, half for each load order, got 3"),
    "--arm": (("--arm", "cudnn"), "--arm does not apply to rounds run, which takes --baseline and --new"),
    "an arm that is not known": (("--new", "nobody"), "arm 'nobody' is not known; known: "),
    "an interpreter of neither": (("--python", "x=py"), "'x' is neither arm of cublas_loop, cublas_loop; say new=PATH"),
    "an interpreter of both": (("--python", "cublas_loop=py"), "is both arms of cublas_loop, cublas_loop"),
    "no interpreter": (("--python", "new="), "--python must be ARM=PATH, got 'new='"),
    "an interpreter twice": (("--python", "new=a", "--python", "new=b"), "--python names new twice"),
    "a session of two": (("--python", "new=a", "--isolate", "session"), "got two interpreters"),
    "a run that cannot be named": (("--run-id", "../x"), "this run cannot be recorded: run_id"),
    "no such interpreter": (("--python", "new=/nope"), "/nope cannot be started: it is no program; check --python"),
    "a GPU's timer": (("--timer", "cupti"), "--timer cupti cannot be used here: it needs a CUDA device"),
    "a script that is not named": (("--timer", "scripted"), "--timer scripted needs a file"),
    "a script that is not there": (("--timer", "scripted:none.json"), "none.json cannot be read: No such file"),
    "a timer that is not known": (("--timer", "stopwatch"), "timer 'stopwatch' is not known; known: cpu, "),
    "a GPU that is not there": (("--device", "cuda"), "--device cuda cannot be used: torch sees no CUDA device"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_refused_before_a_process_starts_or_a_file_is_written(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "names", lambda: ("cpu",))
    words, message = REFUSED[what]
    given = ["--baseline", "cublas_loop", "--new", "cublas_loop", "--out", str(tmp_path), *words]

    assert main(["rounds", "run", *CASE, "--device", "cpu", *given]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_timer_that_only_other_interpreters_have_is_theirs_to_refuse(tmp_path: Path) -> None:
    plan = small_run().plan.model_copy(
        update={"device": "cuda", "timer": "cupti"} | {r: Side(arm="cublas_loop", own_python=True) for r in ROLES}
    )
    one, other = (tmp_path / name for name in ("one", "other"))
    for python in (one, other):
        python.touch(mode=0o755)
    setting = Setting(timer="cupti", pythons={"baseline": str(one), "new": str(other)}, environment={})

    check(plan, setting)

    with pytest.raises(UsageError, match="--timer cupti takes no argument, got 'x'"):
        check(plan, replace(setting, timer="cupti:x"))
    with pytest.raises(UsageError, match="--timer cupti cannot be used here: it needs a CUDA device"):
        check(plan.model_copy(update={"device": "cpu"}), setting)


def test_an_arm_of_another_interpreter_runs_there_and_what_it_prints_is_said(
    tmp_path: Path, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other-python"
    other.write_text(f'#!/bin/sh\necho "$@" >>"{tmp_path}/calls"\necho no module named harness >&2\nexit 1\n')
    other.chmod(0o755)
    words = ("--baseline", "cublas_loop", "--new", "cublas_loop", "--rounds", "2", "--max-failures", "1")

    assert rounds_run(*words, "--timer", script, "--python", f"baseline={other}", out=tmp_path) == 5

    said = capsys.readouterr().err
    assert "0/2 round 0, baseline first: failed: rank 0 ended with exit code 1 while starting\n" in said
    assert "  its processes' last line: no module named harness\n" in said
    assert (tmp_path / "calls").read_text().startswith("-m harness.rounds.worker ")
    run = file.load(tmp_path / "r1.json")
    assert (run.plan.baseline.own_python, run.plan.new.own_python) == (True, False)
    assert str(tmp_path) not in (tmp_path / "r1.json").read_text()
