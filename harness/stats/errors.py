"""What a test, an interval or an adjustment refuses to compute with."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Sequence
from numbers import Integral, Real
from typing import TypeGuard

from harness.errors import HarnessError

NUMBER = (float, int, Real)
"""What isinstance takes for a real number; the first two are Real too, and asked first because an ABC is slow."""


class StatisticsError(HarnessError, ValueError):
    """An argument has no place in the statistic: a NaN, a string, an empty side, a p-value of 0, a confidence of 95."""


def require_collection(of: str, name: str, values: object) -> Collection[object]:
    """Return the values, of any kind and number; raise StatisticsError if they are no collection."""
    if not isinstance(values, Collection):
        raise StatisticsError(f"{of}: {name} must be a sequence of numbers, got {values!r}; pass a list of them")
    return values


def require_finite(of: str, name: str, values: object) -> None:
    """Raise StatisticsError if there is no value, or one is no real number, NaN, infinite or too large for a float."""
    found = require_collection(of, name, values)
    if not len(found):
        raise StatisticsError(f"{of}: {name} must hold at least one value, got none; report the row as missing")
    for index, value in enumerate(found):
        if not is_finite(value, of, f"{name}[{index}]"):
            raise StatisticsError(
                f"{of}: {name}[{index}] must be finite, got {value}; report the row as failed, do not drop the value"
            )


def is_finite(value: object, of: str, name: str) -> TypeGuard[float]:
    """Return whether ``value`` is finite; raise StatisticsError if it is no real number or too large for a float."""
    if not isinstance(value, NUMBER):
        raise StatisticsError(f"{of}: {name} must be a real number, got {value!r}; report the row as missing")
    try:
        return math.isfinite(value)
    except OverflowError as error:  # the value itself may be too long to print
        raise StatisticsError(
            f"{of}: {name} must not exceed the largest float, {sys.float_info.max}, got"
            f" {type(value).__name__} beyond it; take a larger unit"
        ) from error


def require_positive(of: str, name: str, values: Sequence[float]) -> None:
    """Raise StatisticsError if ``require_finite`` does, or a value is zero or negative."""
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


def require_confidence(of: str, confidence: object) -> None:
    """Raise StatisticsError unless 0 < confidence < 1."""
    if not (isinstance(confidence, Real) and confidence < 1 and not confidence <= 0):
        raise StatisticsError(f"{of}: confidence must lie between 0 and 1, got {confidence!r}; say 0.95 for 95 %")


def require_integer(of: str, name: str, value: object, least: int) -> None:
    """Raise StatisticsError unless ``value`` is an integer >= ``least``."""
    if not (isinstance(value, int | Integral) and int(value) >= least):
        raise StatisticsError(f"{of}: {name} must be an integer >= {least}, got {value!r}; pass a whole number")
