from dataclasses import replace

import pytest

from harness.errors import RunFileError, UnknownName, UsageError
from harness.model.report import BEST_KNOWN, SOTA, Geomean, Report
from harness.model.run import SuiteCount
from harness.pages.summary import below, summarise
from tests.unit.report_runs import H200, case, row, run, skipped

NEW, T, C, D = "cake_nondet", "torch_grouped_mm", "cublas_loop", "cudnn"
MS = 1_000_000


def the_geomean(report: Report, *, against: str = SOTA, metric: str = "span") -> Geomean:
    (found,) = [g for g in report.geomeans if (g.against, g.metric) == (against, metric)]
    return found


# Roles


def test_new_is_cake_nondet_where_it_has_a_time() -> None:
    one = row(case(), {"cake_det": [8 * MS], NEW: [8 * MS], T: [9 * MS]})

    assert summarise([run(one, arms=(T, "cake_det", NEW))]).new.name == NEW


def test_new_is_cake_det_where_cake_nondet_never_ran() -> None:
    one = row(case(), {"cake_det": [8 * MS], T: [9 * MS]}, unsupported={NEW: "no program"})

    assert summarise([run(one, arms=(T, NEW, "cake_det"))]).new.name == "cake_det"


def test_new_is_the_first_arm_with_a_time_where_none_of_ours_ran() -> None:
    one = row(case(), {C: [8 * MS], T: [9 * MS]}, unsupported={D: "no program"})

    assert summarise([run(one, arms=(D, C, T))]).new.name == C


def test_sota_is_the_fastest_of_t_c_d_by_median_and_its_ratios_are_that_arms() -> None:
    spans = {NEW: [8 * MS] * 3, T: [9 * MS, 9 * MS, 7 * MS], C: [10 * MS, 8 * MS, 8 * MS]}

    (only,) = summarise([run(row(case(), spans))]).rows

    assert only.sota == C
    assert only.ratio(SOTA) is not None
    assert [getattr(only.ratio(SOTA), name) for name in ("arm", "median", "min", "max", "n")] == [C, 1.0, 1.0, 1.25, 3]


def test_of_two_equally_fast_ones_sota_is_t_before_c_before_d() -> None:
    spans = {NEW: [8 * MS], D: [9 * MS], C: [9 * MS], T: [9 * MS]}
    no_t = {NEW: [8 * MS], D: [9 * MS], C: [9 * MS]}

    first, second = summarise([run(row(case(), spans), row(case("other"), no_t), arms=(NEW, D, C, T))]).rows

    assert (first.sota, second.sota) == (T, C)


def test_the_new_arm_is_never_its_own_baseline() -> None:
    report = summarise([run(row(case(), {T: [8 * MS], C: [9 * MS]}), arms=(T, C))], new=T)

    assert report.rows[0].sota == C
    assert report.rows[0].best_known == C


def test_best_known_is_a_column_only_where_another_baseline_ran() -> None:
    without = run(
        row(case(), {NEW: [8 * MS], T: [9 * MS]}, unsupported={"quack": "not installed"}), arms=(NEW, T, "quack")
    )
    with_it = run(row(case(), {NEW: [8 * MS], T: [9 * MS], "quack": [7 * MS]}), arms=(NEW, T, "quack"))

    assert summarise([without]).columns == (SOTA,)
    assert summarise([with_it]).columns == (SOTA, BEST_KNOWN)
    assert summarise([with_it]).rows[0].best_known == "quack"
    assert summarise([with_it]).rows[0].sota == T


def test_against_adds_a_column_an_arm() -> None:
    one = run(row(case(), {NEW: [8 * MS], T: [10 * MS], C: [9 * MS]}))

    report = summarise([one], against=[T])

    assert report.columns == (SOTA, T)
    assert the_geomean(report, against=T).value == 1.25


def test_an_unknown_arm_is_answered_with_the_known_ones() -> None:
    one = run(row(case(), {NEW: [8 * MS], T: [10 * MS]}))

    for wrong in ({"new": "cake"}, {"against": ["cake"]}):
        with pytest.raises(UnknownName, match="known: cake_nondet, torch_grouped_mm"):
            summarise([one], **wrong)


def test_an_arm_cannot_be_compared_with_itself() -> None:
    with pytest.raises(UsageError, match="another arm than new"):
        summarise([run(row(case(), {NEW: [8 * MS], T: [10 * MS]}))], against=[NEW])


# Geomeans


