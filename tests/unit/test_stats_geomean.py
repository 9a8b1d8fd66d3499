import math
from statistics import NormalDist

import pytest

from harness.stats import Interval, StatisticsError, geomean, geomean_interval, geomean_over_rows

RATIOS = (0.98, 1.01, 1.02, 1.05, 1.07, 1.1, 1.11, 1.2)


def test_the_estimate_is_the_geomean_and_lies_inside() -> None:
    found = geomean_interval(RATIOS, seed=0)

    assert found.estimate == geomean(RATIOS)
    assert 1.0 < found.low < found.estimate < found.high < 1.2


def test_one_seed_gives_one_interval_and_another_seed_another() -> None:
    assert geomean_interval(RATIOS, seed=7) == geomean_interval(RATIOS, seed=7)
    assert geomean_interval(RATIOS, seed=7) != geomean_interval(RATIOS, seed=8)


def test_the_order_of_the_rows_is_of_no_account() -> None:
    assert geomean_interval(RATIOS[::-1], seed=7) == geomean_interval(RATIOS, seed=7)


def test_a_higher_confidence_gives_a_wider_interval() -> None:
    narrow, wide = (geomean_interval(RATIOS, seed=0, confidence=c) for c in (0.8, 0.99))

    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_interval_is_near_students_where_rows_are_many_and_normal() -> None:
    # log ratios at the normal's 100 mid-quantiles, sd 0.01: Student's half-width is 1.984 * 0.01 / sqrt(100)
    ratios = [math.exp(NormalDist(0, 0.01).inv_cdf((i + 0.5) / 100)) for i in range(100)]

    found = geomean_interval(ratios, seed=0)

    assert math.log(found.high) == pytest.approx(0.001984, rel=0.05)
    assert math.log(found.low) == pytest.approx(-0.001984, rel=0.05)


@pytest.mark.parametrize("ratios", [[1.1], [1.1, 1.2], [1.1, 1.2, 1.3]])
def test_too_few_rows_bound_nothing(ratios: list[float]) -> None:
    found = geomean_interval(ratios, seed=0)

    assert (found.low, found.high, found.bounded) == (0.0, math.inf, False)


@pytest.mark.parametrize(
    ("ratios", "confidence", "ends"),
    [
        ([1, 2, 3, 4], 0.95, (True, True)),
        ([1, 2, 3, 4], 0.99, (False, False)),
        ([1, 2, 2, 3], 0.95, (False, True)),
        ([1, 1, 2, 3], 0.95, (True, False)),
        ([1, 1, 2, 2], 0.95, (False, False)),
        ([1, 2, 2, 3, 4], 0.95, (True, True)),
        ([1, 2, 3, 3, 3], 0.95, (False, True)),
        ([1, 1, 1, 2, 3], 0.95, (True, False)),
        ([1, 2, 3, 3, 3, 4], 0.95, (True, True)),
        ([1, 2, 3, 3, 3, 3], 0.95, (False, True)),
        ([1, 2, 3, 4, 4, 4, 4], 0.95, (True, True)),
        ([1, 2, 3, 3, 3, 3, 3], 0.95, (False, True)),
    ],
)
def test_a_tie_opens_an_end_where_too_many_resamples_hold_it_alone(
    ratios: list[float], confidence: float, ends: tuple[bool, bool]
) -> None:
    found = geomean_interval(ratios, seed=0, confidence=confidence)

    assert (found.low > 0, found.high < math.inf) == ends


@pytest.mark.parametrize("ratios", [[1.1] * 4, [1e300, math.nextafter(1e300, math.inf)]])
def test_rows_without_a_difference_have_no_width(ratios: list[float]) -> None:
    found = geomean_interval(ratios, seed=0)

    assert found.low == found.estimate == found.high


def test_the_estimate_lies_inside_also_where_both_ends_would_lie_on_one_side_of_it() -> None:
    above = geomean_interval([1, 1.1, 1.2, 2, 50], seed=0, confidence=0.01)
    below = geomean_interval([1, 40, 45, 48, 50], seed=0, confidence=0.01)

    assert above.low == above.estimate < above.high
    assert below.low < below.estimate == below.high


def test_an_interval_with_one_open_end_is_not_bounded() -> None:
    assert not Interval(estimate=1, low=0, high=2, confidence=0.95).bounded
    assert not Interval(estimate=1, low=0.5, high=math.inf, confidence=0.95).bounded
    assert Interval(estimate=1, low=0.5, high=2, confidence=0.95).bounded


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_an_interval_refuses_what_is_no_ratio(bad: float) -> None:
    with pytest.raises(StatisticsError, match=r"geomean_interval: ratios\[1\] must be (finite|positive), got"):
        geomean_interval([1.0, bad], seed=0)


@pytest.mark.parametrize("bad", ["1.1", None, 2**2000], ids=["string", "none", "too large"])
def test_an_interval_refuses_what_is_no_number(bad: float) -> None:
    with pytest.raises(StatisticsError, match=r"geomean_interval: ratios\[1\] must (be a real|not exceed the largest)"):
        geomean_interval([1.0, bad], seed=0)


@pytest.mark.parametrize("confidence", ["0.95", None])
def test_an_interval_refuses_a_confidence_that_is_no_number(confidence: float) -> None:
    with pytest.raises(
        StatisticsError, match="geomean_interval: confidence must lie between 0 and 1, got ('0.95'|None)"
    ):
        geomean_interval(RATIOS, seed=0, confidence=confidence)


def test_an_interval_refuses_a_negative_seed_and_too_few_resamples() -> None:
    with pytest.raises(StatisticsError, match="seed must be an integer >= 0, got -1"):
        geomean_interval(RATIOS, seed=-1)
    with pytest.raises(StatisticsError, match="got 38 for 0.95"):
        geomean_interval(RATIOS, seed=0, resamples=38)
    assert geomean_interval(RATIOS, seed=0, resamples=39).bounded


def test_rows_without_a_ratio_are_listed_and_not_dropped() -> None:
    found = geomean_over_rows({"a": 2.0, "b": math.nan, "c": 0.5, "d": 0.0, "e": -1.0, "f": math.inf}, seed=3)

    assert found.interval == geomean_interval([2.0, 0.5], seed=3)
    assert found.rows == ("a", "c")
    assert [failure.row for failure in found.failures] == ["b", "d", "e", "f"]
    assert found.failures[1].reason == "ratio must be positive and finite, got 0.0"


def test_rows_that_all_failed_have_no_geomean() -> None:
    found = geomean_over_rows({"a": math.nan}, seed=0)

    assert found.interval is None
    assert [failure.row for failure in found.failures] == ["a"]


def test_an_estimate_outside_its_interval_is_refused() -> None:
    with pytest.raises(StatisticsError, match=r"estimate must lie in \[low, high\], got 3"):
        Interval(estimate=3, low=1, high=2, confidence=0.95)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, math.nan])
def test_an_interval_refuses_a_confidence_that_is_no_probability(confidence: float) -> None:
    with pytest.raises(StatisticsError, match="Interval: confidence must lie between 0 and 1"):
        Interval(estimate=1, low=1, high=1, confidence=confidence)
