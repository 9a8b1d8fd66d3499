"""What ``cake-bench compare`` concludes: every verdict and reason code, pairing, comparability, noise, false alarms."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import false_discovery_control, mannwhitneyu

from harness import runfile
from harness.compare.comparison import ComparedRow, Comparison, Effect, Limits, Reason, Verdict
from harness.compare.environment import ALLOWABLE, ENVIRONMENT
from harness.compare.interleaved import compare_interleaved, enough_groups, smallest_p
from harness.compare.judge import HOST_BOUND_GAP, Evidence, judge
from harness.compare.stored import NOISE_RATIOS, compare_stored
from harness.errors import NothingMeasured, UnknownName
from harness.model.case import Case
from harness.model.run import Previous, Row, Run
from harness.pages.summary.rows import HOST_BOUND_GAP as REPORTS_GAP
from harness.stats import minimum_effect
from tests.unit.report_runs import H200, case, row, run, skipped

LIMITS = Limits()
OURS, THEIRS, T, C = "cake_det", "previous_det", "torch_grouped_mm", "cublas_loop"
NOW, BEFORE = "1b" * 32, "0a" * 32


def noisy(source: random.Random, middle_ns: float, n: int, sd: float = 0.003) -> tuple[int, ...]:
    return tuple(round(middle_ns * (1 + source.gauss(0, sd))) for _ in range(n))


def named(index: int, op: str = "dW") -> Case:
    return case(f"row {index:03}", op=op)


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


def one(comparison: Comparison, name: str = "row 000") -> ComparedRow:
    (found,) = [row for row in comparison.rows if row.id.name == name]
    return found


def steps(middle_ns: int, n: int = 12, step: int = 10_000) -> tuple[int, ...]:
    """``n`` distinct spans from ``middle_ns`` on, a step apart."""
    return tuple(middle_ns + step * place for place in range(n))


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


SLOW, FAST = steps(8_400_000), steps(8_000_000)
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
    found = one(compare_interleaved(both(measured), limits=LIMITS))

    assert (found.verdict, found.reason) == (verdict, reason)


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


# Two stored runs


def vendor(index: int, ours: float, *, groups: int = 6, t: float = 1.0, c: float = 1.02, op: str = "dW", seed: int = 0,
           clock: int | None = None) -> Row:  # fmt: skip
    """One row of ours beside two baselines; each figure is a part of 8 ms."""
    source = random.Random(1000 * seed + index)
    spans = {arm: noisy(source, 8e6 * part, groups, 0.001) for arm, part in ((OURS, ours), (T, t), (C, c))}
    return row(named(index, op), spans, clock=dict.fromkeys(spans, (clock,) * groups) if clock else None)


def stored(run_id: str, rows: Sequence[Row], **changes: object) -> Run:
    made = run(*rows, arms=(OURS, T, C), run_id=run_id)
    machine = replace(H200, **{k: v for k, v in changes.items() if hasattr(H200, k)})  # type: ignore[arg-type]
    rest = {key: value for key, value in changes.items() if not hasattr(H200, key)}
    return replace(made, machines=(machine,), revision=f"of {run_id}", **rest)  # type: ignore[arg-type]


def many(seed: int, first: float = 1.0, n: int = 24, **changes: object) -> list[Row]:
    return [vendor(i, first if i == 0 else 1.0, seed=seed) for i in range(n)]


# 1.2 % excludes 1, and is not known to exceed the floor: intervals are as wide as what moved, 0.2 %.
@pytest.mark.parametrize(
    ("part", "verdict"), [(1.05, "slower"), (0.95, "faster"), (1.0, "same"), (1.012, "unclear"), (0.988, "unclear")]
)
def test_two_runs_say_what_is_larger_than_what_moved_between_them(part: float, verdict: Verdict) -> None:
    found = one(compare_stored(stored("a", many(1)), stored("b", many(2, part)), limits=LIMITS))

    assert (found.verdict, found.against) == (verdict, T)
    assert (found.p, found.q, found.q_in_reach) == (None, None, None)
    assert found.effect is not None
    assert found.effect.ratio == pytest.approx(1 / part, abs=0.002)


def test_what_baselines_moved_by_widens_every_interval() -> None:
    moved = [vendor(i, 1.05 if i == 0 else 1.0, seed=2, c=1.02 * (1.08 if i == 5 else 1)) for i in range(24)]

    comparison = compare_stored(stored("a", many(1)), stored("b", moved), limits=LIMITS)

    (noise,) = comparison.noise
    assert (noise.ratios, noise.regime) == (24, "boost")
    assert noise.largest == pytest.approx(0.08, abs=0.003)
    assert (one(comparison).verdict, one(comparison).reason) == ("unclear", "spread")


def test_too_few_baseline_ratios_show_no_noise_and_nothing_is_concluded() -> None:
    few = NOISE_RATIOS - 1
    comparison = compare_stored(stored("a", many(1, n=few)), stored("b", many(2, 1.5, n=few)), limits=LIMITS)

    assert {(r.verdict, r.reason) for r in comparison.rows} == {("unclear", "spread")}
    assert one(comparison).detail == "18 ratios of baselines show the noise between the runs, 19 must"


def test_two_arms_of_ours_do_not_count_the_baselines_twice() -> None:
    def twice(rows: Sequence[Row]) -> list[Row]:
        made = []
        for one_row in rows:
            spans = {a: [one_row.samples.span_ns[i] for _, i in one_row.samples.by_group(a)] for a in (OURS, T, C)}
            made.append(row(one_row.case, {"cake_nondet": spans[OURS], **spans}))
        return made

    comparison = compare_stored(stored("a", twice(many(1))), stored("b", twice(many(2))), limits=LIMITS)

    assert [noise.ratios for noise in comparison.noise] == [24]
    assert {r.id.arm for r in comparison.rows} == {"cake_nondet", "cake_det"}


def test_another_revision_beside_ours_is_not_compared_with_a_stored_one() -> None:
    def beside(rows: Sequence[Row]) -> list[Row]:
        return [row(one_row.case, {THEIRS: FAST[:6], T: FAST[:6], OURS: SLOW[:6]}) for one_row in rows]

    comparison = compare_stored(stored("a", beside(many(1))), stored("b", beside(many(2))), limits=LIMITS)

    assert {r.id.arm for r in comparison.rows} == {OURS}


@pytest.mark.parametrize("arm", [OURS, T])
def test_gaps_of_ours_or_of_the_baseline_make_a_stored_row_host_bound(arm: str) -> None:
    def gapped(rows: Sequence[Row]) -> list[Row]:
        spans = dict.fromkeys((OURS, T, C), FAST[:6])
        busy = {a: tuple(8 * ns // 10 for ns in FAST[:6]) if a == arm else FAST[:6] for a in spans}
        return [row(rows[0].case, spans, busy=busy), *rows[1:]]

    found = one(compare_stored(stored("a", gapped(many(1))), stored("b", gapped(many(2))), limits=LIMITS))

    assert (found.verdict, found.reason) == ("unclear", "host-bound")


def test_a_twin_shows_no_noise_between_runs() -> None:
    def twins(rows: Sequence[Row]) -> list[Row]:
        again = f"{T} again"
        return [row(r.case, {OURS: SLOW[:6], T: FAST[:6], again: FAST[:6]}) for r in rows]

    comparison = compare_stored(stored("a", twins(many(1))), stored("b", twins(many(2))), limits=LIMITS)

    assert comparison.noise == ()


BASELINES = Path(__file__).parents[2] / "reports" / "h200" / "baselines"


@pytest.mark.parametrize("arm", ["torch_grouped_mm", "cublas_loop", "cudnn"])
def test_vendor_kernels_on_two_boards_are_neither_faster_nor_slower(arm: str) -> None:
    base, head = (runfile.load(BASELINES / f"boost-e4-e8-{card}.json") for card in (0, 1))

    counts = compare_stored(base, head, arms=(arm,), limits=LIMITS).counts

    assert (counts["faster"], counts["slower"]) == (0, 0)
    assert counts["unclear"] == (24 if arm == "cudnn" else 72)


def test_time_alone_is_not_enough_where_the_cycles_are_the_same() -> None:
    base = [vendor(i, 1.0, seed=1, clock=1500) for i in range(24)]
    head = [vendor(i, 1.0, seed=2, clock=1500) for i in range(1, 24)]
    source = random.Random(9)
    spans = {OURS: noisy(source, 8.4e6, 6, 0.001), T: noisy(source, 8e6, 6, 0.001), C: noisy(source, 8.16e6, 6, 0.001)}
    slow = row(named(0), spans, clock={OURS: (1429,) * 6, T: (1500,) * 6, C: (1500,) * 6})

    found = one(compare_stored(stored("a", base), stored("b", [slow, *head]), limits=LIMITS))

    assert (found.verdict, found.reason) == ("unclear", "clock")
    assert found.cycles == pytest.approx(1.0, abs=0.003)


def test_one_or_two_groups_say_nothing_and_three_cannot() -> None:
    def compared(groups: int) -> ComparedRow:
        base = [vendor(i, 1.0, seed=1, groups=groups) for i in range(24)]
        head = [vendor(i, 1.2 if i == 0 else 1.0, seed=2, groups=groups) for i in range(24)]
        return one(compare_stored(stored("a", base), stored("b", head), limits=LIMITS))

    assert [(compared(n).verdict, compared(n).reason) for n in (1, 2, 3, 4)] == [
        ("unclear", "few-groups"), ("unclear", "few-groups"), ("unclear", "cannot-reach"), ("slower", "effect"),
    ]  # fmt: skip


def test_a_baseline_that_moves_on_its_own_board_takes_every_verdict() -> None:
    slower = [vendor(i, 1.1 if i == 0 else 1.03, seed=2, t=1.03, c=1.02 * 1.03) for i in range(24)]

    same_board = compare_stored(stored("a", many(1)), stored("b", slower), limits=LIMITS)
    other_board = compare_stored(stored("a", many(1)), stored("b", slower, board="f" * 12), limits=LIMITS)

    assert {(r.verdict, r.reason) for r in same_board.rows} == {("unclear", "lane-moved")}
    assert [lane.moved for lane in same_board.lanes] == [True]
    assert (one(other_board).verdict, other_board.lanes) == ("slower", ())
    assert [(d.field, d.role) for d in other_board.differences] == [("board", "shown")]


VERSIONS, SETTINGS = dict(H200.versions), dict(H200.settings)
OTHERS: dict[str, dict[str, object]] = {
    "product": {"product": "NVIDIA H100"},
    "power-limit": {"settings": {**SETTINGS, "power limit": "600 W"}},
    "clock-policy": {"settings": {**SETTINGS, "clocks": "locked at 1410 MHz"}},
    "ecc": {"settings": {**SETTINGS, "ECC": "off"}},
    "mig": {"settings": {**SETTINGS, "MIG": "on"}},
    "driver": {"versions": {**VERSIONS, "driver": "590.1"}},
    "torch": {"versions": {**VERSIONS, "torch": "2.14.0"}},
    "cuda": {"versions": {**VERSIONS, "cuda": "13.1"}},
    "cudnn": {"versions": {**VERSIONS, "cudnn": "9.20"}},
    "method": {"method_version": 2},
    "timer": {"timer": "cpu"},
}


@pytest.mark.parametrize("field", OTHERS)
def test_what_differs_is_not_comparable_unless_allowed_by_name(field: str) -> None:
    base, head = stored("a", many(1)), stored("b", many(2, 1.05), **OTHERS[field])

    refused = compare_stored(base, head, limits=LIMITS)
    other = next(name for name in ALLOWABLE if name != field)
    still = compare_stored(base, head, allow={other}, limits=LIMITS)
    allowed = compare_stored(base, head, allow={field}, limits=LIMITS)

    reason = "environment" if field in ENVIRONMENT else "method"
    assert {(r.verdict, r.reason) for r in (*refused.rows, *still.rows)} == {("not comparable", reason)}
    assert refused.rows[0].detail.startswith(f"{field} ")
    assert [(d.field, d.role) for d in refused.differences] == [(field, "refused")]
    assert [(d.field, d.role) for d in allowed.differences] == [(field, "allowed")]
    assert one(allowed).verdict == "slower"


def test_another_regime_is_said_to_be_one() -> None:
    base = stored("a", many(1))
    moved = [replace(r, regime="sustained") for r in many(2, 1.05)]
    head = replace(run(*moved, arms=(OURS, T, C), run_id="b"))

    refused = compare_stored(base, head, limits=LIMITS)
    allowed = compare_stored(base, head, allow={"regime"}, limits=LIMITS)

    assert {(r.verdict, r.reason, r.detail) for r in refused.rows} == {
        ("not comparable", "method", "regime boost → sustained")
    }
    assert one(allowed).verdict == "slower"


def test_every_fact_that_may_be_allowed_is_tested_here() -> None:
    assert {*OTHERS, "regime"} == set(ALLOWABLE)


@pytest.mark.parametrize(
    "changes",
    [
        {"board": "f" * 12},
        {"versions": {**VERSIONS, "python": "3.12.1"}},
        {"settings": {**SETTINGS, "persistence": "off"}},
        {"seed": 4},
    ],
)
def test_what_does_not_matter_is_shown(changes: dict[str, object]) -> None:
    comparison = compare_stored(stored("a", many(1)), stored("b", many(2, 1.05), **changes), limits=LIMITS)

    assert one(comparison).verdict == "slower"
    assert [d.role for d in comparison.differences] == ["shown"]


def test_one_name_with_other_sizes_is_not_comparable_whatever_is_allowed() -> None:
    head = many(2)
    shape = replace(head[0].case.shape, group_sizes=(28145, 28143, 28144, 28144))
    head[0] = replace(head[0], case=replace(head[0].case, shape=shape))

    found = one(compare_stored(stored("a", many(1)), stored("b", head), allow=ALLOWABLE, limits=LIMITS))

    assert (found.verdict, found.reason) == ("not comparable", "method")
    assert "sizes N 2048 K 2048 sizes 28144, 28144, 28144, 28144 → " in found.detail


def test_a_row_without_a_common_baseline_is_not_comparable() -> None:
    alone = row(named(0), {OURS: FAST[:6]})
    found = one(compare_stored(stored("a", [alone, *many(1)[1:]]), stored("b", many(2)), limits=LIMITS))

    assert (found.verdict, found.reason) == ("not comparable", "no-baseline")


def test_a_baseline_can_be_named() -> None:
    base, head = stored("a", many(1)), stored("b", many(2, 1.05))

    assert one(compare_stored(base, head, against=C, limits=LIMITS)).against == C
    with pytest.raises(UnknownName, match="baseline of --against 'cudnn' is not known; known: torch_grouped_mm, cub"):
        compare_stored(base, head, against="cudnn", limits=LIMITS)


def test_an_arm_that_is_not_ours_can_be_compared() -> None:
    head = stored("b", [vendor(i, 1.0, seed=2, c=1.02 * (1.05 if i == 0 else 1)) for i in range(24)])
    comparison = compare_stored(stored("a", many(1)), head, arms=(C,), limits=LIMITS)

    assert {r.id.arm for r in comparison.rows} == {C}
    with pytest.raises(UnknownName, match="arm of --arm 'quack' is not known"):
        compare_stored(head, head, arms=("quack",), limits=LIMITS)


def test_runs_without_an_arm_of_ours_are_refused() -> None:
    theirs = run(row(named(0), {T: FAST[:6]}), arms=(T,))

    with pytest.raises(NothingMeasured, match="neither run has an arm of ours, they have torch_grouped_mm"):
        compare_stored(theirs, theirs, limits=LIMITS)


def test_rows_of_one_side_are_new_or_missing_and_the_others_compared() -> None:
    base, head = many(1), many(2)
    comparison = compare_stored(stored("a", base[:-1]), stored("b", head[1:]), limits=LIMITS)

    assert (one(comparison, "row 000").verdict, one(comparison, "row 023").verdict) == ("missing", "new")
    assert comparison.counts["same"] == 22
    assert comparison.matched == 22


def test_a_row_of_base_alone_is_listed_and_has_no_part_in_the_geomean() -> None:
    # golang/go#19565: a row that only the old file had made the geomean -90 %.
    (equal, *others), alone = many(1), row(named(99), {OURS: (900_000,) * 6, T: FAST[:6], C: FAST[:6]})

    found = compare_stored(stored("a", [equal, *others, alone]), stored("b", [equal, *others]), limits=LIMITS)

    assert (one(found, "row 099").verdict, one(found, "row 099").reason) == ("missing", "no-baseline")
    (mean,) = found.geomeans
    assert (mean.value, mean.n, mean.expected_n) == (1.0, 24, 25)


def test_a_row_that_no_longer_fits_is_out_of_memory() -> None:
    head = [skipped(named(0), "needs 152.1 GiB of device memory for 3 arms, 139.8 GiB are usable"), *many(2)[1:]]
    found = one(compare_stored(stored("a", many(1)), stored("b", head), limits=LIMITS))

    assert (found.verdict, found.reason) == ("failed", "oom")
