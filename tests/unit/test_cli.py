"""``cake-bench`` as its users call it: output, exit codes, files left behind."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness import arms as arm_files
from harness import runfile
from harness.cli import _options, main
from harness.cli.run import took
from harness.errors import UnknownName
from harness.model.cost import Cost, cost, with_rows
from harness.paths import data
from tests.bench import FakeArm

SHAPE = "E=3,M=8,N=16,K=8,dist=balanced"
RunCli = Callable[..., int]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunCli:
    """``cake-bench`` in an empty folder with the arms ``fast``, ``slow``, ``wrong``, ``absent``, timed by a script."""
    known = {
        "fast": FakeArm("fast"),
        "slow": FakeArm("slow"),
        "wrong": FakeArm("wrong", spoil=lambda call, out: out.mul_(2)),
        "absent": FakeArm("absent", reason="needs a GPU"),
    }

    def load(name: str) -> FakeArm:
        if name not in known:
            raise UnknownName("arm", name, tuple(known))
        return known[name]

    monkeypatch.setattr(arm_files, "load", load)
    monkeypatch.setattr(arm_files, "names", lambda: tuple(known))
    assert _options.arm_files is arm_files
    (tmp_path / "script.json").write_text('{"fast": [5000], "slow": [6000, 6600], "wrong": [1000]}')
    monkeypatch.chdir(tmp_path)
    return lambda *words: main([*words])


def run(*words: str) -> list[str]:
    named = () if "--resume" in words else ("--run-id", "r")
    return [
        "run", "--device", "cpu", "--timer", "scripted:script.json", *named, "--revision", "v1",
        "--shape", SHAPE, "--op", "fwd", *words,
    ]  # fmt: skip


def test_a_run_leaves_a_file_and_says_where(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(*run("--arm", "fast,slow,absent")) == 0

    out, err = capsys.readouterr()
    assert out == (
        "reports/r.json: 1 of 1 rows measured, 0 with a failed arm, 0 skipped\n"
        "table: cake-bench report reports/r.json\n"
    )
    assert err.startswith("1/1 fwd E3 M8 N16 K8 balanced: 2 measured, 1 unsupported; ")
    assert err.splitlines()[-1].endswith("% of it in calls that count")
    found = runfile.load(Path("reports/r.json"))
    assert found.rows[0].samples.span_ns == (5000, 6000, 6600, 5000, 5000, 6000, 6600, 5000, 5000, 6000, 6600, 5000)
    assert found.revision == "v1"
    assert found.timer == "scripted"


def test_the_table_pairs_new_with_the_baseline(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    cli(*run("--arm", "fast,slow"))
    capsys.readouterr()

    assert cli("report", "--format", "json", "--against", "slow", "reports/r.json") == 0

    page = json.loads(capsys.readouterr().out)
    ratio = page["rows"][0]["ratios"]["slow"]
    assert {key: ratio[key] for key in ("median", "min", "max", "n", "busy_median")} == {
        "median": 1.26,
        "min": 1.2,
        "max": 1.32,
        "n": 6,
        "busy_median": None,
    }


def test_report_takes_the_rows_whose_name_matches(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    cli(*run("--arm", "fast,slow", "--shape", "E=2,M=6,N=16,K=8,dist=balanced", "--op", "fwd,dX"))
    capsys.readouterr()

    def cases(*words: str) -> list[tuple[str, str]]:
        assert cli("report", "--format", "json", *words, "reports/r.json") == 0
        return [(row["op"], row["case"]) for row in json.loads(capsys.readouterr().out)["rows"]]

    three, two = "E3 M8 N16 K8 balanced", "E2 M6 N16 K8 balanced"
    assert sorted(cases()) == [("dX", two), ("dX", three), ("fwd", two), ("fwd", three)]
    assert cases("--case", "*E2*") == [("fwd", two), ("dX", two)]
    assert cases("--case", "dX E2*", "--case", "fwd E3*") == [("fwd", three), ("dX", two)]


def test_report_says_which_rows_are_missing_among_those_that_match(
    cli: RunCli, capsys: pytest.CaptureFixture[str]
) -> None:
    cli(*run("--arm", "fast,slow", "--shape", "E=2,M=6,N=16,K=8,dist=balanced", "--time-limit", "0.000001s"))
    capsys.readouterr()

    assert cli("report", "--format", "json", "reports/r.json") == 0
    assert len(json.loads(capsys.readouterr().out)["missing"]) == 1
    assert cli("report", "--format", "json", "--case", "*E3*", "reports/r.json") == 0
    assert json.loads(capsys.readouterr().out)["missing"] == []


def test_report_refuses_a_name_that_matches_no_row(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    cli(*run("--arm", "fast"))
    capsys.readouterr()

    assert cli("report", "--case", "*E3*", "--case", "*E9*", "reports/r.json") == 2
    assert (
        "--case '*E9*' matches no row of the runs; they name rows as 'boost/adhoc/fwd E3 M8 N16 K8 balanced' does"
        in capsys.readouterr().err
    )


def test_an_arm_that_fails_its_check_gives_five_and_its_reason(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(*run("--arm", "fast,wrong")) == 5
    assert "failed: wrong wrong: rel L2 1 is above" in capsys.readouterr().err


def test_nothing_measured_gives_three_and_the_reasons(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(*run("--arm", "absent")) == 3
    assert "nothing measured: absent: needs a GPU" in capsys.readouterr().err
    assert cli("report", "reports/r.json") == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "nothing to do: give --suite NAME (known: smoke, moe-training"),
        (["run", "--suite", "none"], "suite 'none' is not known; known: smoke"),
        (["run", "--suite", "smoke", "--case", "*E99*"], "*E99*"),
        (["run", "--suite", "smoke", "--op", "bwd"], "operation 'bwd' is not known; known: fwd, dX, dW"),
        (run("--arm", "fastest"), "arm 'fastest' is not known; known: fast, slow"),
        (run("--arm", "fast,fast"), "--arm names fast twice"),
        (run("--timer", "stopwatch"), "timer 'stopwatch' is not known"),
        (run("--time-limit", "soon"), "'soon' must be a positive duration such as 90s, 9m or 1.5h"),
        (run("--time-limit", "9e9h"), "'9e9h' must be a positive duration"),
        (run("--time-limit", "9" * 400 + "h"), "at most 8760h"),
        (run("--groups", "0"), "0 is not in the range x>=1"),
        (run("--seed", str(2**31)), "2147483648 is not in the range 0<=x<=2147483647"),
        (run("--run-id", "../r"), "run_id must be 1 to 100 letters, digits"),
        (run("--run-id", ".r"), "the first no '.', got '.r'"),
        (run("--run-id", "r" * 101), "choose one with --run-id"),
        (run("--resume", "r.json", "--run-id", "s"), "--resume goes on with r.json; leave out --run-id"),
        (run("--resume", "r.json", "--out", "d"), "--resume goes on with r.json; leave out --out"),
        (run("--fail-below", "nan"), "nan must be a finite number"),
        (run("--fail-below", "inf"), "inf must be a finite number"),
        (["run", "--shape", "E=99999999,M=8,N=16,K=8,dist=balanced"], "E must be in 1..65536, got 99999999"),
        (["run", "--shape", "E=2,M=2147483648,N=16,K=8,dist=balanced"], "M must be in 0..2147483647, got 2147483648"),
        (["run", "--shape", "E=2,M=8,N=2147483648,K=8,dist=balanced"], "must be in 1..2147483647, got 2147483648"),
        (["list", "timers", "--arm", "fast"], "--arm does not apply to list timers; leave it out"),
        (["list", "suites", "--suite", "smoke"], "--suite does not apply to list suites"),
        (["list", "cases", "--arm", "fast"], "--arm does not apply to list cases"),
        (["list", "programs", "--shapes", "s.yaml"], "--shapes does not apply to list programs"),
        (run("--fail-below", "0"), "0.0 is not in the range x>0"),
        (run("--resume", "none.json"), "none.json cannot be read: No such file or directory"),
        (run("--shapes", "none.yaml"), "none.yaml"),
        (["run", "--shape", "E=3,M=8"], "N"),
        (["report"], "Missing argument 'RUN...'"),
        (["report", "none.json"], "none.json cannot be read"),
        (["measure"], "No such command 'measure'"),
    ],
)
def test_what_is_wrong_on_the_command_line_gives_two_and_a_message(
    cli: RunCli, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert cli(*words) == 2
    assert message in capsys.readouterr().err


def test_a_suite_whose_name_is_no_file_name_asks_for_a_run_id(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[1] / "data" / "kill" / "shapes.yaml").read_text()
    Path("odd.yaml").write_text(text.replace("  many:", "  many/odd:"))

    words = ["run", "--shapes", "odd.yaml", "--suite", "many/odd", "--timer", "scripted:script.json", "--arm", "fast"]

    assert cli(*words, "--device", "cpu") == 2
    assert "-many/odd-" in (err := capsys.readouterr().err)
    assert "choose one with --run-id" in err


def test_a_table_never_replaces_the_run_file_it_comes_from(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    cli(*run("--arm", "fast"))
    before = Path("reports/r.json").read_bytes()
    Path("link.json").symlink_to("reports/r.json")

    for output in ("reports/r.json", "reports/../reports/r.json", "link.json"):
        assert cli("report", "reports/r.json", "-o", output) == 2
        assert f"--output {output} is one of the run files" in capsys.readouterr().err
    assert Path("reports/r.json").read_bytes() == before


def test_no_valid_sample_at_all_gives_five_and_says_none_was_accepted(
    cli: RunCli, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("script.json").write_text('{"fast": [0], "slow": [-1, 0]}')

    assert cli(*run("--arm", "fast,slow")) == 5
    err = capsys.readouterr().err
    assert "failed: fast 7 groups discarded, 0 accepted: span_ns must be at least 1, got 0" in err
    assert "failed: slow" in err
    assert not runfile.load(Path("reports/r.json")).rows[0].samples.span_ns


def test_an_arm_that_asks_the_process_to_end_has_failed_and_the_run_goes_on(
    cli: RunCli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaves(self: FakeArm, case: object, machine: object) -> str | None:
        return sys.exit(0) if self.name == "slow" else None

    monkeypatch.setattr(FakeArm, "why_not", leaves)

    assert cli(*run("--arm", "fast,slow")) == 5
    assert "failed: slow why_not raised SystemExit: 0" in capsys.readouterr().err
    assert cli("list", "arms", "--suite", "smoke", "--op", "fwd", "--arm", "slow") == 0
    assert "slow: cannot do 4 of 4 rows of smoke: why_not raised SystemExit: 0" in capsys.readouterr().out
    assert cli(*run("--arm", "fast,slow", "--dry-run")) == 0


def test_a_run_file_is_never_overwritten(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    cli(*run("--arm", "fast"))

    assert cli(*run("--arm", "fast")) == 2
    assert "reports/r.json exists; choose another --run-id, or go on with it by --resume" in capsys.readouterr().err


def test_a_geomean_below_the_limit_gives_one(
    cli: RunCli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {name: FakeArm(name) for name in ("fast", "cublas_loop")}
    monkeypatch.setattr(arm_files, "load", known.__getitem__)
    Path("script.json").write_text('{"fast": [5000], "cublas_loop": [4000]}')

    assert cli(*run("--arm", "fast,cublas_loop", "--fail-below", "0.81")) == 1
    assert "below 0.81: SOTA / fast, fwd adhoc boost span 0.800" in capsys.readouterr().err
    assert cli("report", "--fail-below", "0.81", "reports/r.json") == 1
    assert cli("report", "--fail-below", "0.79", "reports/r.json") == 0


def test_a_limit_with_nothing_to_hold_against_it_gives_three(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(*run("--arm", "fast", "--fail-below", "0.5")) == 3
    assert "no row has a time of fast and of SOTA, so nothing was compared" in capsys.readouterr().err


def test_the_time_limit_stops_after_a_row_and_resume_goes_on(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["--arm", "fast,slow", "--shape", "E=2,M=6,N=16,K=8,dist=balanced"]

    assert cli(*run(*rows, "--time-limit", "0.000001s")) == 0
    out = capsys.readouterr().out
    assert "stopped after 1 rows: --time-limit is over; go on with the same command, --resume reports/r.json for" in out
    first = runfile.load(Path("reports/r.json"))

    assert cli(*run(*rows, "--resume", "reports/r.json")) == 0
    whole = runfile.load(Path("reports/r.json"))
    # What it took is said of this command's rows alone.
    assert took(cost(with_rows(whole)[1:])) in capsys.readouterr().err
    assert len(first.rows) == 1
    assert len(whole.rows) == 2
    assert whole.rows[0] == first.rows[0]
    assert whole.machines == first.machines
    # What each took is kept; a sitting in which there was nothing left to measure is none.
    assert [sitting.rows for sitting in whole.sittings] == [1, 1]
    assert whole.sittings[0] == first.sittings[0]
    assert cli(*run(*rows, "--resume", "reports/r.json")) == 0
    assert runfile.load(Path("reports/r.json")).sittings == whole.sittings


def test_resume_refuses_another_plan(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    cli(*run("--arm", "fast"))

    assert cli(*run("--arm", "fast,slow", "--resume", "reports/r.json")) == 2
    assert "--resume: arms of run r differs from this command's" in capsys.readouterr().err
    other = [word.replace("M=8", "M=9") for word in run("--arm", "fast", "--resume", "reports/r.json")]
    assert cli(*other) == 2
    assert "--resume: planned of run r differs" in capsys.readouterr().err
    assert cli(*run("--arm", "fast", "--resume", "reports/r.json", "--revision", "v2")) == 2
    assert "measures revision v1, this tree is v2" in capsys.readouterr().err
    assert cli(*run("--arm", "fast", "--resume", "reports/r.json", "--seed", "1")) == 2
    assert "--resume: seed of run r differs" in capsys.readouterr().err
    assert cli(*run("--arm", "fast", "--resume", "reports/r.json", "--timer", "cpu")) == 2
    assert "--resume: timer of run r differs" in capsys.readouterr().err


def test_control_c_saves_the_rows_that_are_done(
    cli: RunCli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(call: int, out: torch.Tensor) -> None:
        if call == 20:
            raise KeyboardInterrupt

    arms = iter([FakeArm("fast"), FakeArm("fast", spoil=interrupt)])
    original = FakeArm.prepare
    monkeypatch.setattr(FakeArm, "prepare", lambda self, case, operands: original(next(arms), case, operands))

    code = cli(*run("--arm", "fast", "--groups", "30"), "--shape", "E=2,M=6,N=16,K=8,dist=balanced")

    assert code == 130
    err = capsys.readouterr().err
    assert "are saved; go on with the same command, --resume reports/r.json for --out and --run-id\n" in err
    assert "interrupted" in err
    assert len(runfile.load(Path("reports/r.json")).rows) == 1


def test_dry_run_prints_the_plan_and_measures_nothing(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(*run("--arm", "fast,absent", "--dry-run")) == 0

    out = capsys.readouterr().out
    assert "fwd E3 M8 N16 K8 balanced: fast; about" in out
    assert "1 rows on " in out
    assert not Path("reports").exists()


def test_list_names_arms_with_why_not(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("list", "arms", "--suite", "smoke", "--op", "fwd") == 0

    lines = capsys.readouterr().out.splitlines()
    assert "fast: can do 4 of 4 rows of smoke" in lines
    assert "absent: cannot do 4 of 4 rows of smoke: needs a GPU" in lines


def run_of_each_profile_line(cli: RunCli, capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    """Return the ``cake-bench run`` of each line, which must find one row and one arm."""
    assert cli("list", "profile", *words) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    runs = [line[line.index("cake-bench") + 1 :] for line in lines]
    for words_of_run in runs:
        assert cli(*words_of_run, "--device", "cpu") == 2
        # Of several rows or arms it would say that instead.
        assert "--profile is for ncu and nsys, which need a CUDA device" in capsys.readouterr().err
    return runs


@pytest.mark.parametrize("words", [("--dry-run",), ("--resume", "reports/r.json")], ids=lambda words: words[0])
def test_one_call_for_a_profiler_is_no_plan_and_goes_on_with_no_run(
    words: tuple[str, ...], cli: RunCli, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(*run("--arm", "fast", "--profile", *words)) == 2
    assert f"{words[0]} does not apply to --profile; leave it out" in capsys.readouterr().err


def test_list_profile_prints_the_shape_that_each_row_was_given_as(
    cli: RunCli, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = "E=2,M=6,N=16,K=8,dist=balanced,name=it's small"

    first, second = run_of_each_profile_line(
        cli, capsys, "--shape", odd, "--shape", SHAPE, "--op", "dX", "--arm", "fast"
    )

    of_both = ["--op", "dX", "--arm", "fast", "--profile"]
    assert first == ["run", "--shape", odd, *of_both[:2], "--case", "dX it's small", *of_both[2:]]
    assert second == ["run", "--shape", SHAPE, *of_both[:2], "--case", "dX E3 M8 N16 K8 balanced", *of_both[2:]]


def test_list_profile_keeps_the_file_that_a_suite_is_in(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    Path("my shapes.yaml").write_bytes(data("shapes.yaml").read_bytes())
    suite = ["--shapes", "my shapes.yaml", "--suite", "smoke"]

    (found,) = run_of_each_profile_line(
        cli, capsys, *suite, "--op", "dX", "--case", "gate_up E5 M777 bal", "--arm", "fast"
    )

    assert found[:5] == ["run", *suite]


def test_list_names_everything(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("list") == 0

    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if not line.startswith(" ")] == [
        "suites:",
        "arms:",
        "timers:",
        "programs:",
    ]
    assert "moe-training: 164 rows (fwd 32, dX 32, dW 36, ckpt 32, ckpt ES 32)" in out
    assert cli("list", "cases", "--suite", "moe-training", "--op", "dW", "--case", "*skew asc*") == 0
    assert (
        capsys.readouterr().out.splitlines()[0].startswith("moe-training: dW gate_up E4 M112576 skew asc (E=4 M=112576")
    )


def test_an_internal_error_gives_two_never_one(
    cli: RunCli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arm_files, "names", lambda: 1 / 0)

    assert cli("list", "arms") == 2
    assert "this is a defect of cake-bench" in capsys.readouterr().err


def test_a_report_goes_to_a_file(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    cli(*run("--arm", "fast,slow"))
    capsys.readouterr()

    assert cli("report", "-o", "table.md", "reports/r.json") == 0
    assert capsys.readouterr().out == ""
    assert "E3 M8 N16 K8 balanced" in Path("table.md").read_text()
    assert cli("report", "-o", "none/table.md", "reports/r.json") == 2


def test_the_cost_of_a_run_says_what_share_counts() -> None:
    of = Cost(rows=2, elapsed_ns=12_000_000_000, counted_ns=6_000_000_000, busy=False)

    assert took(of) == "took 12 s, 50% of it in calls that count"
    assert took(cost([])) == "took 0 s, 0% of it in calls that count"


def test_the_cost_of_a_run_on_a_gpu_says_how_long_it_was_busy() -> None:
    of = Cost(rows=2, elapsed_ns=12_000_000_000, counted_ns=6_000_000_000, busy=True)

    assert took(of) == "took 12 s; the GPU was busy with calls that count 50% of it"
