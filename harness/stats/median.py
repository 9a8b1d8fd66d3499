"""The median: the one average of samples that tables print."""

from __future__ import annotations

import math
from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones (the textbook sample median).

    Exact on integers below 2^52, half integers included; so it is on nanoseconds for 52 days. It does not depend on
    the order of ``values``.

    Raises
    ------
    ValueError
        There is no value, or one is not finite: a sort around NaN has no meaning.
    """
    if not values:
        raise ValueError("median needs at least one value, got none")
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise ValueError(f"median: values[{index}] must be finite, got {value}")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[middle])
    return (ordered[middle - 1] + ordered[middle]) / 2
