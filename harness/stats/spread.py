"""Spread: how far a row's groups lie apart."""

from __future__ import annotations

from collections.abc import Sequence

from harness.stats.median import median

SPREAD_GROUPS = 6
"""Groups that a spread looks at: a range grows with the count, so that only equal counts compare."""

NOISE_SAMPLES = 5
"""Fewest samples whose spread may stand for noise."""


def spread(values: Sequence[float]) -> float | None:
    """Return (max - min) / median over the first six values; None ("n/a") for fewer than two.

    The definition of published tables, which have six groups a row. One sample has no spread: it is unknown, not 0.
    """
    first = values[:SPREAD_GROUPS]
    if len(first) < 2:
        return None
    return (max(first) - min(first)) / median(first)


def noise(values: Sequence[float]) -> float | None:
    """Return the spread where at least five values stand behind it, else None.

    The range of two to four values is too small on average to be quoted as the noise of a measurement.
    """
    return spread(values) if len(values) >= NOISE_SAMPLES else None
