"""How numbers are written: rounding and units, chosen once a column; the same bytes in every locale."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from harness.model.figures import Ratio

NOTHING = "–"
"""Stands where there is no number."""


def speedup(value: float) -> str:
    """Return a ratio to three decimals, from 10 on and below 0.1 to three significant digits: ``1.061``, ``17.2``."""
    return f"{value:.3f}" if 0.1 <= value < 10 else _significant(value, 3)


def speedup_range(ratio: Ratio) -> str:
    """Return ``1.061 [1.056, 1.102]``: the row's ratio, and its least and largest group.

    Where the groups lie further apart than the ratio is large, two significant digits say all: ``1.2 [0.0073, 171]``.
    """
    wide = ratio.max - ratio.min >= ratio.median
    low, middle, high = (
        _significant(value, 2) if wide else speedup(value) for value in (ratio.min, ratio.median, ratio.max)
    )
    return f"{middle} [{low}, {high}]"


def _significant(value: float, digits: int) -> str:
    """Return at least ``digits`` significant digits of a positive number without an exponent; no digit is zeroed."""
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(value)))}f}"


def percent(value: float | None) -> str:
    """Return ``3.85 %``; from 100 % on without decimals: ``317 %``."""
    if value is None:
        return NOTHING
    hundredths = round(100 * value, 2)
    return f"{hundredths:.0f} %" if hundredths >= 100 else f"{hundredths:.2f} %"


def expected_rows(value: float) -> str:
    """Return a count that chance gives: ``0.6``, ``0.02``, ``under 0.01``."""
    if 0 < value < 0.01:
        return "under 0.01"
    return f"{value:.2f}" if value < 0.1 else f"{value:.1f}"


def joules(value: float) -> str:
    """Return an energy in J to three significant digits, without an exponent."""
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{decimals}f}"


def four_digits(value: float) -> str:
    """Return four significant digits without an exponent: 525.2, 3.142, 0.01234."""
    if value >= 1000:
        return f"{value:.0f}"
    decimals = next((d for d, bound in ((1, 100), (2, 10), (3, 1), (4, 0.1), (5, 0.01)) if value >= bound), 6)
    return f"{value:.{decimals}f}"


def counted(n: int, what: str) -> str:
    """Return ``1 row``, ``2 rows``."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUnit:
    """The unit of a column of times."""

    name: str
    ns: int
    decimals: int

    def format(self, time_ns: float | None) -> str:
        """Return the time in this unit, without the unit's name: that stands in the header."""
        return NOTHING if time_ns is None else f"{time_ns / self.ns:.{self.decimals}f}"


def time_unit(times_ns: Iterable[float | None]) -> TimeUnit:
    """Return one unit for all of these times: by the smallest, which shows four significant digits at least.

    Milliseconds to four decimals from 0.1 ms on, as published tables have them; fewer decimals for longer times.
    """
    smallest = min((time for time in times_ns if time is not None), default=1e6)
    if smallest < 1e3:
        return TimeUnit(name="ns", ns=1, decimals=1)
    if smallest < 1e5:
        return TimeUnit(name="us", ns=1_000, decimals=_decimals(smallest / 1e3, 3))
    if smallest < 1e10:
        return TimeUnit(name="ms", ns=1_000_000, decimals=_decimals(smallest / 1e6, 4))
    return TimeUnit(name="s", ns=1_000_000_000, decimals=_decimals(smallest / 1e9, 4))


def _decimals(smallest: float, most: int) -> int:
    """Return the decimals that give ``smallest`` five significant digits, ``most`` at most."""
    digits_before = len(str(int(smallest)))
    return max(0, min(most, 5 - digits_before))
