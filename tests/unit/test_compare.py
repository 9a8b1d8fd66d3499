"""What ``cake-bench compare`` says of one run of two revisions: each verdict and reason code, pairing, false alarms."""

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import false_discovery_control, mannwhitneyu

from harness.compare.comparison import ComparedRow, Comparison, Effect, Limits, Reason, RowId, Verdict
from harness.compare.interleaved import compare_interleaved, enough_groups, smallest_p
from harness.compare.judge import HOST_BOUND_GAP, Evidence, judge
from harness.compare.rows import geomeans
from harness.errors import NothingMeasured
from harness.model.case import Case
from harness.model.run import Previous, Row, Run
from harness.pages.summary.rows import HOST_BOUND_GAP as REPORTS_GAP
from harness.stats import minimum_effect
from tests.unit.compare_runs import FAST, LIMITS, OURS, SLOW, THEIRS, named, noisy, one, steps
from tests.unit.report_runs import row, run, skipped

NOW, BEFORE = "1b" * 32, "0a" * 32


def both(*rows: Row, controls: Sequence[Row] = (), arms: Sequence[str] = (OURS, THEIRS)) -> Run:
    made = run(*rows, *controls, arms=arms, run_id="both")
    keys = made.planned[len(rows) :]
    return replace(
        made,
        sources_sha256=NOW,
        previous=Previous(revision="0a1b2c3 (git)", sources_sha256=BEFORE, controls=keys),
    )


def pair(
    of: Case,
    base: Sequence[int],
    head: Sequence[int],
    *,
    clock: Mapping[str, Sequence[int]] | None = None,
    busy: Mapping[str, Sequence[int]] | None = None,
) -> Row:
    return row(of, {OURS: head, THEIRS: base}, clock=clock, busy=busy)


def effect(ratio: float, low: float, high: float) -> Effect:
    return Effect(ratio=ratio, low=low, high=high)


@pytest.mark.parametrize(
    ("evidence", "verdict", "reason"),
    [
        (Evidence(effect=effect(1.05, 1.04, 1.06), confirmed=True), "faster", "effect"),
        (Evidence(effect=effect(0.95, 0.94, 0.96), confirmed=True), "slower", "effect"),
        (Evidence(effect=effect(0.95, 0.94, 0.96), confirmed=True, cycles=0.96), "slower", "effect"),
        (Evidence(effect=effect(1.002, 0.999, 1.005)), "same", "below-floor"),
        (Evidence(effect=effect(1.005, 1.004, 1.006), confirmed=True), "same", "below-floor"),
        (Evidence(effect=effect(1.008, 1.003, 1.013), confirmed=True), "unclear", "below-floor"),
        (Evidence(effect=effect(1.008, 1.003, 1.013)), "unclear", "below-floor"),
        (Evidence(effect=effect(1.008, 0.998, 1.018)), "unclear", "spread"),
        (Evidence(effect=effect(1.014, 1.006, 1.022)), "unclear", "spread"),
        (Evidence(effect=effect(1.03, 0.98, 1.08)), "unclear", "spread"),
        (Evidence(effect=effect(1.05, 1.04, 1.06), noise_known=False), "unclear", "spread"),
        (Evidence(effect=effect(1.05, 1.04, 1.06), confirmed=True, cycles=1.0), "unclear", "clock"),
        (Evidence(effect=effect(0.95, 0.94, 0.96), confirmed=True, cycles=1.01), "unclear", "clock"),
        (
            Evidence(effect=effect(1.05, 1.04, 1.06), confirmed=True, cycles=1.04, cycles_confirmed=False),
            "unclear",
            "clock",
        ),
        (Evidence(effect=None), "unclear", "few-groups"),
        (Evidence(effect=effect(1.05, 1.04, 1.06), in_reach=False), "unclear", "cannot-reach"),
        (Evidence(effect=effect(1.05, 1.04, 1.06), confirmed=True, host_bound=True), "unclear", "host-bound"),
        (Evidence(effect=effect(1.05, 1.04, 1.06), confirmed=True, busy=0.99), "unclear", "host-bound"),
        (Evidence(effect=effect(1.05, 1.04, 1.06), confirmed=True, lane_moved=True), "unclear", "lane-moved"),
    ],
)
def test_the_rule(evidence: Evidence, verdict: Verdict, reason: Reason) -> None:
    found = judge(evidence, LIMITS)

    assert (found.verdict, found.reason) == (verdict, reason)


