import math

import pytest

from harness.stats import StatisticsError, hodges_lehmann_ratio, mann_whitney_u, minimum_effect
from harness.stats.null_distribution import NullDistribution, heads, sums_of_signs, sums_of_subsets
from harness.stats.ranks import doubled_ranks


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    # ranks 1, 2.5, 2.5, 4
    assert doubled_ranks([10, 20, 20, 30]) == (2, 5, 5, 8)


def test_ranks_tell_integers_apart_that_a_float_does_not() -> None:
    assert doubled_ranks([2**60 + 1, 2**60]) == (4, 2)


def test_the_null_of_u_is_that_of_the_published_tables() -> None:
    # Mann and Whitney 1947, n = m = 3: P(U <= 0), P(U <= 1), ... = .05 .1 .2 .35 .5 ...
    assert sums_of_subsets(range(6), 3) == NullDistribution(least=3, counts=(1, 1, 2, 3, 3, 3, 3, 2, 1, 1))


def test_the_null_of_the_signed_rank_is_that_of_the_published_tables() -> None:
    assert sums_of_signs((1, 2, 3)) == NullDistribution(least=0, counts=(1, 1, 1, 2, 1, 1, 1))


def test_counts_of_32_against_32_are_exact_to_the_last_unit() -> None:
    counts = sums_of_subsets(range(64), 32).counts

    assert sum(counts) == math.comb(64, 32)
    assert counts == counts[::-1]
    assert counts[:6] == (1, 1, 2, 3, 5, 7)  # partitions


def test_counts_beyond_64_bits_are_exact() -> None:
    assert sum(sums_of_subsets(range(100), 50).counts) == math.comb(100, 50)
    assert sum(sums_of_signs(range(1, 101)).counts) == 2**100


def test_tied_medians_have_the_conditional_permutation_p() -> None:
    # 50 of 924 splits; scipy's method="exact" ranks as if nothing were tied, and gives 0.0411
    found = mann_whitney_u([10, 10, 11, 11, 12, 12], [11, 12, 12, 13, 13, 13])

    assert found.p_value == 50 / 924
    assert found.u == 5.0
    assert found.superiority == 31 / 36


def test_three_against_three_cannot_reach_five_per_cent() -> None:
    # google/benchmark#617: 3 v 3, wholly apart.
    found = mann_whitney_u([1, 2, 3], [4, 5, 6])

    assert found.p_value == found.min_p_value == 0.1


def test_the_smallest_p_of_32_against_32_is_one_over_c_64_32() -> None:
    fast, slow = list(range(32)), list(range(32, 64))

    assert mann_whitney_u(fast, slow, "less").p_value == 1 / math.comb(64, 32)
    assert mann_whitney_u(fast, slow).p_value == 2 / math.comb(64, 32)
    assert mann_whitney_u(fast, slow, "greater").p_value == 1.0


def test_ties_raise_the_smallest_p_in_reach() -> None:
    # Of 1 1 1 1 1 2, three can be chosen low in ten ways of twenty.
    assert mann_whitney_u([1, 1, 1], [1, 1, 2]).min_p_value == 1.0
    assert mann_whitney_u([1, 1, 1], [1, 1, 2], "less").min_p_value == 0.5


def test_sides_wholly_apart_exceed_the_floor_only_as_far_as_they_are_apart() -> None:
    # Times 1.01, x stays below y: one split of 20. Times 1.1 it is 110 111.1 112.2 and has the ranks 2 3 4 beside 108
    # 113 115; of 20 splits, 1 + 1 + 2 + 3 have a sum of 9 or less.
    x, y = [100, 101, 102], [108, 113, 115]

    assert minimum_effect(x, y, 0.01).p_value == minimum_effect(y, x, 0.01).p_value == 2 * 1 / 20
    assert minimum_effect(x, y, 0.1).p_value == minimum_effect(y, x, 0.1).p_value == 2 * 7 / 20
    assert minimum_effect(x, y, 0.1).min_p_value == 2 * 1 / 20