def test_rows_that_only_one_side_has_are_listed_and_not_in_the_geomean() -> None:
    both = row(case("A"), {NEW: [8 * MS], T: [8 * MS]})
    no_new = row(case("B"), {T: [8 * MS]}, failed={NEW: "out of memory"})

    report = summarise([run(both, no_new)])

    assert the_geomean(report).value == 1.0
    assert (the_geomean(report).n, the_geomean(report).expected_n) == (1, 22)
    (limit,) = report.limits_of("no-ratio")
    assert (limit.reason, [name.case.name for name in limit.rows]) == ("cake_nondet has no time", ["B"])


def test_an_unsupported_baseline_leaves_its_ratio_blank_and_the_others_stand() -> None:
    # pytorch/pytorch#192497: all groups are empty.
    one = row(case(), {NEW: [8 * MS], T: [10 * MS]}, unsupported={D: "every group is empty"})

    (only,) = summarise([run(one, arms=(NEW, T, D))], against=[D]).rows

    assert only.ratio(D) is None
    assert only.ratio(SOTA) is not None


def test_one_impossible_time_cannot_reach_a_geomean() -> None:
    # gpu-mode/reference-kernels#159: one shape took 1e-9 us.
    with pytest.raises(RunFileError, match="must be >= "):
        run(row(case(), {NEW: [1], T: [8 * MS]}))