def test_a_row_is_host_bound_here_where_it_is_in_a_report() -> None:
    assert HOST_BOUND_GAP == REPORTS_GAP


FLAT = tuple([1500] * 12)


@pytest.mark.parametrize(
    ("measured", "verdict", "reason"),
    [
        (pair(named(0), SLOW, FAST), "faster", "effect"),
        (pair(named(0), FAST, SLOW), "slower", "effect"),
        (pair(named(0), FAST, FAST), "same", "below-floor"),
        (pair(named(0), steps(8_000_000, 12, 1000), steps(8_070_000, 12, 2000)), "unclear", "below-floor"),
        (pair(named(0), steps(8_000_000, 12, 200_000), steps(8_300_000, 12, 200_000)), "unclear", "spread"),
        (
            pair(named(0), SLOW, FAST, clock={OURS: tuple([1600] * 12), THEIRS: tuple([1500] * 12)}),
            "unclear",
            "clock",
        ),
        (pair(named(0), SLOW[:2], FAST[:2]), "unclear", "few-groups"),
        (pair(named(0), SLOW[:1], FAST[:1]), "unclear", "few-groups"),
        (pair(named(0), SLOW[:3], FAST[:3]), "unclear", "cannot-reach"),
        (
            pair(named(0), SLOW, FAST, busy={OURS: FAST, THEIRS: tuple(8 * ns // 10 for ns in SLOW)}),
            "unclear",
            "host-bound",
        ),
        (row(named(0), {THEIRS: FAST}, failed={OURS: "wrong: rel L2 0.2 is above 0.004"}), "failed", "wrong-result"),
        (row(named(0), {THEIRS: FAST}, failed={OURS: "illegal memory access"}), "failed", "wrong-result"),
        (row(named(0), {THEIRS: FAST}, failed={OURS: "raised OutOfMemoryError: CUDA out of memory"}), "failed", "oom"),
        (row(named(0), {THEIRS: FAST}, unsupported={OURS: "no program for wgrad"}), "missing", "no-baseline"),
        (row(named(0), {OURS: FAST}, unsupported={THEIRS: "no program for wgrad"}), "new", "no-baseline"),
        (row(named(0), {OURS: FAST}, failed={THEIRS: "wrong: rel L2 0.2 is above 0.004"}), "new", "no-baseline"),
    ],
)  # fmt: skip
def test_what_one_run_of_both_sides_gives(measured: Row, verdict: Verdict, reason: Reason) -> None:
    # conbench/conbench#1605 and #1583: one repetition, and two. google/benchmark#617: three cannot reach the limit.
    found = one(compare_interleaved(both(measured), limits=LIMITS))

    assert (found.verdict, found.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("from_group", "expected"),
    [
        (0, ("unclear", "clock")),
        (3, ("unclear", "clock")),
        (6, ("unclear", "spread")),
        (11, ("same", "below-floor")),
    ],
)
def test_a_clock_that_falls_on_one_side_alone_makes_nothing_slower(
    from_group: int, expected: tuple[Verdict, Reason]
) -> None:
    # flashinfer-ai/flashinfer#2899, NVIDIA/nvbench#231, tile-ai/TileOPs#1587: 1965 MHz, and 1580 from somewhere on.
    falls = tuple(1580 if group >= from_group else 1965 for group in range(12))
    head = tuple(round(ns * 1965 / mhz) for ns, mhz in zip(FAST, falls, strict=True))

    found = one(
        compare_interleaved(both(pair(named(0), FAST, head, clock={OURS: falls, THEIRS: (1965,) * 12})), limits=LIMITS)
    )

    assert (found.verdict, found.reason) == expected


def test_a_faster_row_has_its_ratio_its_interval_and_what_the_test_says() -> None:
    found = one(compare_interleaved(both(pair(named(0), SLOW, FAST)), limits=LIMITS))

    assert found.effect is not None
    assert found.effect.low < found.effect.ratio < found.effect.high
    assert found.effect.ratio == pytest.approx(8_455_000 / 8_055_000, abs=1e-4)
    assert found.p == found.q == found.q_in_reach == pytest.approx(2 / 2_704_156)
    assert found.superiority == 1.0
    assert (found.n_base, found.n_head) == (12, 12)
    assert (found.base_ns, found.head_ns) == (8_455_000, 8_055_000)


def test_six_groups_a_side_cannot_name_one_row_of_a_hundred_and_twelve_can() -> None:
    def compared(groups: int) -> Comparison:
        rows = [pair(named(i), FAST[:groups], FAST[:groups]) for i in range(1, 100)]
        return compare_interleaved(both(pair(named(0), FAST[:groups], SLOW[:groups]), *rows), limits=LIMITS)

    six, twelve = compared(6), compared(12)

    assert (one(six).verdict, one(six).reason) == ("unclear", "cannot-reach")
    assert six.lone_q == one(six).q_in_reach == pytest.approx(100 * 2 / 924)
    assert (six.tested, six.enough_groups) == (100, 8)
    assert (one(twelve).verdict, one(twelve).reason) == ("slower", "effect")
    assert twelve.lone_q == pytest.approx(100 * 2 / 2_704_156)


def test_the_row_with_the_fewest_groups_says_what_is_in_reach() -> None:
    found = compare_interleaved(both(pair(named(0), FAST, FAST), pair(named(1), FAST[:5], FAST[:5])), limits=LIMITS)

    assert (found.fewest_groups, found.lone_q) == (5, 2 * 2 / 252)


def test_the_smallest_p_is_that_of_sides_wholly_apart() -> None:
    assert [smallest_p(n) for n in (1, 2, 3, 6)] == [1.0, 2 / 6, 0.1, 2 / 924]
    assert [enough_groups(rows, 0.05) for rows in (1, 100, 400)] == [4, 8, 9]


def test_all_rows_slower_at_once_are_found_with_six_groups() -> None:
    rows = [pair(named(i), FAST[:6], SLOW[:6]) for i in range(100)]

    found = compare_interleaved(both(*rows), limits=LIMITS)

    assert found.counts["slower"] == 100
    assert found.rows[0].q == pytest.approx(2 / 924)


def test_controls_are_not_tested_and_have_no_part_in_counts() -> None:
    found = compare_interleaved(both(pair(named(0), SLOW, FAST), controls=[pair(named(1), FAST, FAST)]), limits=LIMITS)

    assert found.tested == 1
    assert found.counts["same"] == 0
    assert (one(found, "row 001").control, one(found, "row 001").q) == (True, None)
    assert [(lane.regime, lane.value, lane.rows, lane.moved) for lane in found.lanes] == [("boost", 1.0, 1, False)]


def test_controls_that_move_take_every_verdict_of_their_regime() -> None:
    # CodSpeedHQ/codspeed#520 and o1-labs/proof-systems#3593: the same program on another machine.
    rows = [pair(named(0), SLOW, FAST), row(named(0), {OURS: FAST, THEIRS: SLOW}, regime="sustained")]
    found = compare_interleaved(both(*rows, controls=[pair(named(1), SLOW, FAST)]), limits=LIMITS)

    assert {(r.id.regime, r.id.name): (r.verdict, r.reason) for r in found.rows} == {
        ("boost", "row 000"): ("unclear", "lane-moved"),
        ("boost", "row 001"): ("unclear", "lane-moved"),
        ("sustained", "row 000"): ("faster", "effect"),
    }


def test_a_planned_row_without_a_measurement_is_missing() -> None:
    made = both(pair(named(0), SLOW, FAST))
    made = replace(made, planned=(*made.planned, "boost/moe-training/ckpt ES down E8 M131072 bal"))

    found = one(compare_interleaved(made, limits=LIMITS), "down E8 M131072 bal")

    assert (found.verdict, found.reason, found.id.op) == ("missing", "no-baseline", "ckpt ES")


def test_a_row_that_neither_side_can_do_is_counted_and_no_row() -> None:
    none = {OURS: "no program", THEIRS: "no program"}
    rows = pair(named(0), SLOW, FAST), row(named(1), {}, unsupported=none), skipped(named(2), "does not fit in memory")
    found = compare_interleaved(both(*rows), limits=LIMITS)

    assert [r.id.name for r in found.rows] == ["row 000"]
    assert found.untried == 2


def test_a_run_of_one_revision_is_refused() -> None:
    with pytest.raises(NothingMeasured, match=r"run 20260101-120000-h200 holds no two revisions"):
        compare_interleaved(run(row(named(0), {OURS: FAST})), limits=LIMITS)
    with pytest.raises(NothingMeasured, match="previous_ one for cake_nondet, got cake_det, previous_det"):
        compare_interleaved(both(pair(named(0), SLOW, FAST)), arms=frozenset({"cake_nondet"}), limits=LIMITS)


def test_rows_that_matter_come_first() -> None:
    rows = [
        pair(named(0), FAST, FAST),
        pair(named(1), SLOW, FAST),
        pair(named(2), FAST, SLOW),
        pair(named(3), FAST, steps(9_000_000)),
        row(named(4), {THEIRS: FAST}, failed={OURS: "wrong"}),
        row(named(5), {OURS: FAST}, unsupported={THEIRS: "no program"}),
    ]

    found = compare_interleaved(both(*rows), limits=LIMITS)

    assert [(r.id.name[-1], r.verdict) for r in found.rows] == [
        ("3", "slower"), ("2", "slower"), ("4", "failed"), ("1", "faster"), ("5", "new"), ("0", "same"),
    ]  # fmt: skip


def test_geomeans_are_over_the_rows_that_both_sides_have() -> None:
    new = row(named(1), {OURS: FAST}, unsupported={THEIRS: "no program"})

    gaps = pair(named(2), SLOW, FAST, busy={OURS: FAST, THEIRS: tuple(8 * ns // 10 for ns in SLOW)})

    (mean,) = compare_interleaved(both(pair(named(0), FAST, FAST), new, gaps), limits=LIMITS).geomeans

    assert (mean.op, mean.value, mean.n, mean.expected_n) == ("dW", 1.0, 1, 3)


def compared(index: int, ratio: float) -> ComparedRow:
    of = RowId(regime="boost", suite="moe-training", op="dW", name=f"row {index:03}", arm=OURS)
    return ComparedRow(id=of, verdict="same", reason="below-floor", effect=effect(ratio, ratio, ratio))


def test_a_ratio_that_is_none_is_listed_beside_the_geomean_of_the_others() -> None:
    (mean,) = geomeans([compared(0, 1.1), compared(1, 0.0), compared(2, 1.1), compared(3, math.inf)])

    assert (mean.value, mean.low, mean.high, mean.n, mean.expected_n) == (pytest.approx(1.1), 1.1, 1.1, 2, 4)
    assert mean.failures == (
        "moe-training/dW row 001: ratio must be positive and finite, got 0.0",
        "moe-training/dW row 003: ratio must be positive and finite, got inf",
    )


def test_a_geomean_of_no_ratio_at_all_lists_its_rows_too() -> None:
    (mean,) = geomeans([compared(0, math.nan)])

    assert (mean.value, mean.low, mean.high, mean.interval_low, mean.n) == (None, None, None, None, 0)
    assert mean.failures == ("moe-training/dW row 000: ratio must be positive and finite, got nan",)


def test_rows_tested_have_the_exact_tests_of_their_paired_groups() -> None:
    drifts = [steps(8_000_000, step=100_000), tuple(1_001 * ns // 1_000 for ns in steps(8_000_000, step=100_000))]
    gaps = pair(named(2), SLOW, FAST, busy={OURS: FAST, THEIRS: tuple(8 * ns // 10 for ns in SLOW)})
    rows = [pair(named(0), *reversed(drifts)), pair(named(1), FAST, FAST), gaps]
    found = compare_interleaved(both(*rows, controls=[pair(named(3), SLOW, FAST)]), limits=LIMITS)

    # Each group is 0.1 % faster, and drift hides it from whoever compares the sides as a whole.
    (drifting, equal, host_bound, control) = (one(found, f"row 00{index}") for index in range(4))
    assert drifting.p == 1.0
    assert drifting.verdict == "unclear"
    assert drifting.paired is not None
    assert drifting.paired.sign_p == drifting.paired.signed_rank_p == drifting.paired.p_in_reach == 2 / 2**12
    assert drifting.paired.signed_rank_q == 2 * 2 / 2**12
    assert (drifting.paired.faster, drifting.paired.n) == (12, 12)
    assert equal.paired is not None
    assert (equal.paired.n, equal.paired.signed_rank_p) == (0, 1.0)
    assert (host_bound.paired, control.paired) == (None, None)


def test_a_difference_that_is_sure_is_named_only_where_it_is_sure_to_exceed_the_floor() -> None:
    # Both are wholly apart in twelve groups, so that a test of any difference gives both the smallest p there is.
    low = steps(8_000_000, step=9_000)
    near = one(compare_interleaved(both(pair(named(0), low, steps(8_100_000, step=9_000))), limits=LIMITS))
    far = one(compare_interleaved(both(pair(named(0), low, steps(8_200_000, step=9_000))), limits=LIMITS))

    assert near.effect is not None
    assert near.effect.high < 1
    assert near.effect.ratio < 1 / 1.01
    assert (near.superiority, near.verdict, near.reason) == (0.0, "unclear", "spread")
    assert near.p == pytest.approx(0.1277, abs=1e-4)
    assert (far.superiority, far.verdict, far.reason) == (0.0, "slower", "effect")
    assert far.p == pytest.approx(2 / 2_704_156)


ROWS = 400


def nights(base: np.ndarray, head: np.ndarray) -> Iterator[Run]:
    """Runs of rows, from spans by night, row and group."""
    for night in range(len(base)):
        sides = zip(base[night].tolist(), head[night].tolist(), strict=True)
        yield both(*(pair(named(i), one_side, other) for i, (one_side, other) in enumerate(sides)))


def draw(seed: int, shape: tuple[int, ...], sd: np.ndarray | float) -> np.ndarray:
    """Spans in ns around 8 ms."""
    return np.rint(8e6 * np.random.Generator(np.random.PCG64(seed)).normal(1, sd, shape)).astype(np.int64)


def names_a_row(made: Run, limits: Limits) -> bool:
    counts = compare_interleaved(made, limits=limits).counts
    return counts["faster"] + counts["slower"] > 0


def test_the_same_code_over_400_rows_names_a_row_in_at_most_one_night_of_a_hundred() -> None:
    # NVIDIA/nvbench#316 and folo-rs/folo#429: many rows, and no change.
    base, head = (draw(seed, (100, ROWS, 12), 0.01) for seed in (1, 2))
    # A test of any difference is never less sharp than ours: where it is far from naming a row, ours need not be asked.
    p_values = mannwhitneyu(base, head, axis=-1, method="exact").pvalue
    suspect = np.flatnonzero(false_discovery_control(p_values, axis=-1).min(axis=-1) <= 2 * LIMITS.q)

    runs = list(nights(base[suspect], head[suspect]))

    assert sum(names_a_row(made, LIMITS) for made in runs) <= 1
    # Without a floor in the test it is the false-discovery rate: five are expected.
    assert 2 <= sum(names_a_row(made, Limits(floor=0.0)) for made in runs) <= 10


def test_small_differences_elsewhere_do_not_let_noisy_rows_be_named() -> None:
    # 100 quiet rows differ by 0.3 %. As discoveries they would allow the 300 noisy ones, which do not, false ones.
    quiet = (np.arange(ROWS) < 100)[:, np.newaxis]
    sd = np.where(quiet, 0.001, 0.01)
    base, head = draw(3, (8, ROWS, 12), sd), np.where(quiet, 1.003, 1) * draw(4, (8, ROWS, 12), sd)

    assert not any(names_a_row(made, LIMITS) for made in nights(base, np.rint(head).astype(np.int64)))


PAGE = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
EFFECTS = [
    (float(sd), int(groups), float(floor), float(effect))
    for sd, groups, *effects in re.findall(r"^\| ([\d.]+) % \| (\d+) " + 4 * r"\| ([\d.]+) % " + r"\|$", PAGE, re.M)
    for floor, effect in zip(("1", "0.5", "0.25", "0"), effects, strict=True)
]


@pytest.mark.parametrize(("sd", "groups", "floor", "effect"), EFFECTS)
def test_the_page_says_what_one_row_of_400_must_differ_by_to_be_named_in_nine_nights_of_ten(
    sd: float, groups: int, floor: float, effect: float
) -> None:
    base, head = (draw(seed, (200, groups), sd / 100) for seed in (5, 6))
    slower = (head * (1 + effect / 100)).tolist()
    p_values = [minimum_effect(h, b, floor / 100).p_value for h, b in zip(slower, base.tolist(), strict=True)]

    # q of a row that is alone. Rounded to 0.1 %, the effect is up to a fifth of its error away.
    share = sum(ROWS * p <= LIMITS.q for p in p_values) / len(p_values)
    assert 0.82 < share < 0.98


def test_the_page_says_it_for_two_noises_two_counts_of_groups_and_four_floors() -> None:
    assert len(EFFECTS) == 2 * 2 * 4


@pytest.mark.parametrize("sd", [0.003, 0.01])
def test_five_per_cent_in_one_row_of_400_is_named_alone(sd: float) -> None:
    source = random.Random(7)
    rows = [pair(named(i), noisy(source, 8e6, 12, sd), noisy(source, 8e6, 12, sd)) for i in range(1, 400)]
    slow = pair(named(0), noisy(source, 8e6, 12, sd), noisy(source, 8.4e6, 12, sd))

    found = compare_interleaved(both(*rows, slow), limits=LIMITS)

    assert [r.id.name for r in found.rows if r.verdict in ("faster", "slower")] == ["row 000"]
    assert found.rows[0].verdict == "slower"
    assert found.tested == 400


def drifting(source: random.Random, factor: float) -> Row:
    """Twelve groups over which the clock falls by a fifth, on both sides alike."""
    groups = [8e6 * (1 + 0.02 * group) for group in range(12)]
    base = tuple(round(ns * (1 + source.gauss(0, 0.003))) for ns in groups)
    return pair(named(0), base, tuple(round(ns * factor * (1 + source.gauss(0, 0.003))) for ns in groups))


def test_drift_that_both_sides_share_makes_nothing_faster() -> None:
    source = random.Random(3)
    found = [one(compare_interleaved(both(drifting(source, 1.0)), limits=LIMITS)).verdict for _ in range(200)]

    assert set(found) <= {"same", "unclear"}
