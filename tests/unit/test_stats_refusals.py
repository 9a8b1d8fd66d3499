"""What is no number has no statistic: every public function says so by one named error, never by a bare TypeError."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from harness import stats
from harness.stats import StatisticsError
from harness.stats.chance import highest_by_chance, rows_by_chance

OF_VALUES: dict[str, Callable[[Any], object]] = {
    "benjamini_hochberg": stats.benjamini_hochberg,
    "geomean": stats.geomean,
    "geomean_interval": lambda values: stats.geomean_interval(values, seed=0),
    "hodges_lehmann_ratio": lambda values: stats.hodges_lehmann_ratio([1.0], values),
    "holm": stats.holm,
    "mann_whitney_u": lambda values: stats.mann_whitney_u([1.0], values),
    "median": stats.median,
    "median_interval": stats.median_interval,
    "minimum_effect": lambda values: stats.minimum_effect([1.0], values, 0.01),
    "percentile": lambda values: stats.percentile(values, 90),
    "ratios": lambda values: stats.ratios([1.0, 1.0], values),
    "sign_test": stats.sign_test,
    "signed_rank": stats.signed_rank,
    "spread": stats.spread,
    "highest_by_chance": lambda values: highest_by_chance([[values]]),
}


@pytest.mark.parametrize("bad", ["0.5", None, 1j, Decimal("0.5"), [0.5]])
@pytest.mark.parametrize("of", OF_VALUES)
def test_a_value_that_is_no_number_is_named_with_its_place(of: str, bad: object) -> None:
    with pytest.raises(StatisticsError, match=rf"{of}: .*\[1\] must be a real number, got "):
        OF_VALUES[of]([0.5, bad])


@pytest.mark.parametrize("of", sorted(OF_VALUES.keys() - {"spread"}))
def test_a_number_in_the_place_of_a_list_is_refused(of: str) -> None:
    with pytest.raises(StatisticsError, match=rf"{of}: .* must be a sequence of numbers, got 0.5; pass a list of them"):
        OF_VALUES[of](0.5)


@pytest.mark.parametrize("of", sorted(OF_VALUES))
def test_an_array_is_as_good_as_a_list(of: str) -> None:
    assert OF_VALUES[of](np.array([0.5, 0.25])) == OF_VALUES[of]([0.5, 0.25])


OTHERS: dict[str, tuple[Callable[[], object], str]] = {
    "a count in words": (lambda: rows_by_chance(["six"]), r"groups\[0\] must be an integer >= 1, got 'six'"),  # type: ignore[list-item]
    "half a group": (lambda: rows_by_chance([6, 1.5]), r"groups\[1\] must be an integer >= 1, got 1.5"),  # type: ignore[list-item]
    "a percent in words": (lambda: stats.percentile([1.0], "90"), r"percent must be an integer in 0..99, got '90'"),  # type: ignore[arg-type]
    "a share for a percent": (lambda: stats.percentile([1.0], 0.9), r"percent must be an integer in 0..99, got 0.9"),  # type: ignore[arg-type]
    "a seed in words": (lambda: stats.geomean_interval([1.0], seed="0"), "seed must be an integer >= 0, got '0'"),  # type: ignore[arg-type]
    "half a resample": (
        lambda: stats.geomean_interval([1.0], seed=0, resamples=999.5),  # type: ignore[arg-type]
        "resamples must be an integer >= 1, got 999.5",
    ),
    "a confidence in words": (
        lambda: stats.median_interval([1.0], confidence="0.95"),  # type: ignore[arg-type]
        "confidence must lie between 0 and 1, got '0.95'",
    ),
    "a floor in words": (
        lambda: stats.minimum_effect([1.0], [1.0], "1 %"),  # type: ignore[arg-type]
        "minimum_effect: floor must be a real number, got '1 %'",
    ),
    "a negative floor": (
        lambda: stats.minimum_effect([1.0], [1.0], -0.01),
        "minimum_effect: floor must be finite and >= 0, got -0.01; say 0.01 for 1 %",
    ),
    "a row in words": (
        lambda: stats.geomean_over_rows({"bal": 1.0, "skew": "1.0"}, seed=0),  # type: ignore[dict-item]
        "the ratio of row 'skew' must be a real number, got '1.0'; report the row as missing",
    ),
    "an end in words": (
        lambda: stats.Interval(estimate=1.0, low="0", high=2.0, confidence=0.95),  # type: ignore[arg-type]
        "Interval: low must be a real number, got '0'",
    ),
    "a median of 0": (lambda: stats.spread([0.0, 0.0]), r"spread: values\[0\] must be positive, got 0.0"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_an_argument_that_is_none_is_named(what: str) -> None:
    call, message = OTHERS[what]

    with pytest.raises(StatisticsError, match=message):
        call()
