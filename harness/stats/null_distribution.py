"""What a rank statistic does where the null hypothesis holds: exact counts, in integers of any size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from harness.stats.errors import StatisticsError

Alternative = Literal["two-sided", "less", "greater"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NullDistribution:
    """In how many of the equally likely cases an integer statistic takes each of its values.

    Attributes
    ----------
    least
        The smallest value that occurs.
    counts
        ``counts[i]`` cases have the value ``least + i``; the first and the last are not 0.
    """

    least: int
    counts: tuple[int, ...]

    def p_value(self, observed: int, alternative: Alternative) -> float:
        """Return the share of cases at least as extreme as ``observed``; two-sided, min(1, 2 * the smaller tail).

        A quotient of two integers, rounded once: never 0, and never below ``min_p_value``.
        """
        place = observed - self.least
        below, above = sum(self.counts[: place + 1]), sum(self.counts[place:])
        total = sum(self.counts)
        match alternative:
            case "less":
                return below / total
            case "greater":
                return above / total
            case "two-sided":
                return min(total, 2 * min(below, above)) / total
        raise StatisticsError(f"alternative must be two-sided, less or greater, got {alternative!r}")

    def min_p_value(self, alternative: Alternative) -> float:
        """Return the smallest p-value that any data with this distribution can have."""
        ends = self.least, self.least + len(self.counts) - 1
        return min(self.p_value(end, alternative) for end in ends)

    def depth(self, confidence: float) -> int:
        """Return how many of the lowest values together have a probability of at most (1 - confidence) / 2.

        ``confidence`` is taken as it is written in decimal: 1 - 0.9 is 1/10, which in binary it is not.
        """
        tail = math.floor((1 - Fraction(str(confidence))) / 2 * sum(self.counts))
        return sum(below <= tail for below in itertools.accumulate(self.counts))


def sums_of_subsets(weights: Sequence[int], size: int) -> NullDistribution:
    """Return the sum of ``size`` of the weights, all subsets equally likely.

    ``weights`` are integers >= 0. The counts are the coefficients of y^size in the product of (1 + y x^w): the shift
    algorithm of Streitberg and Röhmel (Statistical Software Newsletter 12, 1986). A polynomial in x is held as one
    Python integer, a slot of bytes a coefficient, so that to multiply by x^w is to shift; a slot holds 2^len(weights).
    """
    return _sums_of_subsets(tuple(sorted(weights)), size)


@lru_cache(maxsize=16)  # all rows of a comparison without ties have the same ranks
def _sums_of_subsets(weights: tuple[int, ...], size: int) -> NullDistribution:
    slot = _slot(weights)
    sums = [1] + [0] * size
    for weight in weights:
        for taken in range(size, 0, -1):
            sums[taken] += sums[taken - 1] << 8 * slot * weight
    return _unpacked(sums[size], slot)


def sums_of_signs(weights: Sequence[int]) -> NullDistribution:
    """Return the sum of the weights whose sign is positive, all signs equally likely: subsets of every size."""
    slot = _slot(weights)
    sums = 1
    for weight in weights:
        sums += sums << 8 * slot * weight
    return _unpacked(sums, slot)


def heads(n: int) -> NullDistribution:
    """Return the count of heads in ``n`` tosses of a fair coin."""
    return NullDistribution(least=0, counts=tuple(math.comb(n, k) for k in range(n + 1)))


def _slot(weights: Sequence[int]) -> int:
    """Return the bytes that no coefficient overflows."""
    return len(weights) // 8 + 1


def _unpacked(packed: int, slot: int) -> NullDistribution:
    raw = packed.to_bytes((packed.bit_length() + 7) // 8, "little")
    counts = [int.from_bytes(raw[at : at + slot], "little") for at in range(0, len(raw), slot)]
    least = next(place for place, count in enumerate(counts) if count)
    return NullDistribution(least=least, counts=tuple(counts[least:]))
