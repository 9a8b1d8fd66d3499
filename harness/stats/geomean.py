"""The geometric mean: the average of ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.stats.errors import require_positive


def geomean(values: Sequence[float]) -> float:
    """Return exp(mean(log(v))), the n-th root of the product.

    The mean for ratios: swapping what is above and below the line gives the reciprocal (Fleming and Wallace, "How not
    to lie with statistics", CACM 29(3), 1986). It does not depend on the order of ``values``, and lies between the
    least and the largest.

    Raises
    ------
    StatisticsError
        There is no value, or one is no real number, zero, negative, NaN or infinite; one zero would make the whole
        mean zero.
    """
    require_positive("geomean", "values", values)
    mean = math.exp(math.fsum(map(math.log, values)) / len(values))
    # exp(log(v)) can miss v by a unit in the last place; the true mean never lies outside
    return min(max(mean, min(values)), max(values))
