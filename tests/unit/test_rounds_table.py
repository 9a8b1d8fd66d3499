"""The table of rounds: each number against one worked out by hand or by counting, and the pages byte for byte."""

import csv
import io
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ExitCode, NothingMeasured
from harness.pages.rounds import csv as csv_page
from harness.pages.rounds import json as json_page
from harness.pages.rounds import markdown
from harness.pages.rounds.summary import exit_code, lag1, round_value, summarise
from harness.rounds import file
from harness.rounds.model import Mode, Role, Round, RoundsRun, Timing
from tests.bench import small_case
from tests.unit.test_rounds_file import plan_of, round_of, run_of, small_run

GOLDEN = Path(__file__).parents[1] / "golden" / "rounds"
PAGES = {"md": markdown.render_page, "json": json_page.render_page, "csv": csv_page.render_page}


def with_values(baseline: list[int], new: list[int], *, order: str = "halves") -> RoundsRun:
    """One case, one mode, one rank, one iteration: a round's value is the number given."""
    plan = plan_of(modes=("pre-sleep",), rounds=len(new), iterations=1, ranks=1, order=order)
    values = {"baseline": baseline, "new": new}
    return run_of(plan, tuple(round_of(plan, i, lambda r, c, m, role, k, _: values[role][r]) for i in range(len(new))))


def timing(*span_ns: int, reason: str = "") -> Timing:
    status = "failed" if reason else "measured"
    return Timing(case=0, mode="pre-sleep", role="new", status=status, reason=reason, span_ns=span_ns)  # type: ignore[arg-type]


def test_a_rounds_value_is_the_slowest_ranks_median() -> None:
    assert round_value([timing(10, 11, 99), timing(30, 1, 20), timing(19, 19, 19)]) == 20
    assert round_value([timing(10, 13)]) == 11.5


def test_a_rank_without_a_time_leaves_the_round_without_a_value() -> None:
    assert round_value([timing(10, 11, 99), timing(reason="wrong")]) is None


def test_a_cell_shows_medians_over_rounds_and_their_quotient() -> None:
    (cell,) = summarise(with_values([200, 400, 300, 500], [100, 100, 300, 200])).cells

    assert (cell.all.baseline_ns, cell.all.new_ns, cell.all.n) == (350, 150, 4)
    assert cell.all.speedup == 350 / 150
    first, second = cell.by_order["baseline"], cell.by_order["new"]
    assert (first.n, first.baseline_ns, first.new_ns, first.speedup) == (2, 300, 100, 3)
    assert (second.n, second.baseline_ns, second.new_ns, second.speedup) == (2, 400, 250, 1.6)


def test_p_is_the_share_of_all_assignments_that_look_at_least_as_much_as_if_new_were_faster() -> None:
    baseline, new = [210, 190, 230, 205, 190, 240], [180, 190, 200, 185, 215, 170]
    (cell,) = summarise(with_values(baseline, new)).cells
    assert cell.tests is not None

    def pairs(faster: list[int], slower: list[int]) -> float:
        return sum((a < b) + 0.5 * (a == b) for a in faster for b in slower)

    pooled, seen = baseline + new, pairs(new, baseline)
    splits = [set(chosen) for chosen in itertools.combinations(range(12), 6)]
    as_much = sum(pairs([pooled[i] for i in s], [pooled[i] for i in range(12) if i not in s]) >= seen for s in splits)
    assert cell.tests.p == pytest.approx(as_much / len(splits), rel=1e-12)


def test_the_signed_rank_pairs_the_arms_of_a_round() -> None:
    # new is 1 ns faster in every round, while the rounds drift by far more: only the pairs show it
    baseline = [1000, 2000, 4000, 8000, 16000, 32000]
    (cell,) = summarise(with_values(baseline, [b - 1 for b in baseline])).cells
    assert cell.tests is not None

    assert cell.tests.p_signed_rank == cell.tests.min_p_signed_rank == 1 / 2**6
    assert cell.tests.p > 0.3


def test_32_v_32_reach_the_published_smallest_p() -> None:
    (cell,) = summarise(with_values(list(range(1032, 1064)), list(range(1000, 1032)))).cells
    assert cell.tests is not None

    assert cell.tests.p == cell.tests.min_p == pytest.approx(5.46e-19, rel=1e-3, abs=0)
    assert cell.tests.p_signed_rank == 1 / 2**32


