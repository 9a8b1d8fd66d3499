"""``cake-bench compare``: forms, options, exit codes, and measuring two revisions now."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness import arms as arm_files
from harness import runfile
from harness.cli import compare as compare_command
from harness.cli import main
from harness.cli import run as run_command
from harness.compare.comparison import ComparedRow, Comparison, Limits, Revision, RowId, Verdict
from harness.errors import NothingMeasured
from tests import tiny_kernels
from tests.bench import FakeArm
from tests.unit.report_runs import H200, case, row, run
from tests.unit.test_compare_pages import stored

BOTH, MONDAY, TUESDAY = (str(stored(name)) for name in ("both", "monday", "tuesday"))
SIDE = Revision(run_id="r", revision="a", sources_sha256="")


def comparison(*verdicts: Verdict, matched: int = 1) -> Comparison:
    ids = [RowId(regime="boost", suite="s", op="fwd", name=str(i), arm="cake_det") for i in range(len(verdicts))]
    rows = [ComparedRow(id=of, verdict=v, reason="effect") for of, v in zip(ids, verdicts, strict=True)]
    return Comparison(
        form="stored", base=SIDE, head=SIDE, products=(), timers=(), limits=Limits(), rows=tuple(rows), matched=matched
    )


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (("same",), 0),
        (("faster", "unclear", "new"), 0),
        (("slower", "failed", "missing", "not comparable", "same"), 1),
        (("failed", "not comparable", "same"), 5),
        (("missing", "not comparable"), 5),
        (("not comparable", "same"), 4),
        (("not comparable",), 4),
    ],
)
def test_of_several_exit_codes_the_order_of_the_contract_decides(verdicts: Sequence[Verdict], code: int) -> None:
    assert compare_command.exit_code(comparison(*verdicts)) == code


@pytest.mark.parametrize(("verdicts", "matched"), [((), 0), (("new", "missing"), 0), (("unclear",), 1), (("new",), 1)])
def test_what_was_not_compared_is_not_green(verdicts: Sequence[Verdict], matched: int) -> None:
    # tpogden/maxwellbloch#242 and askdba/myvector#114: a first run, with nothing before it.
    with pytest.raises(NothingMeasured, match="nothing compared"):
        compare_command.exit_code(comparison(*verdicts, matched=matched))


@pytest.mark.parametrize(("verdict", "code"), [("missing", 5), ("failed", 5)])
def test_a_revision_that_has_lost_every_row_is_no_absent_comparison(verdict: Verdict, code: int) -> None:
    interleaved = replace(comparison(verdict, matched=0), form="interleaved")

    assert compare_command.exit_code(interleaved) == code


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((BOTH,), 1, "both sides in the same groups"),
        ((BOTH, BOTH), 1, "both sides in the same groups"),
        ((MONDAY, TUESDAY), 1, "two stored runs"),
        ((TUESDAY, MONDAY), 5, "▼ faster"),
        ((MONDAY, TUESDAY, "--floor", "0.5"), 5, "floor 50.00 %"),
        ((MONDAY, TUESDAY, "--allow", "driver", "--against", "cublas_loop"), 1, "over cublas_loop"),
        ((BOTH, "--q", "1e-9"), 5, "cannot-reach"),
        ((BOTH, "--format", "json"), 1, '"verdict": "slower"'),
        ((BOTH, "--format", "csv"), 1, '"slower","▲","effect"'),
    ],
)
def test_both_forms_print_a_page_and_give_the_code(
    capsys: pytest.CaptureFixture[str], words: Sequence[str], code: int, said: str
) -> None:
    assert main(["compare", *words]) == code
    assert said in capsys.readouterr().out


def test_the_page_can_go_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", BOTH, "-o", str(tmp_path / "page.md")]) == 1

    assert (tmp_path / "page.md").read_bytes() == stored("both").with_name("interleaved.md").read_bytes()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((BOTH, MONDAY, TUESDAY), "compare takes one run file, or BASE and HEAD, got 3"),
        (("no-such.json",), "no-such.json cannot be read"),
        ((BOTH, "--against", "cublas_loop"), "--against is for two stored runs"),
        ((BOTH, "--allow", "driver"), "--allow is for two stored runs"),
        ((BOTH, "--allow", "weather"), "'weather' is not one of 'product'"),
        ((BOTH, "-o", BOTH), "is one of the run files; choose another name"),
        ((MONDAY, TUESDAY, "--arm", "quack"), "arm of --arm 'quack' is not known"),
        ((BOTH, "--arm", "cake_nondet", "--arm", "nonsense"), "arm 'nonsense' is not known; known: "),
        ((BOTH, "--q", "nan"), "--q must be a number, got nan"),
        ((BOTH, "--floor", "nan"), "--floor must be a number, got nan"),
        ((BOTH, "-o", "no-such-folder/page.md"), "--output no-such-folder/page.md: the folder must exist"),
    ],
)
def test_what_is_wrong_gives_two_and_a_message(
    capsys: pytest.CaptureFixture[str], words: Sequence[str], message: str
) -> None:
    assert main(["compare", *words]) == 2
    assert message in capsys.readouterr().err


def test_two_states_of_one_run_are_no_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = runfile.load(stored("both"))
    runfile.save(replace(whole, rows=whole.rows[:3]), tmp_path / "other.json")

    assert main(["compare", BOTH, str(tmp_path / "other.json")]) == 2
    assert "and differ: one is a later state of the other; give two runs" in capsys.readouterr().err


def test_two_nights_of_one_name_are_compared_and_named_by_their_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / name / "nightly.json" for name in ("monday", "tuesday")]
    for path, hour in zip(paths, "12", strict=True):
        path.parent.mkdir()
        begun = f"2026-02-0{hour}T08:00:00Z"
        runfile.save(replace(runfile.load(stored(path.parent.name)), run_id="nightly", started=begun), path)

    assert main(["compare", *map(str, paths)]) == 1
    line = f"- BASE run nightly ({paths[0]}), HEAD run nightly ({paths[1]}): each over one baseline in its own run"
    assert line in capsys.readouterr().out.replace("\\", "").replace("&#8203;", "")
    assert main(["compare", *map(str, paths), "--format", "json"]) == 1
    page = json.loads(capsys.readouterr().out)
    assert (page["base"]["file"], page["head"]["file"]) == (str(paths[0]), str(paths[1]))


def test_a_run_of_one_revision_gives_three(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", MONDAY]) == 3
    assert "holds no two revisions" in capsys.readouterr().err


def test_renamed_rows_give_three_and_both_sets_of_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # jimhester/libvroom#578, vercel/workflow#1034, bencherdev/bencher#71: every row renamed.
    arms = ("cake_det", "torch_grouped_mm")
    for name in ("old", "new"):
        spans = dict.fromkeys(arms, (8_000_000,) * 6)
        runfile.save(run(row(case(f"{name} name"), spans), arms=arms, run_id=name), tmp_path / f"{name}.json")

    assert main(["compare", str(tmp_path / "old.json"), str(tmp_path / "new.json")]) == 3
    said = capsys.readouterr()
    assert "- BASE has: dW old name\n- HEAD has: dW new name" in said.out
    assert "nothing compared: no row has a time under one name on both sides" in said.err


def test_another_driver_gives_four(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # NVIDIA/nvbench#297.
    arms = ("cake_det", "torch_grouped_mm")
    for driver in ("580.1", "590.2"):
        machine = replace(H200, versions={**H200.versions, "driver": driver})
        measured = row(case(), dict.fromkeys(arms, (8_000_000,) * 6))
        runfile.save(run(measured, arms=arms, run_id=driver, machines=[machine]), tmp_path / f"{driver}.json")

    assert main(["compare", str(tmp_path / "580.1.json"), str(tmp_path / "590.2.json")]) == 4
    assert "driver 580.1 → 590.2" in capsys.readouterr().out


BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "cupti", "cake_kernels", "pynvml"):
            raise ImportError(name)
sys.meta_path.insert(0, Block())
from harness.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_stored_runs_need_neither_torch_nor_a_gpu() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCK, "compare", BOTH], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout == stored("both").with_name("interleaved.md").read_bytes()


# --measure: what follows -- goes to cake-bench run

RunCli = Callable[..., int]
SCRIPT = {"cake_det": [5000 + 10 * i for i in range(36)], "previous_det": [6000 + 10 * i for i in range(36)]}


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunCli]:
    """``cake-bench`` where ``old/`` is a previous revision whose kernel of dX differs; ours is a fake ``cake_det``."""
    load = arm_files.load
    fake = FakeArm("cake_det")
    monkeypatch.setattr(arm_files, "load", lambda name: fake if name == "cake_det" else load(name))
    tiny_kernels.write(tmp_path / "site", package="tiny_now")
    monkeypatch.syspath_prepend(tmp_path / "site")
    now = tiny_kernels.kernels(tmp_path / "site", "tiny_now")
    monkeypatch.setattr(run_command, "current", lambda revision: replace(now, revision=revision))
    tiny_kernels.write(tmp_path / "old", {"cuda/dgrad.cu": "void dgrad_tiny(int) {}\n"})
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    monkeypatch.chdir(tmp_path)
    yield lambda *words: main([*words])
    for name in [name for name in sys.modules if name.partition(".")[0] == "tiny_now"]:
        del sys.modules[name]


def measure(*words: str, form: str = "json") -> list[str]:
    return [
        "compare", "--measure", "--format", form, "old", "--", "--device", "cpu", "--timer", "scripted:script.json",
        "--revision", "new", "--shape", "E=3,M=8,N=16,K=8,dist=balanced",
        "--arm", "cake_det,previous_det", *words,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ops", "code", "rows"),
    [
        # The kernel of dX differs; that of fwd is a control, and the script gives it the same 18 %.
        ("dX", 0, [("dX", False, "faster", "effect")]),
        ("fwd,dX", 3, [("dX", False, "unclear", "lane-moved"), ("fwd", True, "unclear", "lane-moved")]),
    ],
)
def test_two_revisions_are_measured_in_twelve_groups_and_compared(
    cli: RunCli, capsys: pytest.CaptureFixture[str], ops: str, code: int, rows: list[tuple[str, bool, str, str]]
) -> None:
    assert cli(*measure("--op", ops)) == code

    said = capsys.readouterr()
    (path,) = Path("reports").glob("compare-*.json")
    assert runfile.load(path).groups == 12
    found = json.loads(said.out)["rows"]
    assert [(r["op"], r["control"], r["verdict"], r["reason"]) for r in found] == rows
    assert {(r["n_base"], r["n_head"]) for r in found} == {(12, 12)}
    assert "rows measured" in said.err


def test_the_folder_the_name_and_a_resumed_run_are_found(cli: RunCli) -> None:
    assert cli(*measure("--op", "dX", "--out", "here", "--run-id", "mine")) == 0
    assert cli(*measure("--op", "dX", "--resume", "here/mine.json")) == 0

    assert [str(path) for path in Path().rglob("mine.json")] == ["here/mine.json"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--groups", "6"), "--groups must be 12 to 100 for compare --measure, got 6"),
        (("--groups", "101"), "--groups must be 12 to 100 for compare --measure, got 101"),
        (("--previous", "elsewhere"), "--previous must be left out with compare --measure"),
        (("--dry-run",), "--dry-run does not go with compare --measure"),
        (("--profile",), "--profile does not go with compare --measure"),
        (("--fail-below", "0.9"), "--fail-below does not go with compare --measure"),
        (("--no-such",), "No such option"),
    ],
)
def test_a_measurement_that_cannot_be_compared_is_refused(
    cli: RunCli, capsys: pytest.CaptureFixture[str], words: Sequence[str], message: str
) -> None:
    assert cli(*measure(*words)) == 2
    assert message in capsys.readouterr().err
    assert not Path("reports").exists()
