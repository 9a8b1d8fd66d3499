"""What a test, an interval or an adjustment refuses to compute with."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.errors import HarnessError


class StatisticsError(HarnessError, ValueError):
    """An argument has no place in the statistic: a NaN, an empty side, a p-value of 0, a confidence of 95."""


def require_finite(of: str, name: str, values: Sequence[float]) -> None:
    """Raise StatisticsError if there is no value, or one is NaN or infinite."""
    if not len(values):
        raise StatisticsError(f"{of}: {name} must hold at least one value, got none; report the row as missing")
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise StatisticsError(
                f"{of}: {name}[{index}] must be finite, got {value}; report the row as failed, do not drop the value"
            )


def require_positive(of: str, name: str, values: Sequence[float]) -> None:
    """Raise StatisticsError if there is no value, or one is zero, negative, NaN or infinite."""
    require_finite(of, name, values)
    for index, value in enumerate(values):
        if value <= 0:
            raise StatisticsError(
                f"{of}: {name}[{index}] must be positive, got {value}; report the row as failed, do not drop the value"
            )


def require_at_most(of: str, what: str, count: int, most: int) -> None:
    """Raise StatisticsError if there are more values than the exact distribution is computed for."""
    if count > most:
        raise StatisticsError(
            f"{of}: the exact test takes at most {most} {what}, got {count}; pass the median of each block of samples"
        )


def require_confidence(of: str, confidence: float) -> None:
    """Raise StatisticsError unless 0 < confidence < 1."""
    if not 0 < confidence < 1:
        raise StatisticsError(f"{of}: confidence must lie between 0 and 1, got {confidence}; say 0.95 for 95 %")