def test_tflops_count_the_rows_that_exist_and_eight_times_the_peak_is_no_run() -> None:
    # pytorch/ao#2490: 525 TFLOP/s, not 8393.
    of = case("E16 M8192", op="fwd", sizes=(512,) * 16, N=8192, K=5120)

    (only,) = summarise([run(row(of, {NEW: [1_310_000], T: [1_400_000]}))]).rows

    figure = only.figure(NEW)
    assert figure is not None
    assert figure.tflops == pytest.approx(524.6, abs=0.05)
    with pytest.raises(RunFileError, match="the row's FLOPs and bytes need"):
        run(row(of, {NEW: [1_310_000 // 16]}))


def test_a_host_bound_row_is_flagged_and_in_no_geomean() -> None:
    # tile-ai/TileOPs#1891.
    loop = row(case("A"), {NEW: [4 * MS], C: [4_018_000]}, busy={NEW: [4 * MS], C: [18_000]})
    full = row(case("B"), {NEW: [4 * MS], C: [5 * MS]}, busy={NEW: [4 * MS], C: [5 * MS]})

    report = summarise([run(loop, full)])

    assert report.rows[0].host_bound == (C,)
    assert report.rows[1].host_bound == ()
    assert [g.n for g in report.geomeans] == [1, 1]
    assert the_geomean(report).value == 1.25
    (limit,) = report.limits_of("host-bound")
    assert (limit.what, [name.case.name for name in limit.rows]) == (C, ["A"])


def test_an_arm_is_host_bound_where_its_gap_is_more_than_ten_percent_of_its_span() -> None:
    busy_ms = {"at": 4.5, "above": 4.495}

    rows = [
        row(case(name), {NEW: [4 * MS], C: [5 * MS]}, busy={NEW: [4 * MS], C: [round(ms * MS)]})
        for name, ms in busy_ms.items()
    ]

    assert [found.host_bound for found in summarise([run(*rows)]).rows] == [(), (C,)]


def test_a_host_bound_row_is_in_no_standing() -> None:
    loop = row(case(), {NEW: [4 * MS], C: [5 * MS]}, busy={NEW: [4 * MS], C: [4 * MS]})

    assert summarise([run(loop)]).standings == ()


def test_a_row_that_is_host_bound_on_one_card_is_host_bound() -> None:
    full = run(row(case(), {NEW: [4 * MS], C: [5 * MS]}, busy={NEW: [4 * MS], C: [5 * MS]}), run_id="a")
    gap = row(case(), {NEW: [4 * MS], C: [5 * MS]}, busy={NEW: [4 * MS], C: [4 * MS]})
    other = run(gap, run_id="b", machines=[replace(H200, board="bbbbbbbbbbbb")])

    assert summarise([full, other]).rows[0].host_bound == (C,)


def test_a_gap_of_exactly_ten_percent_is_not_host_bound() -> None:
    one = row(case(), {NEW: [4 * MS], C: [4 * MS]}, busy={NEW: [4 * MS], C: [3_600_000]})

    assert summarise([run(one)]).rows[0].host_bound == ()


def test_busy_ratios_stand_beside_span_ratios() -> None:
    one = row(case(), {NEW: [4 * MS], C: [5 * MS]}, busy={NEW: [4 * MS], C: [4_800_000]})

    report = summarise([run(one)])

    assert the_geomean(report, metric="span").value == 1.25
    assert the_geomean(report, metric="busy").value == pytest.approx(1.2)


def test_without_busy_times_there_is_no_busy_geomean() -> None:
    assert [g.metric for g in summarise([run(row(case(), {NEW: [4 * MS], C: [5 * MS]}))]).geomeans] == ["span"]


def test_below_returns_the_sota_geomeans_under_the_limit_of_span_and_busy() -> None:
    one = row(case(), {NEW: [4 * MS], C: [4_200_000]}, busy={NEW: [4 * MS], C: [3_900_000]})

    report = summarise([run(one)], against=[C])

    assert [(g.against, g.metric) for g in below(report, 1.0)] == [(SOTA, "busy")]
    assert below(report, 0.5) == ()
    assert below(report, 0.975) == ()  # the limit itself is not below it


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_below_refuses_a_limit_that_is_no_ratio(limit: float) -> None:
    with pytest.raises(UsageError, match="must be a positive number"):
        below(summarise([run(row(case(), {NEW: [4 * MS]}))]), limit)


# Standings


def test_counts_extremes_and_chance_of_a_column() -> None:
    slow = row(case("slow"), {NEW: [10 * MS] * 6, T: [9 * MS] * 6})
    fast = row(case("fast"), {NEW: [8 * MS] * 6, T: [10 * MS] * 6})
    mixed = row(case("mixed"), {NEW: [8 * MS] * 6, T: [9 * MS] * 5 + [7 * MS]})

    (standing,) = summarise([run(slow, fast, mixed)]).standings

    assert [entry.row.case.name for entry in standing.gains] == ["fast", "mixed"]
    assert [entry.row.case.name for entry in standing.regressions] == ["slow"]
    assert [entry.row.case.name for entry in standing.wholly_above] == ["fast"]
    assert [entry.row.case.name for entry in standing.wholly_below] == ["slow"]
    assert standing.chance == 3 / 64
    assert (standing.above, standing.below) == (2, 1)


def test_lists_name_five_rows_and_counts_count_all() -> None:
    rows = [row(case(f"r{i}"), {NEW: [(10 + i) * MS], T: [9 * MS]}) for i in range(7)]

    (standing,) = summarise([run(*rows)]).standings

    assert standing.below == 7
    assert [entry.row.case.name for entry in standing.regressions] == ["r6", "r5", "r4", "r3", "r2"]


def test_a_row_of_one_group_has_no_spread_and_of_four_no_noise() -> None:
    one = row(case("one"), {NEW: [8 * MS], T: [9 * MS]})
    four = row(case("four"), {NEW: [8 * MS] * 4, T: [9 * MS, 9 * MS, 9 * MS, 10 * MS]})

    report = summarise([run(one, four)])

    spreads = [ratio.spread for each in report.rows for ratio in each.ratios]
    assert spreads == [None, pytest.approx(1 / 9)]
    assert report.standings[0].spread_median is None
    assert report.standings[0].spread_rows == 0


# Several runs


def test_cards_pool_to_the_median_over_cards_with_the_range_over_all_groups() -> None:
    card_a = run(row(case(), {NEW: [4 * MS] * 3, T: [5 * MS, 5 * MS, 6 * MS]}), run_id="a")
    card_b = run(
        row(case(), {NEW: [4 * MS] * 3, T: [4 * MS, 6 * MS, 6 * MS]}),
        run_id="b",
        machines=[replace(H200, board="bbbbbbbbbbbb")],
    )

    report = summarise([card_a, card_b])

    (only,) = report.rows
    (ratio,) = only.ratios
    assert (ratio.median, ratio.min, ratio.max, ratio.n) == (1.375, 1.0, 1.5, 6)
    assert only.cards == 2
    figure = only.figure(T)
    assert figure is not None
    assert figure.span_ns == 5.5 * MS
    assert [e.machine.board for e in report.environments] == ["0123456789ab", "bbbbbbbbbbbb"]
    assert the_geomean(report).expected_n == 22  # one suite counts once


def test_two_runs_on_one_card_are_more_groups_of_that_card() -> None:
    first = run(row(case(), {NEW: [4 * MS], T: [4 * MS]}), run_id="a")
    second = run(row(case(), {NEW: [4 * MS] * 2, T: [6 * MS] * 2}), run_id="b")

    report = summarise([first, second])

    assert report.rows[0].ratios[0].median == 1.5
    assert report.environments[0].run_ids == ("a", "b")


def test_different_models_of_device_are_different_rows() -> None:
    h100 = replace(H200, product="NVIDIA H100", board="bbbbbbbbbbbb", settings={"power limit": "350 W"})
    h200 = run(row(case(), {NEW: [4 * MS], T: [5 * MS]}), run_id="a")
    other = run(row(case(), {NEW: [4 * MS], T: [4 * MS]}), run_id="b", machines=[h100])

    report = summarise([h200, other])

    assert [(g.device, g.value) for g in report.geomeans] == [
        ("NVIDIA H200 (sm_90a)", 1.25),
        ("NVIDIA H100 (sm_90a)", 1.0),
    ]


def test_regimes_are_different_rows_and_sustained_comes_first() -> None:
    boost = row(case(), {NEW: [4 * MS], T: [5 * MS]})
    sustained = row(case(), {NEW: [4 * MS], T: [4 * MS]}, regime="sustained")

    assert [(g.regime, g.value) for g in summarise([run(boost, sustained)]).geomeans] == [
        ("sustained", 1.0),
        ("boost", 1.25),
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"timer": "cupti"}, "timer must be the same, got 'cuda_event' and 'cupti'"),
        ({"method_version": 2}, "method version must be the same, got 1 and 2"),
        ({"revision": "ffffff0 (git)"}, "revision must be the same"),
    ],
)
def test_runs_that_cannot_stand_in_one_number_are_refused(change: dict[str, object], words: str) -> None:
    one = run(row(case(), {NEW: [4 * MS], T: [5 * MS]}), run_id="a")

    with pytest.raises(UsageError, match=words):
        summarise([one, replace(one, run_id="b", **change)])  # type: ignore[arg-type]


def test_the_same_run_twice_is_refused() -> None:
    one = run(row(case(), {NEW: [4 * MS], T: [5 * MS]}))

    with pytest.raises(UsageError, match="given twice"):
        summarise([one, one])


def test_one_name_for_two_cases_is_refused() -> None:
    one = run(row(case(), {NEW: [4 * MS]}), run_id="a")
    other = run(row(case(sizes=(112576, 0, 0, 0)), {NEW: [5 * MS]}), run_id="b")

    with pytest.raises(UsageError, match="one name must be one case"):
        summarise([one, other])


def test_a_suite_that_changed_its_size_is_refused() -> None:
    counts = [SuiteCount(suite="moe-training", op="dW", row_class="owner", count=21)]
    one = run(row(case(), {NEW: [4 * MS]}), run_id="a")
    other = run(row(case(), {NEW: [5 * MS]}), run_id="b", counts=counts)

    with pytest.raises(UsageError, match="22 rows of dW owner in one run and 21"):
        summarise([one, other])


# What has no number


def test_rows_that_lack_an_arm_for_one_reason_are_one_limit() -> None:
    rows = [row(case(f"r{i}"), {NEW: [4 * MS], T: [5 * MS]}, unsupported={D: "no dW"}) for i in range(36)]

    (limit,) = summarise([run(*rows, arms=(NEW, T, D))]).limits_of("unsupported")

    assert (limit.what, limit.reason, len(limit.rows)) == (D, "no dW", 36)


def test_a_skipped_row_is_listed_and_no_row_of_the_table() -> None:
    report = summarise([run(row(case(), {NEW: [4 * MS], T: [5 * MS]}), skipped(case("big"), "does not fit"))])

    assert [r.case.name for r in report.rows] == ["gate_up E4 M112576 bal"]
    assert [(limit.reason, limit.rows[0].case.name) for limit in report.limits_of("skipped")] == [
        ("does not fit", "big")
    ]


def test_planned_rows_that_are_not_there_are_missing() -> None:
    done = row(case(), {NEW: [4 * MS], T: [5 * MS]})
    planned = ["boost/moe-training/dW gate_up E4 M112576 bal", "boost/moe-training/dW late"]

    (missing,) = summarise([run(done, planned=planned)]).missing

    assert (missing.planned, missing.rows) == (2, ("boost/moe-training/dW late",))


def test_a_run_without_a_time_gives_a_report_without_numbers() -> None:
    report = summarise([run(row(case(), {}, unsupported={NEW: "no program", T: "no GPU"}))])

    assert [g.value for g in report.geomeans] == [None]
    assert report.standings == ()


def test_cycles_are_span_times_the_clock_of_that_moment() -> None:
    one = row(case(), {NEW: [4 * MS, 5 * MS, 6 * MS]}, clock={NEW: [1500, 1000, 1000]})

    figure = summarise([run(one)]).rows[0].figure(NEW)

    assert figure is not None
    assert figure.cycles == 6_000_000.0
    assert figure.clock_mhz == 1000
