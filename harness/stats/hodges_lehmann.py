"""The Hodges-Lehmann ratio: by how much one side is higher than the other, beside a Mann-Whitney p-value."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.stats.errors import require_at_most, require_confidence, require_positive
from harness.stats.geomean import geomean
from harness.stats.interval import Interval
from harness.stats.mann_whitney import MOST_VALUES
from harness.stats.null_distribution import sums_of_subsets


def hodges_lehmann_ratio(x: Sequence[float], y: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the ratio x / y: the median of the ratios of all pairs, with a distribution-free interval.

    The estimate is the Hodges-Lehmann shift (Ann. Math. Stat. 34, 1963) of the logarithms; of an even count of ratios
    it is the geometric mean of the middle two, so that swapping x and y gives the reciprocal. The interval goes from
    the c-th lowest ratio to the c-th highest, c the largest with P(U < c) <= (1 - confidence) / 2, U exact and without
    ties (Lehmann, Ann. Math. Stat. 34, 1963). Without ties, 1 lies outside exactly where the two-sided
    ``mann_whitney_u`` gives p <= 1 - confidence. With ties the closed interval covers at least as often (Noether,
    JASA 62, 1967).

    It takes the values for independent and one side for the other times a constant; where the shapes differ too, it is
    the median ratio of a random pair. Values that follow one another too closely make it too narrow.

    Parameters
    ----------
    x, y
        Positive, of one unit, of any order. Together at most 200.
    confidence
        Least probability to cover, between 0 and 1.

    Returns
    -------
    Interval
        0 to infinity where no finite one has the confidence (3 v 3 at 0.95). Bitwise repeatable.

    Raises
    ------
    StatisticsError
        A side is empty, a value is not positive and finite, there are more than 200, or the confidence is no
        probability.
    """
    require_positive("hodges_lehmann_ratio", "x", x)
    require_positive("hodges_lehmann_ratio", "y", y)
    require_confidence("hodges_lehmann_ratio", confidence)
    n = len(x) + len(y)
    require_at_most("hodges_lehmann_ratio", "values of both sides together", n, MOST_VALUES)
    ratios = sorted(a / b for a in x for b in y)
    require_positive("hodges_lehmann_ratio", "x / y", ratios)
    middle = len(ratios) // 2
    depth = sums_of_subsets(range(n), len(x)).depth(confidence)
    return Interval(
        estimate=geomean([ratios[middle], ratios[~middle]]),
        low=ratios[depth - 1] if depth else 0.0,
        high=ratios[-depth] if depth else math.inf,
        confidence=confidence,
    )
