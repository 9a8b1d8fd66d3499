from dataclasses import replace
from io import StringIO

import pandas as pd
import pytest

from harness.errors import UsageError
from harness.model.report import Report
from harness.model.run import Row
from harness.pages import csv as csv_page
from harness.pages.pr import render_page
from harness.pages.summary import below, summarise
from tests.unit.report_runs import H200, case, row, run

NEW, T, C = "cake_nondet", "torch_grouped_mm", "cublas_loop"
AGAIN, T_AGAIN = f"{NEW} again", f"{T} again"
MS = 1_000_000


def report(*rows: Row, arms: tuple[str, ...] = (NEW, AGAIN, T)) -> Report:
    return summarise([run(*rows, arms=arms, timer="cupti")])


def pair(name: str, again_ns: int, *, regime: str = "boost") -> Row:
    """Six groups in which the arm takes 4 ms, and its twin ``again_ns``."""
    return row(case(name), {NEW: [4 * MS] * 6, AGAIN: [again_ns] * 6, T: [5 * MS] * 6}, regime=regime)


def test_the_ratio_of_a_pair_is_the_arm_over_its_twin_group_by_group() -> None:
    spans = {NEW: [4_000_000, 4_100_000, 4_200_000], AGAIN: [4_000_000, 4_000_000, 4_000_000], T: [5 * MS] * 3}

    (only,) = report(row(case(), spans)).rows

    (ratio,) = only.aa
    assert (ratio.arm, ratio.against) == (NEW, AGAIN)
    assert (ratio.median, ratio.min, ratio.max, ratio.n) == (1.025, 1.0, 1.05, 3)


def test_a_standing_counts_rows_near_one_and_wholly_on_a_side() -> None:
    rows = [pair("even", 4_000_000), pair("slow", 4_012_000), pair("fast", 3_960_000)]

    (aa,) = report(*rows).aa

    assert (aa.arm, aa.twin, aa.rows, aa.limit) == (NEW, AGAIN, 3, 0.005)
    assert (aa.within, aa.wholly_above, aa.wholly_below, aa.chance) == (2, 1, 1, 3 / 64)
    assert aa.value == pytest.approx((4 / 4.012 * 4 / 3.96) ** (1 / 3))
    assert (aa.largest.row.case.name, aa.largest.ratio.median) == ("fast", 4 / 3.96)
    assert aa.p95 == 4 / 3.96 - 1


def test_sustained_has_the_wider_limit_and_regimes_do_not_mix() -> None:
    sustained, boost = report(pair("r", 4_030_000), pair("r", 4_030_000, regime="sustained")).aa

    assert [(aa.regime, aa.limit, aa.within) for aa in (sustained, boost)] == [
        ("sustained", 0.01, 1),
        ("boost", 0.005, 0),
    ]


def test_a_twin_is_never_new_nor_sota_nor_best_known() -> None:
    spans = {T: [5 * MS], T_AGAIN: [4 * MS], C: [6 * MS]}

    made = report(row(case(), spans), arms=(T_AGAIN, T, C))

    assert made.new.name == T
    assert made.rows[0].sota == C
    assert made.rows[0].best_known == C
    assert made.columns == ("sota",)


def test_a_fast_twin_is_in_no_geomean_gain_or_regression() -> None:
    spans = {NEW: [5 * MS], AGAIN: [4 * MS], T: [5 * MS], T_AGAIN: [4 * MS]}

    made = report(row(case(), spans), arms=(NEW, AGAIN, T, T_AGAIN))

    assert [(g.against, g.value) for g in made.geomeans] == [("sota", 1.0)]
    assert [(s.against, s.above, s.below) for s in made.standings] == [("sota", 0, 0)]
    assert below(made, 1.0) == ()
    assert [aa.value for aa in made.aa] == [1.25, 1.25]


