"""Percentiles as published tables take them."""

from __future__ import annotations

from collections.abc import Sequence

from harness.stats.errors import StatisticsError, require_finite


def percentile(values: Sequence[float], percent: int) -> float:
    """Return ``sorted(values)[floor(percent / 100 * n)]``, a value that occurs; no interpolation.

    ``percent`` is an integer, so that the index is exact (0.29 * 100 is not 29 in binary). For 90 and ten values or
    fewer it is the largest.

    Raises
    ------
    StatisticsError
        There is no value, one is no real number or not finite, or ``percent`` is no integer in 0..99.
    """
    require_finite("percentile", "values", values)
    if not (isinstance(percent, int) and 0 <= percent <= 99):
        raise StatisticsError(f"percentile: percent must be an integer in 0..99, got {percent!r}; say 90, not 0.9")
    return sorted(values)[percent * len(values) // 100]
