import math
import random
import statistics

import pytest

from harness.stats import StatisticsError
from harness.stats.chance import highest_by_chance, rows_by_chance
from harness.stats.geomean import geomean
from harness.stats.median import median
from harness.stats.percentile import percentile
from harness.stats.ratio import ratios
from harness.stats.spread import shows_noise, spread


def test_median_of_an_even_count_is_the_mean_of_the_two_middle_values() -> None:
    assert median([7, 1, 4, 2]) == 3.0


def test_median_is_exact_on_integers_that_a_float_mean_would_lose() -> None:
    large = 2**51

    assert median([large + 1, large]) == large + 0.5


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_median_refuses_what_has_no_order(values: list[float]) -> None:
    with pytest.raises(StatisticsError, match=r"median: values(\[.\])? must "):
        median(values)


def test_ratio_above_one_means_that_new_is_faster() -> None:
    assert ratios([200, 100], [100, 200]) == (2.0, 0.5)


def test_ratios_refuse_groups_that_do_not_pair() -> None:
    with pytest.raises(StatisticsError, match="got 2 of baseline and 1 of new"):
        ratios([1, 2], [1])


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
def test_ratios_refuse_a_time_that_is_none(bad: float) -> None:
    with pytest.raises(StatisticsError, match=r"ratios: new\[1\] must be (positive|finite), got "):
        ratios([1, 1], [1, bad])


def test_geomean_of_a_ratio_and_its_reciprocal_is_one() -> None:
    assert geomean([4.0, 0.25]) == 1.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_geomean_refuses_zero_negative_nan_and_infinity_by_name(bad: float) -> None:
    with pytest.raises(StatisticsError, match=r"geomean: values\[1\] must be (positive|finite), got "):
        geomean([1.0, bad])


def test_geomean_of_nothing_is_refused() -> None:
    with pytest.raises(StatisticsError, match="geomean: values must hold at least one value, got none"):
        geomean([])


def test_spread_of_one_sample_is_unknown_and_not_zero() -> None:
    # NVIDIA/nvbench#368: the noise of one sample is not 0 %.
    assert spread([1.0]) is None


def test_spread_is_the_range_over_the_median() -> None:
    assert spread([1.0, 1.5, 1.25]) == pytest.approx(0.4)


def test_spread_looks_at_the_first_six_groups_only() -> None:
    assert spread([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0]) == 0.0


def test_every_card_needs_five_samples_to_show_its_noise() -> None:
    # NVIDIA/nvbench#368.
    assert [shows_noise(cards) for cards in ([[1.0] * 5], [[1.0] * 4], [[1.0] * 5, [1.0] * 4], [])] == [
        True,
        False,
        False,
        False,
    ]


def test_percentile_is_the_value_at_floor_of_its_share() -> None:
    assert percentile(list(range(100)), 90) == 90
    assert percentile([5.0, 1.0, 3.0], 90) == 5.0


def test_the_ninth_decile_of_eleven_is_the_tenth_value() -> None:
    # floor(0.9 * 11) = 9, counted from 0.
    assert percentile(list(range(11)), 90) == 9


def test_percentile_index_is_exact_where_a_binary_fraction_is_not() -> None:
    # 0.29 * 100 is 28.999999999999996
    assert percentile(list(range(100)), 29) == 29


def test_percentile_refuses_a_share_outside_its_range() -> None:
    with pytest.raises(StatisticsError, match=r"0\.\.99, got 100"):
        percentile([1.0], 100)


def test_six_groups_lie_wholly_above_one_once_in_64_rows() -> None:
    assert rows_by_chance([6] * 64) == 1.0


def test_chance_sums_over_rows_with_different_groups() -> None:
    assert rows_by_chance([1, 2, 3]) == 0.875


def test_chance_refuses_a_row_without_a_group() -> None:
    with pytest.raises(StatisticsError, match=r"groups\[1\] must be an integer >= 1, got 0"):
        rows_by_chance([6, 0])


def noisy(rows: int, *, effect: float = 0.0, groups: int = 6, seed: int = 0) -> list[list[list[float]]]:
    """Rows of one card whose log ratios scatter by 0.01 around ``effect``."""
    draw = random.Random(seed)
    return [[[math.exp(effect + draw.gauss(0, 0.01)) for _ in range(groups)]] for _ in range(rows)]


def test_the_highest_row_by_chance_is_near_what_a_simulation_gives() -> None:
    # 22 rows of six groups, median of normal noise of 0.01: the mean of the highest over 300 fresh tables
    simulated = [max(statistics.median(map(math.log, r[0])) for r in noisy(22, seed=s)) for s in range(1, 301)]

    found = [math.log(highest_by_chance(noisy(22, seed=s))) for s in range(1, 11)]

    assert statistics.mean(found) == pytest.approx(statistics.mean(simulated), rel=0.15)


def test_the_highest_row_by_chance_does_not_count_an_effect_as_noise() -> None:
    assert highest_by_chance(noisy(22, effect=0.3)) == pytest.approx(highest_by_chance(noisy(22)), rel=1e-12)


def test_the_highest_row_by_chance_does_not_depend_on_the_order_of_rows_and_groups() -> None:
    rows = noisy(5)
    other = [[card[::-1] for card in cards] for cards in reversed(rows)]

    assert highest_by_chance(other) == highest_by_chance(rows)


def test_rows_without_noise_are_at_one_by_chance() -> None:
    assert highest_by_chance([[[1.25] * 6], [[0.8] * 6]]) == 1.0


def test_the_highest_row_by_chance_refuses_no_rows_and_single_ratios() -> None:
    with pytest.raises(StatisticsError, match="at least one row"):
        highest_by_chance([])
    with pytest.raises(StatisticsError, match="a card must have two ratios at least, got 1"):
        highest_by_chance([[[1.0]]])