def test_a_twin_asked_for_by_name_is_refused_with_the_arm_it_is() -> None:
    made = run(pair("r", 4 * MS), arms=(NEW, AGAIN, T))

    with pytest.raises(UsageError, match="new must be an arm of its own, got 'cake_nondet again', the twin of cake_"):
        summarise([made], new=AGAIN)
    with pytest.raises(UsageError, match="against must be an arm of its own, got 'cake_nondet again'"):
        summarise([made], against=[AGAIN])


def test_a_twin_with_a_gap_makes_no_row_host_bound() -> None:
    spans = {NEW: [4 * MS], AGAIN: [4 * MS], T: [5 * MS]}
    gap = row(case(), spans, busy={NEW: [4 * MS], AGAIN: [3 * MS], T: [5 * MS]})

    assert report(gap).rows[0].host_bound == ()


def test_host_bound_rows_are_in_no_pair() -> None:
    spans = {NEW: [4 * MS], AGAIN: [5 * MS], T: [5 * MS]}
    bound = row(case(), spans, busy={NEW: [4 * MS], AGAIN: [5 * MS], T: [4 * MS]})

    assert report(bound).aa == ()


def test_one_name_for_a_twin_and_an_arm_is_refused() -> None:
    one = run(pair("r", 4 * MS), arms=(NEW, AGAIN, T))
    arms = tuple(replace(arm, twin_of="") for arm in one.arms)

    with pytest.raises(UsageError, match="twin_of must be '', True, 'cake_nondet', got '', True, ''"):
        summarise([one, replace(run(pair("r", 5 * MS), arms=(NEW, AGAIN, T)), run_id="b", arms=arms)])


# The pages


def test_the_page_has_a_noise_floor_a_table_and_the_rows_within_it() -> None:
    page = render_page(report(*(pair(f"r{i}", 4_008_000) for i in range(2))))

    assert (
        "Noise floor, from an arm against itself (A/A): 95 % of its ratios lie within 1.0 ± 0.20 % in boost (2 rows).\n"
    ) in page
    assert (
        "| boost | cake_nondet | 2 | 0.9980 | 2 of 2 within ± 0.5 % (100 %) | 0 / 2 (0.03) | ± 0.20 %"
        " | dW r1 0.998 [0.998, 0.998] |\n"
    ) in page
    assert "- No further from 1.0 than the noise floor, ± 0.20 %: 0 rows.\n" in page


def test_rows_that_the_noise_could_explain_are_counted_and_named() -> None:
    spans = {NEW: [4 * MS] * 6, AGAIN: [4_008_000] * 6}
    lost = row(case("lost"), {**spans, T: [4_004_000] * 6})
    clear = row(case("clear"), {**spans, T: [4_040_000] * 6})
    page = render_page(report(lost, clear))

    assert "- No further from 1.0 than the noise floor, ± 0.20 %: 1 row (dW lost).\n" in page


def test_the_per_row_table_shows_a_pair_only_when_asked() -> None:
    made = report(pair("r", 4_008_000))

    assert "| row | operation | cake_nondet, new (ms) | torch_grouped_mm t (ms) | SOTA |" in render_page(made)
    assert "| 1.250 [1.250, 1.250] | 0.998 [0.998, 0.998] |\n" in render_page(made, columns=["aa"])


def test_a_gpu_run_without_a_pair_says_that_its_noise_is_not_known() -> None:
    cpu = replace(H200, device="cpu")
    one = row(case(), {NEW: [4 * MS], T: [5 * MS]})

    assert "No A/A pair ran" in render_page(summarise([run(one)]))
    assert "A/A" not in render_page(summarise([run(one, machines=[cpu], timer="cpu")]))


def test_csv_has_the_pair_on_the_twins_line_and_no_ratio_to_new() -> None:
    back = pd.read_csv(StringIO(csv_page.render_page(report(pair("r", 3_200_000)))))

    line = back[back["arm"] == AGAIN].iloc[0]
    assert (line["twin_of"], line["aa_median"], line["aa_min"], line["aa_max"]) == (NEW, 1.25, 1.25, 1.25)
    assert pd.isna(line["ratio_median"])
    assert back[back["arm"] == NEW]["aa_median"].isna().all()
