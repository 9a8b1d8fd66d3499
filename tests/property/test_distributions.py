"""What every distribution keeps, for any E, M and parameters."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from harness.distributions import Distribution, draw, largest_remainder, load

EXPERTS = st.integers(1, 64)
ROWS = st.integers(0, 10**30) | st.integers(0, 200)
DRAWN = st.integers(0, 2**31 - 1) | st.integers(0, 200)
WEIGHTS = st.one_of(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=64),
    st.lists(st.floats(0, 1e300), min_size=1, max_size=64),
    st.lists(st.fractions(0, 10**6), min_size=1, max_size=64),
).filter(lambda weights: sum(map(Fraction, weights)) > 0)


def rule(name: str, **parameters: object) -> Distribution:
    return load(name).model_validate(parameters)


RULES = st.one_of(
    st.just(rule("balanced")),
    st.just(rule("skew")),
    st.just(rule("one_hot")),
    st.builds(lambda s: rule("zipf", s=s), st.floats(0, 16)),
    st.builds(lambda cv, seed: rule("lognormal", cv=cv, seed=seed), st.floats(0, 100), st.integers(0, 2**64)),
)


@given(WEIGHTS, ROWS)
def test_rounded_shares_sum_to_m_and_are_less_than_one_away(weights: list[float], M: int) -> None:
    total = sum(map(Fraction, weights))

    sizes = largest_remainder(weights, M)

    assert sum(sizes) == M
    assert all(abs(size - M * Fraction(weight) / total) < 1 for size, weight in zip(sizes, weights, strict=True))
    assert min(sizes) >= 0


@given(WEIGHTS, ROWS)
def test_a_larger_weight_never_gets_fewer_rows(weights: list[float], M: int) -> None:
    by_weight = sorted(
        zip(map(Fraction, weights), largest_remainder(weights, M), strict=True), key=lambda pair: pair[0]
    )

    assert all(low[1] <= high[1] for low, high in pairwise(by_weight) if low[0] < high[0])


@given(RULES, EXPERTS, DRAWN)
def test_every_rule_gives_e_integers_that_sum_to_m(distribution: Distribution, E: int, M: int) -> None:
    sizes = draw(distribution, E=E, M=M).group_sizes

    assert len(sizes) == E
    assert sum(sizes) == M
    assert all(type(size) is int and size >= 0 for size in sizes)


@given(RULES, EXPERTS, DRAWN)
def test_every_rule_gives_the_same_again_and_ascending_the_reverse(distribution: Distribution, E: int, M: int) -> None:
    sizes = draw(distribution, E=E, M=M).group_sizes

    assert draw(distribution, E=E, M=M).group_sizes == sizes
    assert draw(distribution, E=E, M=M, ascending=True).group_sizes == sizes[::-1]


@given(st.sampled_from(["balanced", "skew", "zipf"]), EXPERTS, DRAWN)
def test_ordered_rules_descend(name: str, E: int, M: int) -> None:
    sizes = draw(rule(name, **({"s": 1.2} if name == "zipf" else {})), E=E, M=M).group_sizes

    assert sizes == tuple(sorted(sizes, reverse=True))


@given(EXPERTS, DRAWN)
def test_zipf_of_one_is_skew_to_the_last_row(E: int, M: int) -> None:
    assert draw(rule("zipf", s=1), E=E, M=M).group_sizes == draw(rule("skew"), E=E, M=M).group_sizes


@given(st.integers(2, 64), DRAWN)
def test_one_empty_is_balanced_over_the_others(E: int, M: int) -> None:
    assert draw(rule("one_empty"), E=E, M=M).group_sizes == (*draw(rule("balanced"), E=E - 1, M=M).group_sizes, 0)


@given(st.integers(1, 32), st.integers(0, 4), DRAWN)
def test_lognormal_leaves_exactly_the_last_ones_out(live: int, empty: int, M: int) -> None:
    sizes = draw(rule("lognormal", cv=0.35, empty=empty), E=live + empty, M=M).group_sizes

    assert sizes == (*draw(rule("lognormal", cv=0.35), E=live, M=M).group_sizes, *(0,) * empty)


@given(EXPERTS, st.integers(0, 99), st.integers(1, 99), st.integers(0, 2**64), st.floats(0, 1))
def test_uniform_gives_e_sizes_within_its_bounds_that_sum_to_m(
    E: int, low: int, span: int, seed: int, full: float
) -> None:
    high = low + span
    M = E * low + round(full * E * span)

    sizes = draw(rule("uniform", high=high, low=low, seed=seed), E=E, M=M).group_sizes

    assert len(sizes) == E
    assert sum(sizes) == M
    assert low <= min(sizes)
    assert max(sizes) <= high
