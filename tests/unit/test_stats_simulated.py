"""What the statistics claim of many repetitions, against many repetitions. Seeds are fixed."""

import math
import random
import statistics
from collections.abc import Callable, Sequence

import pytest

from harness.stats import (
    Interval,
    benjamini_hochberg,
    geomean_interval,
    hodges_lehmann_ratio,
    holm,
    mann_whitney_u,
    median_interval,
    minimum_effect,
    sign_test,
    signed_rank,
)

TABLES = 150


def error(share: float, repetitions: int) -> float:
    """Four standard errors of a count: a right share misses it once in 16,000 tests."""
    return 4 * math.sqrt(share * (1 - share) / repetitions)


def noise(draw: random.Random, n: int, effect: float = 1.0) -> list[float]:
    """Times of normal log noise of 1 %."""
    return [effect * math.exp(draw.gauss(0, 0.01)) for _ in range(n)]


def ticks(draw: random.Random, n: int, effect: float = 1.0) -> list[float]:
    """The same from a timer whose tick is a noise's standard deviation: most values tie."""
    return [round(effect * 100 * value) for value in noise(draw, n)]


# The largest p in reach that is at most 0.05: 38/924, 10/256 and 2/256. Discrete tests stay below their limit.
@pytest.mark.parametrize(
    ("p_value", "expected"),
    [
        (lambda draw: mann_whitney_u(noise(draw, 6), noise(draw, 6)).p_value, 38 / 924),
        (lambda draw: signed_rank([draw.gauss(0, 1) for _ in range(8)]).p_value, 10 / 256),
        (lambda draw: sign_test([draw.gauss(0, 1) for _ in range(8)]).p_value, 2 / 256),
    ],
    ids=["mann_whitney_u", "signed_rank", "sign_test"],
)
def test_a_against_a_is_called_different_as_often_as_the_null_says(
    p_value: Callable[[random.Random], float], expected: float
) -> None:
    draw = random.Random(1)

    found = sum(p_value(draw) <= 0.05 for _ in range(4000)) / 4000

    assert found == pytest.approx(expected, abs=error(expected, 4000))


# At the end of the floor one of the two tails has its share, the other none.
@pytest.mark.parametrize(("ratio", "expected"), [(1.01, 19 / 924), (1 / 1.01, 19 / 924), (1.0, 0.0)])
def test_a_ratio_at_the_floor_is_called_larger_as_often_as_the_null_says_and_one_within_is_not(
    ratio: float, expected: float
) -> None:
    draw = random.Random(11)

    found = sum(minimum_effect(noise(draw, 6, ratio), noise(draw, 6), 0.01).p_value <= 0.05 for _ in range(4000)) / 4000

    assert found == pytest.approx(expected, abs=error(19 / 924, 4000))


@pytest.mark.parametrize("n", [6, 12])
def test_ties_do_not_raise_the_false_alarms_of_mann_whitney(n: int) -> None:
    draw = random.Random(2)

    found = sum(mann_whitney_u(ticks(draw, n), ticks(draw, n)).p_value <= 0.05 for _ in range(2000)) / 2000

    assert 0.02 < found <= 0.05 + error(0.05, 2000)


def test_ties_and_zeros_do_not_raise_the_false_alarms_of_the_paired_tests() -> None:
    draw = random.Random(3)
    groups = [[float(draw.choice((-2, -1, -1, 0, 0, 1, 1, 2))) for _ in range(12)] for _ in range(2000)]

    for test in (sign_test, signed_rank):
        found = sum(test(values).p_value <= 0.05 for values in groups) / len(groups)
        assert 0.01 < found <= 0.05 + error(0.05, len(groups))


def covers(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


# U <= 5 has 19/924 a side; none of six heads 1/64; at most two of twelve 79/4096.
@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (lambda draw: hodges_lehmann_ratio(noise(draw, 6, 1.05), noise(draw, 6)), 1 - 38 / 924),
        (lambda draw: median_interval(noise(draw, 6, 1.05)), 1 - 2 / 64),
        (lambda draw: median_interval(noise(draw, 12, 1.05)), 1 - 2 * 79 / 4096),
    ],
    ids=["hodges_lehmann_ratio 6", "median_interval 6", "median_interval 12"],
)
def test_exact_intervals_cover_as_often_as_their_null_says(
    interval: Callable[[random.Random], Interval], expected: float
) -> None:
    draw = random.Random(4)

    found = sum(covers(interval(draw), 1.05) for _ in range(4000)) / 4000

    assert found == pytest.approx(expected, abs=error(expected, 4000))


