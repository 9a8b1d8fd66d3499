"""Printed numbers: what the unrounded value behind the digits may have been."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from harness.stats.geomean import geomean

NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,15})?"
"""Longer ones are not read: no time and no ratio has so many digits."""
COUNT = r"[0-9]{1,9}"
_TIMES = r"(?:\s*[x×](?![a-z]))?"
_MARK = r"[*†‡§¹²³⁴⁵]*"
_DASH = r"(?:\s*[-–—−~]\s*|\s*[,;…]\s*|\s+to\s+|\s*\.\.\.?\s*)"
RANGE = rf"(?:\[|\()?\s*(?P<low>{NUMBER}){_TIMES}{_DASH}(?P<high>{NUMBER}){_TIMES}\s*(?:\]|\))?"

_REST = (
    rf"(?:\s*[,;]?\s*(?:n\s*=?\s*)?{COUNT}\s+of\s+{COUNT})?(?:\s*[,;]?\s*busy\s+(?:{NUMBER}|[-–—]))?"
    rf"(?:\s+\(?[a-z]\)?)?{_MARK}\s*"
)
"""What else a ratio's cell may hold: ``2 of 22``, ``busy 1.017``, the letter of an arm."""
_RATIO = re.compile(
    rf"[~≈]?\s*(?P<value>{NUMBER}){_TIMES}{_MARK}(?:(?:\s*[,;]?\s*(?=[\[(])|\s*[,;]\s*|\s+){RANGE}{_MARK})?"
    rf"(?P<rest>{_REST})",
    re.I,
)
_COMMA = re.compile(r"(?<![.\d])\d+,\d")
"""``1,149`` is 1.149 or 1149: it is not read."""
_ONLY_RANGE = re.compile(RANGE, re.I)
_LATENCY = re.compile(
    rf"(?:\(?(?P<before>[a-z])\)?\s+)?(?P<value>{NUMBER})\s*(?P<unit>ms|us|µs|μs|ns|s)?{_MARK}\s*\(?(?P<after>[a-z])?\)?{_MARK}",
    re.I,
)
_NOT_FINITE = re.compile(r"[-+−]?\s*(?:nan|inf(?:inity)?\b|∞)", re.I)
CELLS = 1 << 12
"""Cells of a page that are kept as they were read: each is asked for by several checks, in exact arithmetic."""
SLACK = 1e-9
"""Relative: what floating point may miss in a product of a hundred ratios, far below any printed digit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where an unrounded value may lie, both ends included."""

    low: Fraction
    high: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A decimal number as it stands on the page: ``value`` is exact, ``low`` to ``high`` what rounds to its digits."""

    text: str
    value: Fraction
    low: Fraction
    high: Fraction

    def meets(self, other: Interval | Printed) -> bool:
        """Return whether one value fits both.

        Ends that only touch do not: two roundings of one value to equally many decimals are the same digits.
        """
        return self.low < other.high and other.low < self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A cell with a ratio, with its range where it has one, and what else stands in the cell."""

    value: Printed
    low: Printed | None = None
    high: Printed | None = None
    rest: str = ""

    def __str__(self) -> str:
        """Return the ratio as the page prints it, in one form."""
        return (
            self.value.text
            if self.low is None or self.high is None
            else f"{self.value.text} [{self.low.text}, {self.high.text}]"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A cell with a time; ``key`` is the letter of the arm beside it, ``unit`` that in the cell; both may be empty."""

    value: Printed
    key: str
    unit: str


@lru_cache(maxsize=CELLS)
def printed(text: str) -> Printed:
    """Return the number of plain digits, rounded by half a unit of its last digit at most; an integer too."""
    value, half = Fraction(text), Fraction(1, 2 * 10 ** len(text.partition(".")[2]))
    return Printed(text=text, value=value, low=value - half, high=value + half)


def has_number(cell: str) -> bool:
    """Return whether a cell claims a number: a digit, or NaN and infinity, which no measurement gives.

    Any other says that there is none (``–``, ``failed``).
    """
    return any(char.isdecimal() for char in cell) or _NOT_FINITE.match(cell.strip()) is not None


@lru_cache(maxsize=CELLS)
def ratio(cell: str) -> Ratio | None:
    """Return the ratio of a cell such as ``1.009 [0.998, 1.042]``, ``1.005x (0.988–1.017)`` or ``1.028``.

    None where anything in the cell has no known form: half a cell is never read.
    """
    found = None if _COMMA.search(cell) else _RATIO.fullmatch(cell.strip())
    if found is None or Fraction(found["value"]) <= 0:
        return None
    low, high = found["low"], found["high"]
    return Ratio(
        value=printed(found["value"]),
        low=printed(low) if low else None,
        high=printed(high) if high else None,
        rest=found["rest"].strip(" ,;"),
    )


def only_range(cell: str) -> tuple[Printed, Printed] | None:
    """Return the ends of a cell that holds nothing but a range."""
    found = None if _COMMA.search(cell) else _ONLY_RANGE.fullmatch(cell.strip())
    return (printed(found["low"]), printed(found["high"])) if found else None


@lru_cache(maxsize=CELLS)
def latency(cell: str) -> Latency | None:
    """Return the time of a cell such as ``1.9277 t``, ``1.9277 ms (t)`` or ``1.9277``."""
    found = _LATENCY.fullmatch(cell.strip())
    if found is None or Fraction(found["value"]) <= 0:
        return None
    return Latency(
        value=printed(found["value"]),
        key=(found["before"] or found["after"] or "").lower(),
        unit=(found["unit"] or "").lower(),
    )


def geomean_interval(values: Sequence[Printed]) -> Interval:
    """Return where the geometric mean of the unrounded values lies: it grows with each of them."""
    low, high = (geomean([float(end) for end in ends]) for ends in ([v.low for v in values], [v.high for v in values]))
    return Interval(low=Fraction(low * (1 - SLACK)), high=Fraction(high * (1 + SLACK)))


def least(values: Sequence[Printed]) -> Interval:
    """Return where the least of the unrounded values lies."""
    return Interval(low=min(v.low for v in values), high=min(v.high for v in values))


def largest(values: Sequence[Printed]) -> Interval:
    """Return where the largest of the unrounded values lies."""
    return Interval(low=max(v.low for v in values), high=max(v.high for v in values))


def shown(interval: Interval, *, decimals: int = 4) -> str:
    """Return an interval in words: ``1.0043 to 1.0054``."""
    scale = 10**decimals
    low, high = math.floor(interval.low * scale), math.ceil(interval.high * scale)
    return f"{low / scale:.{decimals}f} to {high / scale:.{decimals}f}"
