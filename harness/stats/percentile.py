"""Percentiles as published tables take them."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], percent: int) -> float:
    """Return ``sorted(values)[floor(percent / 100 * n)]``, a value that occurs; no interpolation.

    ``percent`` is an integer, so that the index is exact (0.29 * 100 is not 29 in binary). For 90 and ten values or
    fewer it is the largest.

    Raises
    ------
    ValueError
        There is no value, or ``percent`` is outside 0..99.
    """
    if not values:
        raise ValueError("percentile needs at least one value, got none")
    if not 0 <= percent <= 99:
        raise ValueError(f"percent must be in 0..99, got {percent}")
    return sorted(values)[percent * len(values) // 100]
