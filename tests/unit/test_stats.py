import math

import pytest

from harness.stats.chance import rows_by_chance
from harness.stats.geomean import GeomeanError, geomean
from harness.stats.median import median
from harness.stats.percentile import percentile
from harness.stats.ratio import ratios
from harness.stats.spread import noise, spread


def test_median_of_an_even_count_is_the_mean_of_the_two_middle_values() -> None:
    assert median([7, 1, 4, 2]) == 3.0


def test_median_is_exact_on_integers_that_a_float_mean_would_lose() -> None:
    large = 2**51

    assert median([large + 1, large]) == large + 0.5


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_median_refuses_what_has_no_order(values: list[float]) -> None:
    with pytest.raises(ValueError, match="median"):
        median(values)


def test_ratio_above_one_means_that_new_is_faster() -> None:
    assert ratios([200, 100], [100, 200]) == (2.0, 0.5)


def test_ratios_refuse_groups_that_do_not_pair() -> None:
    with pytest.raises(ValueError, match="got 2 of baseline and 1 of new"):
        ratios([1, 2], [1])


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
def test_ratios_refuse_a_time_that_is_none(bad: float) -> None:
    with pytest.raises(ValueError, match=r"new\[1\] must be positive and finite"):
        ratios([1, 1], [1, bad])


def test_geomean_of_a_ratio_and_its_reciprocal_is_one() -> None:
    assert geomean([4.0, 0.25]) == 1.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_geomean_refuses_zero_negative_nan_and_infinity_by_name(bad: float) -> None:
    with pytest.raises(GeomeanError, match=r"values\[1\] must be positive and finite"):
        geomean([1.0, bad])


def test_geomean_of_nothing_is_refused() -> None:
    with pytest.raises(GeomeanError, match="at least one value"):
        geomean([])


def test_spread_of_one_sample_is_unknown_and_not_zero() -> None:
    assert spread([1.0]) is None


def test_spread_is_the_range_over_the_median() -> None:
    assert spread([1.0, 1.5, 1.25]) == pytest.approx(0.4)


def test_spread_looks_at_the_first_six_groups_only() -> None:
    assert spread([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0]) == 0.0


def test_fewer_than_five_samples_give_no_noise_figure() -> None:
    assert noise([1.0, 1.1, 1.0, 1.1]) is None
    assert noise([1.0, 1.1, 1.0, 1.1, 1.0]) == pytest.approx(0.1)


def test_percentile_is_the_value_at_floor_of_its_share() -> None:
    assert percentile(list(range(100)), 90) == 90
    assert percentile([5.0, 1.0, 3.0], 90) == 5.0


def test_percentile_index_is_exact_where_a_binary_fraction_is_not() -> None:
    # 0.29 * 100 is 28.999999999999996
    assert percentile(list(range(100)), 29) == 29


def test_percentile_refuses_a_share_outside_its_range() -> None:
    with pytest.raises(ValueError, match=r"0\.\.99, got 100"):
        percentile([1.0], 100)


def test_six_groups_lie_wholly_above_one_once_in_64_rows() -> None:
    assert rows_by_chance([6] * 64) == 1.0


def test_chance_sums_over_rows_with_different_groups() -> None:
    assert rows_by_chance([1, 2, 3]) == 0.875


def test_chance_refuses_a_row_without_a_group() -> None:
    with pytest.raises(ValueError, match=r"groups\[1\] must be >= 1, got 0"):
        rows_by_chance([6, 0])