def test_tied_times_do_not_narrow_the_ratios_interval() -> None:
    # Rounded to a tick of 1 % there is no ratio but 1 that the null knows of.
    draw = random.Random(5)

    found = sum(covers(hodges_lehmann_ratio(ticks(draw, 6), ticks(draw, 6)), 1.0) for _ in range(2000)) / 2000

    assert found >= 1 - 38 / 924 - error(38 / 924, 2000)


def geomean_covers(rows: Callable[[], Sequence[float]], repetitions: int) -> float:
    """How often the interval covers a true mean of 0."""
    intervals = (geomean_interval(list(map(math.exp, rows())), seed=s, resamples=999) for s in range(repetitions))
    return sum(covers(interval, 1.0) for interval in intervals) / repetitions


@pytest.mark.parametrize("n", [6, 14, 22])
def test_the_geomeans_interval_covers_as_often_as_it_says(n: int) -> None:
    draw = random.Random(n)

    found = geomean_covers(lambda: [draw.gauss(0, 0.01) for _ in range(n)], 3000)

    assert found == pytest.approx(0.95, abs=error(0.95, 3000))


def test_skewed_rows_do_not_cost_the_geomeans_interval_its_coverage() -> None:
    draw = random.Random(6)

    found = geomean_covers(lambda: [0.02 * (draw.expovariate(1) - 1) for _ in range(14)], 3000)

    assert found == pytest.approx(0.95, abs=error(0.95, 3000))


def test_heavy_tails_cost_the_geomeans_interval_three_per_cent_at_most() -> None:
    # Student's t with 3 degrees of freedom: a normal over the root of a mean of three squares
    draw = random.Random(10)

    def row() -> float:
        return 0.01 * draw.gauss(0, 1) / math.sqrt(statistics.fmean(draw.gauss(0, 1) ** 2 for _ in range(3)))

    found = geomean_covers(lambda: [row() for _ in range(22)], 3000)

    assert found >= 0.92 - error(0.92, 3000)


def table(draw: random.Random, *, rows: int, faster: int) -> list[float]:
    """P-values of 8 v 8 in rows of which the first ``faster`` are so by two standard deviations."""
    return [
        mann_whitney_u(noise(draw, 8, 0.98 if row < faster else 1.0), noise(draw, 8)).p_value for row in range(rows)
    ]


def test_a_fifth_of_the_rows_faster_the_false_ones_among_those_named_stay_below_the_limit() -> None:
    draw = random.Random(7)
    false_shares, true_named = [], 0
    for _ in range(TABLES):
        named = [row for row, q in enumerate(benjamini_hochberg(table(draw, rows=40, faster=8))) if q <= 0.1]
        false_shares.append(sum(row >= 8 for row in named) / max(1, len(named)))
        true_named += sum(row < 8 for row in named)

    se = statistics.stdev(false_shares) / math.sqrt(TABLES)
    assert statistics.mean(false_shares) <= 0.1 * 32 / 40 + 4 * se
    assert true_named / (8 * TABLES) > 0.5


@pytest.mark.parametrize("adjust", [benjamini_hochberg, holm])
def test_a_table_of_a_against_a_names_a_row_no_more_often_than_the_limit(adjust: Callable[..., object]) -> None:
    # P-values that reach every level, the worst case: those of a discrete test are larger.
    draw = random.Random(8)

    found = sum(min(adjust([1 - draw.random() for _ in range(400)])) <= 0.05 for _ in range(1500)) / 1500  # type: ignore[call-overload]

    assert found == pytest.approx(0.05, abs=error(0.05, 1500))


def test_without_adjustment_nearly_every_table_of_a_against_a_names_a_row() -> None:
    draw = random.Random(9)

    found = sum(min(table(draw, rows=100, faster=0)) <= 0.05 for _ in range(20))

    assert found == 20
