"""Speedup of one arm over another, group by group."""

from __future__ import annotations

import math
from collections.abc import Sequence


def ratios(baseline: Sequence[float], new: Sequence[float]) -> tuple[float, ...]:
    """Return baseline / new of each paired group: above 1, new is faster.

    Both sequences are in the order of the groups. A group is paired by design: its two values were measured close
    together in time, so that what drifts (clock, heat) drops out of the ratio. The definition is that of the method,
    version 1: a row is the median of these, with their least and largest value beside it.

    Raises
    ------
    ValueError
        The sequences differ in length, or a value is not positive and finite.
    """
    if len(baseline) != len(new):
        raise ValueError(
            f"ratios need one value of each arm a group, got {len(baseline)} of baseline and {len(new)} of new"
        )
    for title, values in (("baseline", baseline), ("new", new)):
        for group, value in enumerate(values):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"ratios: {title}[{group}] must be positive and finite, got {value}")
    return tuple(b / n for b, n in zip(baseline, new, strict=True))
