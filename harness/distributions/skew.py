"""Weights 1 / (i + 1): the first expert twice the second, three times the third."""

from __future__ import annotations

from fractions import Fraction

from harness.distributions import Distribution, largest_remainder


class Sizes(Distribution):
    """Harmonic weights, descending."""

    def group_sizes(self, *, E: int, M: int) -> tuple[int, ...]:
        """Return sizes in proportion to 1, 1/2, ..., 1/E."""
        return largest_remainder([Fraction(1, i + 1) for i in range(E)], M)
