"""Invariants of a comparison: swapping the sides mirrors it, scaling both sides or reordering rows changes nothing."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compare.comparison import VERDICTS, ComparedRow, Comparison, Effect, Limits
from harness.compare.interleaved import compare_interleaved
from harness.compare.judge import Evidence, judge
from harness.compare.stored import compare_stored
from harness.model.run import Previous, Row, Run
from tests.unit.report_runs import case, row, run

OURS, THEIRS, T, C = "cake_det", "previous_det", "torch_grouped_mm", "cublas_loop"
LIMITS = Limits()
MIRROR = {"faster": "slower", "slower": "faster", "new": "missing", "missing": "new"}

# Spans in steps of 100 us: scaled by 3 they stay integers, and a ratio lies on no limit.
SPANS = st.lists(st.integers(80_000, 90_000).map(lambda hundreds: 100 * hundreds + 7), min_size=1, max_size=14)


@st.composite
def two_sides(draw: st.DrawFn) -> list[tuple[list[int], list[int]]]:
    """Rows as (BASE, HEAD), of equal counts; some sides empty, where one cannot do the row."""
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        base = draw(SPANS)
        apart = draw(st.sampled_from([-900_000, -400_000, 0, 0, 400_000, 900_000]))
        head = [span + apart for span in draw(st.permutations(base))]
        missing = draw(st.sampled_from(["", "", "", "", "base", "head"]))
        rows.append(([] if missing == "base" else base, [] if missing == "head" else head))
    return rows


def both(rows: list[tuple[list[int], list[int]]], *, factor: int = 1) -> Run:
    made = run(*(of(index, base, head, factor) for index, (base, head) in enumerate(rows)), arms=(OURS, THEIRS))
    return replace(made, previous=Previous(revision="0a", sources_sha256="0a" * 32, controls=()))


def of(index: int, base: list[int], head: list[int], factor: int) -> Row:
    spans = {OURS: head, THEIRS: base}
    timed = {arm: [factor * span for span in side] for arm, side in spans.items() if side}
    none = {arm: "no program" for arm, side in spans.items() if not side}
    return row(case(f"row {index}"), timed, unsupported=none)


def verdicts(comparison: Comparison) -> dict[str, tuple[str, str]]:
    return {found.id.name: (found.verdict, found.reason) for found in comparison.rows}


@given(two_sides())
@settings(max_examples=60)
def test_swapping_the_sides_of_a_run_mirrors_its_verdicts(rows: list[tuple[list[int], list[int]]]) -> None:
    found = compare_interleaved(both(rows), limits=LIMITS)
    swapped = compare_interleaved(both([(head, base) for base, head in rows]), limits=LIMITS)

    assert verdicts(swapped) == {name: (MIRROR.get(v, v), reason) for name, (v, reason) in verdicts(found).items()}
    assert sorted(r.q for r in found.rows if r.q) == sorted(r.q for r in swapped.rows if r.q)


@given(two_sides(), st.sampled_from([2, 3]))
@settings(max_examples=60)
def test_scaling_both_sides_changes_nothing(rows: list[tuple[list[int], list[int]]], factor: int) -> None:
    found = compare_interleaved(both(rows), limits=LIMITS)
    scaled = compare_interleaved(both(rows, factor=factor), limits=LIMITS)

    assert verdicts(scaled) == verdicts(found)
    assert [r.q for r in scaled.rows] == [r.q for r in found.rows]


@given(two_sides(), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_rows_and_groups_changes_nothing(rows: list[tuple[list[int], list[int]]], random: object) -> None:
    mixed = both(rows)
    order = list(mixed.rows)
    random.shuffle(order)  # type: ignore[attr-defined]

    found = compare_interleaved(mixed, limits=LIMITS)
    again = compare_interleaved(replace(mixed, rows=tuple(order)), limits=LIMITS)

    assert again.rows == found.rows


@given(two_sides())
@settings(max_examples=40)
def test_every_row_has_one_verdict_and_p_and_q_go_together(rows: list[tuple[list[int], list[int]]]) -> None:
    comparison = compare_interleaved(both(rows), limits=LIMITS)

    assert len(comparison.rows) == len(rows)
    assert sum(comparison.counts.values()) == len(rows)
    places = [VERDICTS.index(found.verdict) for found in comparison.rows]
    assert places == sorted(places)
    for found in comparison.rows:
        assert_sound(found)


def assert_sound(found: ComparedRow) -> None:
    assert (found.p is None) == (found.q is None) == (found.q_in_reach is None)
    if found.p is not None and found.q is not None and found.q_in_reach is not None:
        assert 0 < found.p <= found.q <= 1
        assert found.q_in_reach <= found.q
    if found.verdict in ("faster", "slower"):
        assert found.q is not None
        assert found.q <= LIMITS.q
        assert found.effect is not None
        assert (found.effect.ratio > 1) == (found.verdict == "faster")


SIDES = st.lists(st.lists(st.integers(7_900_000, 8_500_000), min_size=6, max_size=6), min_size=20, max_size=22)


@given(SIDES, SIDES)
@settings(max_examples=25)
def test_swapping_two_stored_runs_mirrors_their_verdicts(base: list[list[int]], head: list[list[int]]) -> None:
    def stored(run_id: str, sides: list[list[int]]) -> Run:
        flat, wavy = [8_000_000] * 6, [8_100_000, 8_101_000, 8_099_000, 8_102_000, 8_098_000, 8_100_500]
        rows = [row(case(f"row {i}"), {OURS: side, T: flat, C: wavy}) for i, side in enumerate(sides)]
        return run(*rows, arms=(OURS, T, C), run_id=run_id)

    a, b = stored("a", base), stored("b", head)
    found, swapped = compare_stored(a, b, limits=LIMITS), compare_stored(b, a, limits=LIMITS)

    assert verdicts(swapped) == {name: (MIRROR.get(v, v), reason) for name, (v, reason) in verdicts(found).items()}


RATIOS = st.floats(0.5, 2)


@given(RATIOS, RATIOS, RATIOS, st.booleans(), st.one_of(st.none(), RATIOS), st.one_of(st.none(), RATIOS))
def test_the_rule_is_symmetric(
    ratio: float, down: float, up: float, confirmed: bool, cycles: float | None, busy: float | None
) -> None:
    low, high = ratio * min(down, 1), ratio * max(up, 1)

    def judged(*, mirrored: bool) -> tuple[str, str]:
        def side(value: float | None) -> float | None:
            return 1 / value if mirrored and value is not None else value

        ends = (1 / high, 1 / low) if mirrored else (low, high)
        found = judge(
            Evidence(
                effect=Effect(ratio=1 / ratio if mirrored else ratio, low=ends[0], high=ends[1]),
                confirmed=confirmed,
                cycles=side(cycles),
                busy=side(busy),
            ),
            Limits(floor=0.0123),
        )
        return found.verdict, found.reason

    straight, mirrored = judged(mirrored=False), judged(mirrored=True)

    assert mirrored == (MIRROR.get(straight[0], straight[0]), straight[1])
