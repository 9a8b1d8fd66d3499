"""Ranks that die, hang, give up or disagree: the round fails, the rank is named, no process is left, others go on.

The ranks are played by a script that says what it is told to; torchrun has a part in test_rounds_end_to_end.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.rounds import processes
from harness.rounds.conductor import Played, Rank, RankFailed, Setting, check, command, play, refuse_lost
from harness.rounds.messages import GaveUp
from harness.rounds.model import Plan, Round
from harness.rounds.processes import MARK, Launch, gone
from tests.bench import machine
from tests.unit.test_rounds_file import plan_of, round_of

STUB = """#!{python}
import json, os, signal, sys, time
folder = sys.argv[-1]
ranks = next((int(word.split("=")[1]) for word in sys.argv if word.startswith("--nproc-per-node")), 1)
job = json.load(open(folder + "/job.json"))
told, reports = json.loads(os.environ["TOLD"]), json.loads(os.environ["REPORTS"])

def say(rank, **word):
    with open(f"{{folder}}/rank-{{rank}}.jsonl", "a") as file:
        file.write(json.dumps(word) + chr(10))

def heard(rank, what):
    path = f"{{folder}}/rank-{{rank}}.jsonl"
    return os.path.exists(path) and what in open(path).read()

def pid_to_file():
    with open(os.environ["PIDS"], "a") as file:
        file.write(str(os.getpid()) + chr(10))

def play(rank):
    pid_to_file()
    if told.get("hello") != "none":
        say(rank, kind="hello", pid=os.getpid())
    for number, turn in enumerate(job["turns"]):
        say(rank, kind="step", number=2 * number, doing=f"timing round {{turn['index']}}")
        does = told.get(f"{{turn['index']}} {{rank}}", "report")
        report = json.loads(json.dumps(reports[rank]))
        report["index"] = turn["index"]
        report["timings"] = [t for t in report["timings"] if t["role"] in turn["roles"]]
        if does == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if does == "daemon and die":
            reads, writes = os.pipe()
            if os.fork() == 0:
                os.setsid()
                pid_to_file()
                os.write(writes, b"there")
                time.sleep(600)
            os.read(reads, 5)
            os.kill(os.getpid(), signal.SIGKILL)
        if does == "hang":
            time.sleep(600)
        if does == "wait":
            say(rank, kind="step", number=2 * number + 1, doing="waiting")
            time.sleep(600)
        if does == "give up":
            say(rank, kind="gave up", when_ns=time.monotonic_ns(), reason="ValueError: no")
            os._exit(1)
        if does == "give up later":
            while not heard(1 - rank, f"timing round {{turn['index']}}"):
                time.sleep(0.01)
            time.sleep(0.3)
            say(rank, kind="gave up", when_ns=time.monotonic_ns(), reason="RuntimeError: connection closed")
            os._exit(1)
        if does == "leave":
            os._exit(0)
        if does == "babble":
            say(rank, kind="nonsense")
        if does == "fewer iterations":
            report["timings"][0]["span_ns"].pop()
        if does == "one arm":
            report["timings"] = [t for t in report["timings"] if t["role"] == "new"]
        if does == "another case":
            report["timings"][0]["case"] = 7
        if does == "another round":
            report["index"] += 1
        if does == "other inputs" or os.path.basename(sys.argv[0]) == told.get("other inputs by"):
            report["inputs"] = [[4, 5]]
        say(rank, kind="report", **report)
    if told.get("end") == "crash":
        os._exit(9)
    if told.get("end") == "stay":
        time.sleep(600)

children = []
for rank in range(ranks):
    pid = os.fork()
    if pid == 0:
        os.setsid()  # as torchrun does: a process group for each rank
        try:
            play(rank)
        finally:
            os._exit(0)
    children.append(pid)
print("the last line that was printed", flush=True)
codes = [os.waitpid(pid, 0)[1] for pid in children]
sys.exit(1 if any(codes) else 0)
"""


def environment(pid: int) -> bytes:
    """Return its environment; empty where it is just being torn down."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except FileNotFoundError:
        return b""


