"""Small inputs on which benchmark tools have been wrong in public, each with the answer that is right."""

import math
from collections.abc import Callable

import pytest

from harness.stats import (
    StatisticsError,
    benjamini_hochberg,
    geomean,
    geomean_interval,
    hodges_lehmann_ratio,
    mann_whitney_u,
    median,
    median_interval,
    minimum_effect,
    sign_test,
    signed_rank,
)


def test_a_side_without_variance_is_tested_as_it_is() -> None:
    # golang/go#19634: outliers were removed first, and a side that does not vary was dropped; asymptotic p is 0.0056.
    old, new = [115, 114, 115, 115, 115], [78.8] * 5

    found = mann_whitney_u(old, new)

    assert (found.p_value, found.n_x, found.n_y) == (2 / 252, 5, 5)
    assert round(found.p_value, 5) == 0.00794
    assert minimum_effect(old, new, 0.01).p_value == 2 / 252
    assert hodges_lehmann_ratio(old, new).estimate == pytest.approx(115 / 78.8)


@pytest.mark.parametrize("values", [[1.0, math.nan, 3.0, 4.0, 5.0], [math.nan] * 5])
@pytest.mark.parametrize(
    "statistic",
    [
        lambda values: mann_whitney_u(values, [2.0, 3.0, 4.0, 5.0, 6.0]),
        lambda values: mann_whitney_u([2.0, 3.0, 4.0, 5.0, 6.0], values),
        lambda values: minimum_effect(values, [2.0, 3.0, 4.0, 5.0, 6.0], 0.01),
        lambda values: hodges_lehmann_ratio([2.0, 3.0, 4.0, 5.0, 6.0], values),
        lambda values: geomean_interval(values, seed=0),
        benjamini_hochberg,
        geomean,
        median,
        median_interval,
        sign_test,
        signed_rank,
    ],
)
def test_nan_gives_an_error_and_never_a_number(statistic: Callable[[list[float]], object], values: list[float]) -> None:
    # scipy/scipy#14448 and #4067: it gave p-values of 0.028 and 0.006.
    with pytest.raises(StatisticsError, match="got nan"):
        statistic(values)


@pytest.mark.parametrize(
    ("x", "y", "p_value"),
    [
        ([1, 2, 2, 3], [2, 3, 3, 4], 0.285714),
        ([10, 10, 11, 11, 12, 12], [11, 12, 12, 13, 13, 13], 0.054113),
        ([5, 5, 5, 5, 5, 6], [5, 6, 6, 6, 6, 6], 0.080087),
        ([5, 5, 5, 5, 5, 5], [5, 5, 5, 5, 5, 5], 1.0),
    ],
)
def test_ties_have_the_p_value_of_all_splits(x: list[int], y: list[int], p_value: float) -> None:
    # Cf. astronights/hypors#7.
    # scipy's method="exact" says 0.2, 0.0411, 0.0649 and 1.0: it counts as if nothing were tied.
    assert mann_whitney_u(x, y).p_value == pytest.approx(p_value, abs=5e-7)


def test_a_one_sided_p_has_its_direction_and_a_two_sided_one_has_none() -> None:
    # google/skia-buildbot, perf/go/stepfit/stepfit.go, takes the direction from the effect's sign.
    # A two-sided p that is taken for one of "slower" calls what got faster slower.
    faster, slower = [98, 99, 100, 101, 102, 103], [104, 105, 106, 107, 108, 109]

    assert mann_whitney_u(faster, slower, "less").p_value == 1 / 924
    assert mann_whitney_u(faster, slower, "greater").p_value == 1.0
    assert mann_whitney_u(faster, slower).p_value == mann_whitney_u(slower, faster).p_value == 2 / 924
    assert hodges_lehmann_ratio(faster, slower).high < 1 < hodges_lehmann_ratio(slower, faster).low
