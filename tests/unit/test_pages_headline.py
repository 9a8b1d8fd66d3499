"""What the head of the page claims, and what it forbids to conclude."""

import json

import pytest

from harness.model.report import SOTA, Report
from harness.model.run import Row
from harness.pages import json as json_page
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from tests.unit.report_runs import case, row, run

NEW, T, C, Q = "cake_nondet", "torch_grouped_mm", "cublas_loop", "quack"
MS = 1_000_000
WIDE = (0.99, 1.01, 0.995, 1.005, 0.998, 1.002)
"""Six ratios with a spread of 2 %."""


def rated(name: str, ratio: float, *, around: tuple[float, ...] = WIDE, **more: str) -> Row:
    """A row whose baseline takes ``ratio`` times as long as new, give or take ``around``."""
    spans = {NEW: [4 * MS] * len(around), T: [round(4 * MS * ratio * off) for off in around]}
    regime = more.pop("regime", "boost")
    return row(case(name, **more), spans, regime=regime)  # type: ignore[arg-type]


def page(*rows: Row, arms: tuple[str, ...] = (NEW, T, C)) -> str:
    return render_page(summarise([run(*rows, arms=arms)]))


def test_a_row_that_is_above_one_is_not_called_faster_and_wholly_above_is_counted_apart() -> None:
    made = page(rated("clear", 1.05), rated("near", 1.002), rated("low", 0.95))

    assert (
        "**SOTA / cake_nondet is above 1.0 in 2 of 3 rows, wholly above in 1**; below in 1, wholly below in 1 (chance"
        " gives 1.5 and 0.05 on each side); geomean 1.000 (dW owner); median spread 2.00 %.\n"
    ) in made
    assert "faster than" not in made


def test_a_spread_larger_than_the_effect_is_a_bold_warning_that_names_the_geomeans() -> None:
    made = page(rated("a", 1.01), rated("b", 1.05, op="fwd"))

    assert (
        "**The spread is larger than the effect in 1 of 2 geomeans: dW owner 1.00 % from 1.0, spread 2.00 %.**\n"
        in made
    )


def test_an_effect_larger_than_the_spread_gives_no_warning_on_either_side_of_one() -> None:
    assert "larger than the effect" not in page(rated("a", 1.03), rated("b", 0.97, op="fwd"))


def test_the_effect_of_a_ratio_and_of_its_reciprocal_is_the_same() -> None:
    (above,) = summarise([run(rated("a", 2.0))]).geomeans
    (below,) = summarise([run(rated("a", 0.5))]).geomeans

    assert (above.effect, below.effect) == (pytest.approx(1.0), pytest.approx(1.0))


def test_on_a_noisy_machine_the_page_says_that_nothing_can_be_concluded() -> None:
    wild = (0.4, 3.0, 0.5, 2.0, 0.8, 1.25)

    made = page(rated("a", 1.1, around=wild), rated("b", 0.9, around=wild))

    assert (
        "**Nothing can be concluded: the groups of one row lie 254 % apart (median spread), more than any geomean lies"
        " from 1.0.**\n"
    ) in made
    assert "median spread 254 %." in made


def test_a_tenfold_difference_stands_even_where_groups_scatter() -> None:
    assert "Nothing can be concluded" not in page(rated("a", 10, around=(0.5, 1.0, 1.5, 0.9, 1.1, 1.0)))


def test_without_five_groups_a_row_the_head_says_that_the_spread_is_not_known() -> None:
    made = page(rated("a", 1.5, around=(1.0, 1.0, 1.0, 1.0)))

    assert "**No row has five groups: the spread is not known, nor how sure this is.**\n" in made


def test_rows_that_are_all_host_bound_are_not_called_rows_without_a_time() -> None:
    bound = row(case(), {NEW: [4 * MS], C: [5 * MS]}, busy={NEW: [4 * MS], C: [1 * MS]})

    made = page(bound)

    assert (
        "**Nothing is compared: whatever has a ratio (1 row) is host-bound, so that the host made the times.**" in made
    )
    assert "## Geomeans" not in made


# New is one of t, c, d


def of_baselines(new: str) -> Report:
    return summarise([run(row(case(), {T: [4 * MS] * 6, C: [5 * MS] * 6, Q: [6 * MS] * 6}), arms=(T, C, Q))], new=new)


def test_where_new_is_one_of_t_c_d_no_column_is_called_sota_or_best_known() -> None:
    made = render_page(of_baselines(T))

    assert "# Grouped GEMM: torch_grouped_mm against fastest other of t, c, d\n" in made
    assert "**fastest other of t, c, d / torch_grouped_mm is above 1.0 in 1 of 1 row" in made
    assert "| fastest other of t, c, d / torch_grouped_mm | fastest other baseline / torch_grouped_mm |" in made
    assert "- **fastest other of t, c, d**: in each row the fastest of cublas_loop (c), cudnn that has a time" in made
    assert (
        "\nNew, torch_grouped_mm, is itself one of t, c, d: the column is the fastest other of them, not SOTA.\n"
        in made
    )
    assert made.count("SOTA") == 1


def test_json_keeps_the_key_sota_and_has_the_note() -> None:
    made = json.loads(json_page.render_page(of_baselines(C)))

    assert "sota" in made["rows"][0]["ratios"]
    assert made["notes"]["sota"].startswith("new, cublas_loop, is itself one of t, c, d")