class Stage:
    """A stub interpreter in ``folder``, and what it started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pids_file = folder / "pids"
        self.stub = self.another("python")

    def another(self, name: str) -> Path:
        path = self._folder / name
        path.write_text(STUB.format(python=sys.executable))
        path.chmod(0o755)
        return path

    def setting(self, plan: Plan, told: Mapping[str, str], *, new: Path | None = None) -> Setting:
        made: Round = round_of(plan, 0, lambda r, c, m, role, rank, i: 1000 + rank + i)
        reports = [
            {
                "machine": asdict(machine()),
                "inputs": [[1, 2, 3]],
                "timings": [t.model_dump(mode="json") for t in report.timings],
            }
            for report in made.reports
        ]
        environment = {
            **os.environ,
            "TOLD": json.dumps(told),
            "REPORTS": json.dumps(reports),
            "PIDS": str(self.pids_file),
        }
        pythons = {"baseline": str(self.stub), "new": str(new or self.stub)}
        return Setting(timer="scripted", pythons=pythons, environment=environment)  # type: ignore[arg-type]

    def play(self, plan: Plan, told: Mapping[str, str], *, new: Path | None = None) -> list[Played]:
        return list(play(plan, self.setting(plan, told, new=new), range(plan.rounds)))

    def left(self) -> list[int]:
        """Return the processes that are still there."""
        return [pid for pid in map(int, self.pids_file.read_text().split()) if not gone(pid) and environment(pid)]

    def started(self) -> int:
        return len(set(self.pids_file.read_text().split()))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def outcomes(played: list[Played]) -> list[tuple[int, str, tuple[int, ...]]]:
    return [(p.index, p.failure, p.failed_ranks) for p in played]


def test_a_round_has_fresh_processes_and_reports_of_every_rank(stage: Stage) -> None:
    played = stage.play(plan_of(), {})

    assert [(p.index, p.first, p.failure) for p in played] == [
        (0, "baseline", ""),
        (1, "baseline", ""),
        (2, "new", ""),
        (3, "new", ""),
    ]
    assert [[rank for rank, _ in p.reports] for p in played] == [[0, 1]] * 4
    assert (stage.started(), stage.left()) == (8, [])


def test_a_session_has_the_same_processes_for_all_rounds(stage: Stage) -> None:
    played = stage.play(plan_of(isolate="session"), {})

    assert outcomes(played) == [(index, "", ()) for index in range(4)]
    assert (stage.started(), stage.left()) == (2, [])


FAULTS = {
    "a rank dies": ({"1 1": "die", "1 0": "wait"}, "rank 1 died without a word while timing round 1", (1,)),
    "a rank dies and its peer notices": (
        {"1 1": "die", "1 0": "give up later"},
        "rank 1 died without a word while timing round 1",
        (1,),
    ),
    "a rank gives up": (
        {"1 0": "give up", "1 1": "wait"},
        "rank 0 gave up while timing round 1: ValueError: no",
        (0,),
    ),
    "a rank gives up and its peer notices": (
        {"1 1": "give up", "1 0": "give up later"},
        "rank 1 gave up while timing round 1: ValueError: no",
        (1,),
    ),
    "a rank leaves": ({"1 1": "leave", "1 0": "wait"}, "rank 1 died without a word while timing round 1", (1,)),
    "a rank babbles": (
        {"1 1": "babble"},
        "rank 1 gave up while timing round 1: it said what is no word of this version: the top level",
        (1,),
    ),
    "fewer iterations": (
        {"1 1": "fewer iterations"},
        "rank 1 reported 2 iterations of baseline of 'fwd tiny', pre-sleep, 3 are planned",
        (1,),
    ),
    "one arm": ({"1 0": "one arm"}, "rank 0 reported 1 arms where 2 are planned", (0,)),
    "another case": ({"1 1": "another case"}, "rank 1 reported 2 cases where 1 are planned", (1,)),
    "another round": ({"1 1": "another round"}, "rank 1 reported round 2, this is round 1", (1,)),
    "other inputs": ({"1 1": "other inputs"}, "rank 1 has other inputs of case 0 than rank 0", (1,)),
}


@pytest.mark.parametrize("isolate", ["process", "session"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_round_and_no_other(stage: Stage, fault: str, isolate: str) -> None:
    told, failure, ranks = FAULTS[fault]

    played = stage.play(plan_of(isolate=isolate), told)

    assert [p.index for p in played] == [0, 1, 2, 3]
    assert [bool(p.failure) for p in played] == [False, True, False, False]
    assert played[1].failure.startswith(failure)
    assert (played[1].failed_ranks, played[1].reports) == (ranks, ())
    assert stage.left() == []


@pytest.mark.parametrize(
    ("ended", "gave_up_ns", "ranks"),
    [
        ((1,), {0: 5}, (1,)),
        ((0, 1), {0: 5}, (1,)),
        ((), {0: 7, 2: 5}, (2,)),
        ((0, 2), {0: 7, 2: 5}, (2,)),
        ((1, 2), {}, (1, 2)),
    ],
)
def test_who_is_silent_is_blamed_before_who_gave_up_and_of_those_the_first(
    tmp_path: Path, ended: tuple[int, ...], gave_up_ns: dict[int, int], ranks: tuple[int, ...]
) -> None:
    behind = [
        Rank(tmp_path, n, gave_up=GaveUp(when_ns=gave_up_ns[n], reason="{no}") if n in gave_up_ns else None)
        for n in range(3)
    ]

    with pytest.raises(RankFailed) as caught:
        refuse_lost(behind, ended, None, limit_s=None)

    assert caught.value.ranks == ranks


def test_nobody_is_blamed_while_all_are_there(tmp_path: Path) -> None:
    refuse_lost([Rank(tmp_path, n) for n in range(3)], (), None, limit_s=None)


def test_a_rank_that_hangs_is_named_when_the_limit_is_over(stage: Stage) -> None:
    played = stage.play(plan_of(limit_s=4.0, rounds=2, ranks=3), {"0 1": "hang", "0 0": "wait", "0 2": "wait"})

    hung = "rank 1 hung: no report within 4 s; it was timing round 0"
    assert outcomes(played) == [(0, hung, (1,)), (1, "", ())]
    assert stage.left() == []


def test_ranks_that_all_hang_at_one_step_are_all_named(stage: Stage) -> None:
    played = stage.play(plan_of(limit_s=3.0, rounds=2), {"0 0": "hang", "0 1": "hang"})

    assert outcomes(played)[0] == (0, "ranks 0, 1 hung: no report within 3 s; it was timing round 0", (0, 1))
    assert stage.left() == []


def test_a_process_that_a_rank_left_behind_is_ended_too(stage: Stage) -> None:
    played = stage.play(plan_of(rounds=2), {"0 1": "daemon and die", "0 0": "wait"})

    assert [bool(p.failure) for p in played] == [True, False]
    assert (stage.started(), stage.left()) == (5, [])


def test_a_fault_after_the_reports_fails_the_round_too(stage: Stage) -> None:
    (crashed, _) = stage.play(plan_of(rounds=2), {"end": "crash"})
    (stayed, _) = stage.play(plan_of(rounds=2, limit_s=2.0), {"end": "stay"})

    assert crashed.failure == "the processes ended with exit code 1 after their reports"
    assert stayed.failure == "the processes did not end within 2 s, after their reports"
    assert stage.left() == []


def test_what_the_processes_printed_last_is_kept_for_the_terminal(stage: Stage) -> None:
    played = stage.play(plan_of(rounds=2), {"0 0": "wait", "0 1": "die"})

    assert [p.said for p in played] == ["the last line that was printed", ""]


def test_ctrl_c_leaves_no_process(stage: Stage) -> None:
    playing = play(plan_of(isolate="session"), stage.setting(plan_of(), {"1 0": "wait", "1 1": "wait"}), range(4))
    next(playing)
    assert len(stage.left()) == 2

    with pytest.raises(KeyboardInterrupt):
        playing.throw(KeyboardInterrupt)

    assert stage.left() == []


def test_rounds_that_nobody_asks_for_any_more_leave_no_process(stage: Stage) -> None:
    playing = play(plan_of(isolate="session"), stage.setting(plan_of(), {"1 0": "wait", "1 1": "wait"}), range(4))
    next(playing)

    playing.close()

    assert (stage.started(), stage.left()) == (2, [])


def sleeper(stage: Stage, log: Path) -> Launch:
    signed = f"import os, time; open({str(stage.pids_file)!r}, 'a').write(str(os.getpid()) + chr(10)); time.sleep(600)"
    return Launch([sys.executable, "-c", signed], environment=os.environ, log=log)


def wait_for(stage: Stage) -> None:
    while not (stage.pids_file.exists() and stage.pids_file.read_text().endswith("\n")):
        time.sleep(0.01)


def test_ctrl_c_while_a_process_is_being_started_leaves_none(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = subprocess.Popen, []

    def interrupted(*words: object, **options: object) -> None:
        started.append(start(*words, **options))  # type: ignore[call-overload]
        wait_for(stage)
        raise KeyboardInterrupt

    monkeypatch.setattr(processes.subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt), sleeper(stage, tmp_path / "log"):
        pytest.fail("it was interrupted before")

    assert (stage.started(), stage.left()) == (1, [])
    assert started[0].wait() == -signal.SIGKILL


def test_ctrl_c_while_processes_are_being_ended_comes_after_the_last(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = Launch._end
    pressed = iter([True])

    def interrupted(launch: Launch, pid: int) -> None:
        if next(pressed, False):
            raise KeyboardInterrupt
        ended(launch, pid)

    monkeypatch.setattr(Launch, "_end", interrupted)
    with pytest.raises(KeyboardInterrupt), sleeper(stage, tmp_path / "log"):
        wait_for(stage)

    assert (stage.started(), stage.left()) == (1, [])


def test_arms_in_two_environments_are_launched_one_after_the_other(stage: Stage) -> None:
    played = stage.play(plan_of(), {}, new=stage.another("python-of-new"))

    assert outcomes(played) == [(index, "", ()) for index in range(4)]
    assert [[t.role for _, r in p.reports for t in r.timings][::4] for p in played] == [
        ["baseline", "new"],
        ["baseline", "new"],
        ["new", "baseline"],
        ["new", "baseline"],
    ]
    assert (stage.started(), stage.left()) == (16, [])


def test_environments_that_draw_other_inputs_from_one_seed_are_refused(stage: Stage) -> None:
    other = stage.another("python-of-new")

    played = stage.play(plan_of(rounds=2, ranks=1), {"other inputs by": other.name}, new=other)

    advice = "two versions of torch may draw other numbers from one seed"
    assert {p.failure for p in played} == {f"rank 0 has other inputs of case 0 than rank 0; {advice}"}


def test_a_session_of_two_environments_is_refused(stage: Stage) -> None:
    with pytest.raises(UsageError, match="runs both arms in one process, got two interpreters"):
        check(plan_of(isolate="session"), stage.setting(plan_of(), {}, new=stage.another("python-of-new")))


def test_an_interpreter_that_cannot_be_started_is_named(stage: Stage, tmp_path: Path) -> None:
    setting = stage.setting(plan_of(), {}, new=tmp_path / "none")

    with pytest.raises(UsageError, match=r"none cannot be started: No such file or directory; check --python"):
        list(play(plan_of(), setting, range(4)))


def test_one_rank_needs_no_torchrun() -> None:
    assert command("py", 1, Path("f")) == ("py", "-m", "harness.rounds.worker", "f")
    assert {"--nproc-per-node=3", "--log-dir=f/torchrun"} < set(command("py", 3, Path("f")))


def test_a_launch_ends_only_its_own_processes(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    other = Launch(sleep, environment=os.environ, log=tmp_path / "other")
    with other:
        with Launch(sleep, environment=os.environ, log=tmp_path / "mine"):
            pass
        assert other.exit_code() is None

    assert other.exit_code() == -9
    assert MARK not in os.environ
