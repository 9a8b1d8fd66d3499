"""The exact tests against every case there is, at sizes where these can be listed."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from harness.stats import (
    benjamini_hochberg,
    hodges_lehmann_ratio,
    holm,
    mann_whitney_u,
    median_interval,
    minimum_effect,
    sign_test,
    signed_rank,
)
from harness.stats.ranks import doubled_ranks

TIED = st.lists(st.integers(1, 5), min_size=1, max_size=5)
TIMES = st.lists(st.integers(1, 10**6), min_size=1, max_size=12)
DIFFERENCES = st.lists(st.integers(-4, 4), min_size=1, max_size=9)
P_VALUES = st.lists(st.floats(1e-300, 1.0), max_size=40)


def shares(statistics: list[int], observed: int) -> dict[str, float]:
    below = sum(value <= observed for value in statistics)
    above = sum(value >= observed for value in statistics)
    n = len(statistics)
    return {"less": below / n, "greater": above / n, "two-sided": min(1.0, 2 * min(below, above) / n)}


@given(TIED, TIED)
def test_mann_whitney_is_what_all_splits_give(x: list[int], y: list[int]) -> None:
    ranks = doubled_ranks([*x, *y])
    splits = [sum(split) for split in itertools.combinations(ranks, len(x))]

    expected = shares(splits, sum(ranks[: len(x)]))
    least = {a: min(shares(splits, s)[a] for s in set(splits)) for a in expected}

    for alternative, p in expected.items():
        found = mann_whitney_u(x, y, alternative)  # type: ignore[arg-type]
        assert (found.p_value, found.min_p_value) == (p, least[alternative])


@given(TIED, TIED)
def test_at_a_floor_of_zero_the_minimum_effect_is_any_difference(x: list[int], y: list[int]) -> None:
    found, plain = minimum_effect(x, y, 0), mann_whitney_u(x, y)

    assert (found.p_value, found.min_p_value) == (plain.p_value, plain.min_p_value)


FLOORS = st.floats(0, 3)


@given(TIMES, TIMES, FLOORS, FLOORS)
def test_a_higher_floor_is_not_easier_to_exceed(x: list[int], y: list[int], one: float, other: float) -> None:
    low, high = sorted((one, other))

    assert minimum_effect(x, y, low).p_value <= minimum_effect(x, y, high).p_value


@given(TIMES, TIMES, FLOORS)
def test_which_side_is_named_first_does_not_matter_to_the_minimum_effect(
    x: list[int], y: list[int], floor: float
) -> None:
    assert minimum_effect(x, y, floor) == minimum_effect(y, x, floor)


@given(DIFFERENCES)
def test_the_signed_rank_is_what_all_signs_give(values: list[int]) -> None:
    ranks = doubled_ranks([abs(value) for value in values])
    kept = [(rank, value) for rank, value in zip(ranks, values, strict=True) if value]
    signs = [
        sum(rank for (rank, _), positive in zip(kept, chosen, strict=True) if positive)
        for chosen in itertools.product((False, True), repeat=len(kept))
    ]

    for alternative, p in shares(signs, sum(rank for rank, value in kept if value > 0)).items():
        assert signed_rank(values, alternative).p_value == p  # type: ignore[arg-type]


@given(DIFFERENCES)
def test_the_sign_test_is_what_all_tosses_give(values: list[int]) -> None:
    n = sum(value != 0 for value in values)
    tosses = [sum(toss) for toss in itertools.product((0, 1), repeat=n)]

    for alternative, p in shares(tosses, sum(value > 0 for value in values)).items():
        assert sign_test(values, alternative).p_value == p  # type: ignore[arg-type]


@given(TIED, TIED)
def test_u_and_superiority_count_pairs(x: list[int], y: list[int]) -> None:
    higher = sum((a > b) + (a == b) / 2 for a in x for b in y)

    found = mann_whitney_u(x, y)

    assert found.u == higher
    assert math.isclose(found.superiority, 1 - higher / (len(x) * len(y)), abs_tol=1e-15)


@given(TIMES, TIMES)
def test_no_p_value_is_zero_or_below_what_can_be_reached(x: list[int], y: list[int]) -> None:
    found = mann_whitney_u(x, y)

    assert 0 < 1 / math.comb(len(x) + len(y), len(x)) <= found.min_p_value <= found.p_value <= 1


@given(TIMES, TIMES)
def test_swapping_the_sides_mirrors_the_test_and_the_ratio(x: list[int], y: list[int]) -> None:
    there, back = hodges_lehmann_ratio(x, y), hodges_lehmann_ratio(y, x)

    assert mann_whitney_u(x, y, "less").p_value == mann_whitney_u(y, x, "greater").p_value
    assert mann_whitney_u(x, y).p_value == mann_whitney_u(y, x).p_value
    assert math.isclose(there.estimate * back.estimate, 1, rel_tol=1e-12)
    assert there.bounded == back.bounded
    assert not there.bounded or math.isclose(there.low * back.high, 1, rel_tol=1e-12)


@given(TIMES, TIMES, st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_one_lies_outside_the_ratios_interval_exactly_where_the_test_says_so(
    x: list[int], y: list[int], confidence: float
) -> None:
    # Without ties: even times for x, odd ones for y, and none twice.
    x, y = sorted({2 * t for t in x}), sorted({2 * t + 1 for t in y})

    interval = hodges_lehmann_ratio(x, y, confidence)

    significant = mann_whitney_u(x, y).p_value <= round(1 - confidence, 2)
    assert significant == (not interval.low <= 1 <= interval.high)


@given(st.lists(st.floats(0.5, 2).filter(lambda r: r != 1), min_size=1, max_size=30), st.sampled_from([0.9, 0.95]))
def test_one_lies_outside_the_medians_interval_exactly_where_the_sign_test_says_so(
    ratios: list[float], confidence: float
) -> None:
    interval = median_interval(ratios, confidence)

    significant = sign_test([ratio - 1 for ratio in ratios]).p_value <= round(1 - confidence, 2)
    assert significant == (not interval.low <= 1 <= interval.high)


@given(P_VALUES)
def test_adjusted_values_keep_the_order_and_lie_between_p_and_bonferroni(p_values: list[float]) -> None:
    q, adjusted = benjamini_hochberg(p_values), holm(p_values)

    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert [q[i] for i in order] == sorted(q)
    assert [adjusted[i] for i in order] == sorted(adjusted)
    for p, low, high in zip(p_values, q, adjusted, strict=True):
        assert p <= low <= high <= min(1.0, p * len(p_values))


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=30), st.sampled_from([0.01, 0.05, 0.2]))
def test_what_q_names_is_what_the_step_up_procedure_rejects(p_values: list[float], limit: float) -> None:
    m = len(p_values)
    passing = [rank for rank, p in enumerate(sorted(p_values), 1) if p * (m / rank) <= limit]

    assert sum(q <= limit for q in benjamini_hochberg(p_values)) == max(passing, default=0)