def test_swapping_the_arms_turns_a_small_p_into_a_large_one() -> None:
    fast, slow = [100, 101, 102, 103], [110, 111, 112, 113]
    (faster,), (slower,) = (summarise(with_values(*sides)).cells for sides in ((slow, fast), (fast, slow)))
    assert faster.tests is not None
    assert slower.tests is not None

    assert (faster.tests.p, slower.tests.p) == (1 / 70, 1.0)


def test_holm_counts_the_cells_of_the_table() -> None:
    table = summarise(golden_run())
    p = sorted(cell.tests.p for cell in table.cells if cell.tests)
    adjusted = sorted(cell.tests.p_holm for cell in table.cells if cell.tests)

    assert adjusted[0] == pytest.approx(min(1, p[0] * len(p)), abs=0)
    assert all(a >= b for a, b in zip(adjusted, p, strict=True))


def test_lag1_of_a_saw_and_of_a_drift() -> None:
    # d = -1, 1, -1, 1: (-1 - 1 - 1) / 4; d = -1.5, -.5, .5, 1.5: (.75 - .25 + .75) / 5
    assert lag1(dict(enumerate([1, 3, 1, 3]))) == -0.75
    assert lag1(dict(enumerate([1, 2, 3, 4]))) == 0.25
    assert lag1({0: 1, 1: 2}) is None
    assert lag1({0: 2, 1: 2, 2: 2}) is None


def test_only_rounds_that_follow_one_another_are_neighbours() -> None:
    assert lag1({0: 1, 2: 3, 4: 1, 6: 3}) == 0


@given(st.lists(st.integers(1, 10**9), min_size=3, max_size=40), st.integers(1, 1000))
def test_lag1_lies_within_one_and_has_no_unit(values: list[int], unit: int) -> None:
    found = lag1(dict(enumerate(values)))
    scaled = lag1({i: unit * v for i, v in enumerate(values)})

    assert (found is None) == (scaled is None)
    if found is not None and scaled is not None:
        assert -1 <= found <= 1
        assert scaled == pytest.approx(found, abs=1e-9)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1, max_size=20))
def test_a_tables_numbers_do_not_depend_on_the_order_in_which_attempts_stand(values: list[tuple[int, int]]) -> None:
    both = values + values  # an even number
    run = with_values([b for b, _ in both], [n for _, n in both], order="abba")

    assert summarise(run).cells == summarise(run.model_copy(update={"rounds": run.rounds[::-1]})).cells


def failed(index: int, reason: str = "rank 1 died", first: Role = "baseline") -> Round:
    return Round(index=index, first=first, failure=reason, failed_ranks=(1,), reports=())


def test_a_round_that_failed_is_named_and_gives_5() -> None:
    run = small_run()
    table = summarise(run.model_copy(update={"rounds": (*run.rounds[:3], failed(3))}))

    assert exit_code(table) == ExitCode.FAILED_ROWS
    assert "- round 3: rank 1 died\n" in markdown.render_page(table)
    assert table.cells[0].all.n == 3


def test_a_round_that_was_made_good_is_named_and_gives_0() -> None:
    run = small_run()
    table = summarise(run.model_copy(update={"rounds": (failed(1), *run.rounds)}))

    assert exit_code(table) == ExitCode.OK
    assert "- round 1: rank 1 died; measured again\n" in markdown.render_page(table)


def without_new(run: RoundsRun, status: str, reason: str) -> RoundsRun:
    def other(timing: Timing) -> Timing:
        if timing.role == "baseline":
            return timing
        return timing.model_copy(update={"status": status, "reason": reason, "span_ns": ()})

    rounds = [
        r.model_copy(
            update={
                "reports": tuple(
                    report.model_copy(update={"timings": tuple(map(other, report.timings))}) for report in r.reports
                )
            }
        )
        for r in run.rounds
    ]
    return run.model_copy(update={"rounds": tuple(rounds)})


def test_a_wrong_arm_has_no_time_and_gives_5() -> None:
    table = summarise(without_new(small_run(), "failed", "wrong: rel L2 0.5 is above 0.002"))

    assert exit_code(table) == ExitCode.FAILED_ROWS
    assert [cell.all.n for cell in table.cells] == [0, 0]
    page = markdown.render_page(table)
    assert "| fwd tiny | Pre-sleep | - | - | - | - |" in page
    assert "4 x torch_grouped_mm (new): failed: wrong: rel L2 0.5 is above 0.002" in page


