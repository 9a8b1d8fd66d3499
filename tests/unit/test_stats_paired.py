import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from harness.stats import StatisticsError, median_interval, sign_test, signed_rank

PAIRED = pytest.mark.parametrize("test", [sign_test, signed_rank])


@PAIRED
def test_the_smallest_p_of_six_groups_is_one_in_32(test: object) -> None:
    found = test([1, 2, 3, 4, 5, 6])  # type: ignore[operator]

    assert found.p_value == found.min_p_value == 0.03125


@PAIRED
def test_five_groups_cannot_reach_five_per_cent(test: object) -> None:
    assert test([1, 2, 3, 4, 5]).min_p_value == 0.0625  # type: ignore[operator]


@PAIRED
def test_greater_means_above_zero(test: object) -> None:
    assert test([1, 2, 3, 4, 5, 6], "greater").p_value == 1 / 64  # type: ignore[operator]
    assert test([1, 2, 3, 4, 5, 6], "less").p_value == 1.0  # type: ignore[operator]


@PAIRED
def test_groups_at_zero_are_for_neither_side_and_counted(test: object) -> None:
    found = test([0, 0, 1, 2, 3])  # type: ignore[operator]

    assert (found.n, found.zeros, found.p_value, found.min_p_value) == (3, 2, 0.25, 0.25)


@PAIRED
def test_all_groups_at_zero_say_nothing(test: object) -> None:
    found = test([0.0, -0.0])  # type: ignore[operator]

    assert (found.n, found.p_value, found.min_p_value) == (0, 1.0, 1.0)


@PAIRED
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_paired_groups_that_are_not_finite_are_refused(test: object, bad: float) -> None:
    with pytest.raises(StatisticsError, match=r": values\[1\] must be finite, got"):
        test([1.0, bad])  # type: ignore[operator]


@PAIRED
@pytest.mark.parametrize("bad", [2**2000, 2**20000, Fraction(2**2000)], ids=["int", "too long to print", "fraction"])
def test_paired_groups_too_large_for_a_float_are_refused(test: object, bad: float) -> None:
    largest = r"must not exceed the largest float, 1\.79.*e\+308, got (int|Fraction) beyond it"
    with pytest.raises(StatisticsError, match=rf": values\[1\] {largest}; take a larger unit"):
        test([True, bad])  # type: ignore[operator]


@PAIRED
@pytest.mark.parametrize("bad", ["1", None, 1j, [1.0], Decimal(1)])
def test_paired_groups_that_are_no_numbers_are_refused(test: object, bad: object) -> None:
    with pytest.raises(StatisticsError, match=r": values\[1\] must be a real number, got"):
        test([1.0, bad])  # type: ignore[operator]


@PAIRED
@pytest.mark.parametrize("bad", [None, 1.0, iter([1.0])])
def test_what_is_no_sequence_is_refused(test: object, bad: object) -> None:
    with pytest.raises(StatisticsError, match=r": values must be a sequence of numbers, got"):
        test(bad)  # type: ignore[operator]


@PAIRED
def test_numbers_of_every_kind_are_taken(test: object) -> None:
    values = [True, Fraction(2), np.float32(3), np.int64(4), 5, 6.0]

    assert test(values) == test(np.array([1, 2, 3, 4, 5, 6])) == test([1, 2, 3, 4, 5, 6])  # type: ignore[operator]


@PAIRED
def test_no_group_at_all_is_refused(test: object) -> None:
    with pytest.raises(StatisticsError, match="values must hold at least one value, got none"):
        test([])  # type: ignore[operator]


@pytest.mark.parametrize(("test", "most"), [(sign_test, 1000), (signed_rank, 200)])
def test_more_groups_than_the_exact_test_takes_are_refused(test: object, most: int) -> None:
    assert test([1.0] * most, "greater").p_value == 0.5**most  # type: ignore[operator]
    with pytest.raises(StatisticsError, match=f"at most {most} values, got {most + 1}"):
        test([1.0] * (most + 1))  # type: ignore[operator]


def test_the_sign_test_counts_groups_above_zero() -> None:
    found = sign_test([0.1, 0.2, -0.1, 0.3, 0.4, 0.5, 0.6, 0.7])

    assert (found.positive, found.n) == (7, 8)
    assert found.p_value == 2 * (1 + 8) / 2**8


def test_the_signed_rank_counts_sizes() -> None:
    # one group below 0, the smallest: rank sum 20 of 21, two of 64 sign choices a side
    found = signed_rank([-1, 2, 3, 4, 5, 6])

    assert (found.rank_sum, found.p_value) == (20.0, 4 / 64)


def test_zeros_take_the_lowest_ranks() -> None:
    # 0 takes rank 1, so that the others have 2, 3 and 4; Wilcoxon's own rule would give 1, 2 and 3
    assert signed_rank([0, -1, 2, 3]).rank_sum == 7.0


def test_a_sample_whose_every_value_falls_does_not_look_more_clearly_above_zero() -> None:
    # Dropping the zero before ranking would give 0.0171, and then the lower 0.0133.
    values = [0, 2, 3, 4, 6, 7, 8, 9, 11, 14, 15, 17, -18]
    lower = [value - 0.5 for value in values]

    assert signed_rank(values, "greater").p_value == 98 / 2**13
    assert signed_rank(lower, "greater").p_value == 109 / 2**13


def test_tied_sizes_share_their_rank() -> None:
    # ranks 1.5 1.5 3; sums 0 1.5 1.5 3 3 4.5 4.5 6: three of eight reach 4.5
    found = signed_rank([1, -1, 2], "greater")

    assert (found.rank_sum, found.p_value) == (4.5, 3 / 8)


def test_six_groups_lie_in_their_range_with_97_per_cent() -> None:
    found = median_interval([1.01, 1.05, 1.02, 1.04, 1.03, 1.06])

    assert (found.estimate, found.low, found.high) == (pytest.approx(1.035), 1.01, 1.06)


def test_five_groups_have_no_interval_at_95_per_cent() -> None:
    assert not median_interval([1.0] * 5).bounded
    assert median_interval([1.0] * 5, confidence=0.9).bounded


def test_twelve_groups_lose_two_at_either_end() -> None:
    # P(B <= 2) = 79/4096 <= 0.025 < P(B <= 3): from the third lowest to the third highest
    found = median_interval(range(1, 13))

    assert (found.low, found.high) == (3, 10)


def test_the_median_interval_refuses_what_is_no_ratio() -> None:
    with pytest.raises(StatisticsError, match=r"median_interval: ratios\[1\] must be positive, got 0"):
        median_interval([1.0, 0.0])
