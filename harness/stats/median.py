"""The median: the one average of samples that tables print."""

from __future__ import annotations

from collections.abc import Sequence

from harness.stats.errors import require_finite


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones (the textbook sample median).

    Exact on integers below 2^52, half integers included; so it is on nanoseconds for 52 days. It does not depend on
    the order of ``values``.

    Raises
    ------
    StatisticsError
        There is no value, or one is no real number or not finite: a sort around NaN has no meaning.
    """
    require_finite("median", "values", values)
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[middle])
    return (ordered[middle - 1] + ordered[middle]) / 2
