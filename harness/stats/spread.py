"""Spread: how far a row's groups lie apart."""

from __future__ import annotations

from collections.abc import Sequence

from harness.stats.errors import require_positive
from harness.stats.median import median

SPREAD_GROUPS = 6
"""Groups that a spread looks at: a range grows with the count, so that only equal counts compare."""

NOISE_SAMPLES = 5
"""Fewest values that can show noise: the range of two to four is too small on average to be quoted as it."""


def spread(values: Sequence[float]) -> float | None:
    """Return (max - min) / median over the first six values; None ("n/a") for fewer than two.

    The definition of published tables, which have six groups a row. One sample has no spread: it is unknown, not 0.

    Raises
    ------
    StatisticsError
        One of two or more values is no real number, or not positive and finite: a median of 0 has no spread.
    """
    first = values[:SPREAD_GROUPS]
    if len(first) < 2:
        return None
    require_positive("spread", "values", first)
    return (max(first) - min(first)) / median(first)


def shows_noise(cards: Sequence[Sequence[float]]) -> bool:
    """Return whether each card has the values that it takes to tell how noisy it is."""
    return bool(cards) and min(map(len, cards)) >= NOISE_SAMPLES
