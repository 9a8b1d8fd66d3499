"""Speedup of one arm over another, group by group."""

from __future__ import annotations

from collections.abc import Sequence

from harness.stats.errors import StatisticsError, require_positive


def ratios(baseline: Sequence[float], new: Sequence[float]) -> tuple[float, ...]:
    """Return baseline / new of each paired group: above 1, new is faster.

    Both sequences are in the order of the groups. A group is paired by design: its two values were measured close
    together in time, so that what drifts (clock, heat) drops out of the ratio. The definition is that of the method,
    version 1: a row is the median of these, with their least and largest value beside it.

    Raises
    ------
    StatisticsError
        There is no group, the sequences differ in length, or a value is no real number, or not positive and finite.
    """
    require_positive("ratios", "baseline", baseline)
    require_positive("ratios", "new", new)
    if len(baseline) != len(new):
        raise StatisticsError(
            f"ratios: each group must have one value of each arm, got {len(baseline)} of baseline and {len(new)} of"
            " new; leave out groups that lack one"
        )
    return tuple(b / n for b, n in zip(baseline, new, strict=True))
