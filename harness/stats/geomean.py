"""The geometric mean: the average of ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence


class GeomeanError(ValueError):
    """A value has no place in a geometric mean: zero, negative, not a number or infinite."""


def geomean(values: Sequence[float]) -> float:
    """Return exp(mean(log(v))), the n-th root of the product.

    The mean for ratios: swapping what is above and below the line gives the reciprocal (Fleming and Wallace, "How not
    to lie with statistics", CACM 29(3), 1986). It does not depend on the order of ``values``, and lies between the
    least and the largest.

    Raises
    ------
    GeomeanError
        There is no value, or one is zero, negative, NaN or infinite; one zero would make the whole mean zero.
    """
    if not values:
        raise GeomeanError("geomean needs at least one value, got none")
    for index, value in enumerate(values):
        if not (math.isfinite(value) and value > 0):
            raise GeomeanError(f"geomean: values[{index}] must be positive and finite, got {value}")
    mean = math.exp(math.fsum(map(math.log, values)) / len(values))
    # exp(log(v)) can miss v by a unit in the last place; the true mean never lies outside
    return min(max(mean, min(values)), max(values))