def test_for_an_arm_of_ours_and_for_quack_sota_is_sota() -> None:
    assert SOTA not in of_baselines(Q).notes
    assert json.loads(json_page.render_page(summarise([run(rated("a", 1.5))])))["notes"] == {}
    assert "# Grouped GEMM: quack against SOTA\n" in render_page(of_baselines(Q))


# Suites


def test_suites_are_never_merged_in_one_geomean() -> None:
    made = summarise([run(rated("a", 2.0), rated("b", 0.5, suite="adhoc"))])

    assert [(g.suite, g.value, g.n, g.expected_n) for g in made.geomeans] == [
        ("adhoc", pytest.approx(0.5), 1, 1),
        ("moe-training", pytest.approx(2.0), 1, 22),
    ]


def test_the_suite_is_a_column_of_the_geomeans_only_where_there_are_several() -> None:
    one, two = page(rated("a", 2.0)), page(rated("a", 2.0), rated("b", 0.5, suite="adhoc"))

    assert "| GPU | regime | operation | rows | count |" in one
    assert "| NVIDIA H200 (sm_90a) | boost | adhoc | dW | owner | 1 of 1 |" in two
    assert "geomeans from 0.500 (adhoc dW owner) to 2.000 (moe-training dW owner)" in two


# Chance


def test_gains_and_regressions_say_what_chance_gives() -> None:
    made = page(rated("clear", 1.05), rated("near", 1.002), rated("low", 0.95), rated("lower", 0.9))

    assert (
        "- Regressions, reported as is: 2 of 4 rows are below 1.0 (chance 2), 2 wholly (chance 0.06): dW lower 0.900"
        " [0.891, 0.909], dW low 0.950 [0.941, 0.960]. Chance alone would put the lowest row at about 0.997.\n"
    ) in made
    assert (
        "- Largest gains: 2 of 4 rows are above 1.0 (chance 2), 1 wholly (chance 0.06): dW clear 1.050 [1.040, 1.060],"
        " dW near 1.002 [0.992, 1.012]. Chance alone would put the highest row at about 1.003.\n"
    ) in made


def test_where_no_row_is_on_a_side_the_furthest_are_named_and_what_chance_gives() -> None:
    assert (
        "- Regressions, reported as is: none of 2 rows is below 1.0 (chance 1); the lowest: dW b 1.400 [1.386,"
        " 1.414], dW a 1.500 [1.485, 1.515]. Chance alone would put the lowest row at about 0.998.\n"
    ) in page(rated("a", 1.5), rated("b", 1.4))


def test_of_many_rows_on_the_other_side_five_are_named() -> None:
    made = page(*(rated(name, 0.9 - n / 100) for n, name in enumerate("abcdefg")))

    assert (
        "- Largest gains: none of 7 rows is above 1.0 (chance 3.5); the highest: dW a 0.900 [0.891, 0.909], dW b 0.890"
        " [0.881, 0.899], dW c 0.880 [0.871, 0.889], dW d 0.870 [0.861, 0.879], dW e 0.860 [0.851, 0.869]. Chance"
    ) in made
    assert made.index("- Largest gains: ") < made.index("- Regressions, reported as is: ")


def test_of_one_row_or_of_rows_under_five_groups_chance_puts_none_furthest() -> None:
    few = (0.9, 1.0, 1.0, 1.1)
    for rows in ([rated("a", 1.5)], [rated("a", 1.5, around=few), rated("b", 1.5, around=few)]):
        made = summarise([run(*rows)])

        assert made.standings[0].chance_high is None
        assert "Chance alone" not in render_page(made)


# Studies


def test_regimes_that_are_studies_have_no_headline_beside_results_and_are_explained() -> None:
    regimes = ("boost", "rotation", "sustained:0.1", "sustained:0.8")
    made = page(*(rated("a", 1.5 - i / 10, regime=regime) for i, regime in enumerate(regimes)))

    assert made.count("**SOTA / cake_nondet is above") == 1
    assert "below they have their geomeans and rows: rotation, sustained:0.1, sustained:0.8.\n" in made
    assert "### SOTA / cake_nondet in rotation" not in made
    assert "*rotation*: a study, no result: " in made
    assert "*sustained:0.1, sustained:0.8*: a study, no result: as sustained, with blocks of that many seconds" in made
    assert "of moe-training, each in boost, rotation, sustained:0.1, sustained:0.8;" in made


def test_studies_stand_side_by_side_a_row_a_line() -> None:
    even = (1.0,) * 6
    made = page(rated("a", 1.5, around=even), rated("a", 1.25, around=even, regime="rotation"))

    assert (
        "## Regimes side by side\n\nSOTA / cake_nondet, ↑ new is faster:\n\n| row | operation | boost | rotation |\n"
        "|---|---|---|---|\n| a | dW | 1.500 [1.500, 1.500] | 1.250 [1.250, 1.250] |\n"
    ) in made
    assert "side by side" not in page(rated("a", 1.5), rated("a", 1.25, regime="sustained"))


def test_a_report_of_studies_alone_has_their_headlines() -> None:
    assert "**SOTA / cake_nondet is above 1.0 in 1 of 1 row" in page(rated("a", 1.5, regime="rotation"))