def test_less_means_that_x_is_lower() -> None:
    assert mann_whitney_u([1, 2], [3, 4, 5], "less").p_value == 0.1
    assert mann_whitney_u([1, 2], [3, 4, 5], "greater").p_value == 1.0


def test_equal_values_on_both_sides_say_nothing() -> None:
    found = mann_whitney_u([7, 7, 7], [7, 7])

    assert (found.p_value, found.min_p_value, found.superiority) == (1.0, 1.0, 0.5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("statistic", [mann_whitney_u, hodges_lehmann_ratio])
def test_two_samples_refuse_what_is_not_finite(statistic: object, bad: float) -> None:
    with pytest.raises(StatisticsError, match=r": x\[1\] must be finite, got"):
        statistic([1.0, bad], [1.0])  # type: ignore[operator]
    with pytest.raises(StatisticsError, match=r": y\[0\] must be finite, got"):
        statistic([1.0], [bad])  # type: ignore[operator]


@pytest.mark.parametrize("statistic", [mann_whitney_u, hodges_lehmann_ratio])
def test_two_samples_refuse_an_empty_side(statistic: object) -> None:
    with pytest.raises(StatisticsError, match=": y must hold at least one value, got none"):
        statistic([1.0], [])  # type: ignore[operator]


@pytest.mark.parametrize("statistic", [mann_whitney_u, hodges_lehmann_ratio])
def test_two_samples_refuse_more_values_than_the_exact_test_takes(statistic: object) -> None:
    with pytest.raises(StatisticsError, match="at most 200 values of both sides together, got 201"):
        statistic([1.0] * 101, [1.0] * 100)  # type: ignore[operator]


def test_an_unknown_alternative_is_answered_with_the_known_ones() -> None:
    with pytest.raises(StatisticsError, match="must be two-sided, less or greater, got 'faster'"):
        mann_whitney_u([1], [2], "faster")  # type: ignore[arg-type]


def test_the_ratio_is_the_median_over_all_pairs() -> None:
    # 2/4 2/8 6/4 6/8: the middle two are 0.5 and 0.75
    assert hodges_lehmann_ratio([2, 6], [4, 8]).estimate == pytest.approx(math.sqrt(0.5 * 0.75), rel=1e-15)


def test_the_ratios_interval_cuts_what_the_null_of_u_allows() -> None:
    # 4 v 4: P(U <= 0) = 1/70 <= 0.025 < P(U <= 1) = 2/70, so that c = 1: lowest and highest of the 16 ratios
    found = hodges_lehmann_ratio([8, 9, 10, 11], [1, 2, 4, 5])

    assert (found.low, found.high, found.confidence) == (8 / 5, 11.0, 0.95)
    assert found.bounded


def test_the_ratio_of_three_against_three_has_no_interval_at_95_per_cent() -> None:
    found = hodges_lehmann_ratio([1, 2, 3], [4, 5, 6])

    assert (found.low, found.high) == (0.0, math.inf)
    assert not found.bounded


def test_a_confidence_is_taken_as_it_is_written() -> None:
    # 3 v 3 reach 0.9 exactly: 1/20 a side. In binary 1 - 0.9 lies below 0.1.
    assert hodges_lehmann_ratio([1, 2, 3], [4, 5, 6], confidence=0.9).low == 1 / 6
    assert heads(6).depth(1 - 2 / 64) == 1


@pytest.mark.parametrize("confidence", [0, 1, 95, math.nan])
def test_a_confidence_that_is_no_probability_is_refused(confidence: float) -> None:
    with pytest.raises(StatisticsError, match="confidence must lie between 0 and 1"):
        hodges_lehmann_ratio([1], [1], confidence=confidence)


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_a_ratio_refuses_times_that_are_none(bad: float) -> None:
    with pytest.raises(StatisticsError, match=r"hodges_lehmann_ratio: x\[1\] must be positive, got"):
        hodges_lehmann_ratio([1, bad], [1])


def test_a_ratio_that_no_float_holds_is_refused() -> None:
    with pytest.raises(StatisticsError, match=r"x / y\[0\] must be finite, got inf"):
        hodges_lehmann_ratio([1e300], [1e-300])