def test_an_arm_that_cannot_do_the_case_gives_nothing_measured() -> None:
    table = summarise(without_new(small_run(), "unsupported", "needs a GPU"))

    with pytest.raises(NothingMeasured, match="unsupported: needs a GPU"):
        exit_code(table)


def golden_run() -> RoundsRun:
    """Two cases, two modes, 32 rounds, 2 ranks: drift, a round that failed, one made good, an arm without a cell."""
    draw = random.Random(7)
    cases = (small_case(name="E3 tiny"), small_case(op="dW", name="E3 | tiny", out_dtype="fp32"))
    plan = plan_of(cases=cases, rounds=32, iterations=5, order="abba")
    speedups = {(0, "pre-sleep"): 1.08, (0, "back-to-back"): 1.03, (1, "pre-sleep"): 1.0, (1, "back-to-back"): 0.97}

    def span_ns(index: int, case: int, mode: Mode, role: Role, rank: int, _: int) -> int:
        middle = 700_000 * (1 + 0.001 * index) * (1 + 0.01 * rank) * (1.1 if mode == "back-to-back" else 1)
        return round(middle / (speedups[case, mode] if role == "new" else 1) * draw.gauss(1, 0.02))

    rounds = [round_of(plan, index, span_ns) for index in range(32)]
    gone = failed(20, "rank 1 died without a word while timing new of 'fwd E3 tiny' in round 20", rounds[20].first)
    hung = failed(9, "rank 0 hung: no report within 60 s; it was timing new", rounds[9].first)
    rounds[20:21] = [gone]
    rounds[9:9] = [hung]
    reports = rounds[3].reports
    wrong = (
        reports[1]
        .timings[5]
        .model_copy(update={"status": "failed", "reason": "left 4 elements unwritten or not a number", "span_ns": ()})
    )
    timings = (*reports[1].timings[:5], wrong, *reports[1].timings[6:])
    rounds[3] = rounds[3].model_copy(
        update={"reports": (reports[0], reports[1].model_copy(update={"timings": timings}))}
    )
    return run_of(plan, tuple(rounds))


@pytest.mark.parametrize("form", PAGES)
def test_a_stored_run_gives_the_stored_page_byte_for_byte(form: str) -> None:
    stored, path = GOLDEN / "rounds.run.json", GOLDEN / f"rounds.{form}"
    if os.environ.get("GOLDEN_WRITE"):
        file.save(golden_run(), stored)
        path.write_text(PAGES[form](summarise(file.load(stored))), encoding="utf-8", newline="\n")

    assert file.load(stored) == golden_run()
    assert PAGES[form](summarise(file.load(stored))).encode() == path.read_bytes()


def test_all_pages_hold_the_same_numbers() -> None:
    table = summarise(golden_run())
    lines = list(csv.DictReader(io.StringIO(csv_page.render_page(table))))
    cells = json.loads(json_page.render_page(table))["cells"]
    shown = [line.split(" | ") for line in markdown.render_page(table).splitlines() if "-sleep |" in line]

    assert [float(line["speedup"]) for line in lines] == [cell["speedup"] for cell in cells]
    assert [float(line["p"]) for line in lines] == [cell["p"] for cell in cells]
    assert shown[0][4] == f"{cells[0]['speedup']:.3f}x"
    assert [cell["n"] for cell in cells] == [31, 31, 30, 31]


def test_the_golden_runs_medians_are_those_of_the_statistics_module() -> None:
    run = golden_run()
    values = {"baseline": [], "new": []}
    for played in (r for r in run.rounds if not r.failure):
        for role, seen in values.items():
            here = [
                statistics.median(t.span_ns)
                for report in played.reports
                for t in report.timings
                if (t.case, t.mode, t.role) == (0, "pre-sleep", role)
            ]
            seen.append(max(here))
    cell = summarise(run).cells[0]

    assert cell.all.baseline_ns == statistics.median(values["baseline"])
    assert cell.all.new_ns == statistics.median(values["new"])


BLOCK = """
import sys
for name in ("torch", "cupti", "cake_kernels", "pynvml"):
    sys.modules[name] = None
from harness.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_report_needs_no_torch() -> None:
    words = ["rounds", "report", str(GOLDEN / "rounds.run.json")]

    done = subprocess.run([sys.executable, "-c", BLOCK, *words], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (5, b"")
    assert done.stdout == (GOLDEN / "rounds.md").read_bytes()
