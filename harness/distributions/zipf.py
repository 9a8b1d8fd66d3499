"""Zipf's law: weights 1 / (i + 1)^s, descending."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

from pydantic import Field

from harness.distributions import Distribution, largest_remainder


class Sizes(Distribution):
    """Power-law weights.

    Attributes
    ----------
    s
        The exponent, 0 to 16: 0 is balanced, 1 is skew, 16 leaves the second expert one row in 65,536.
    """

    s: Annotated[float, Field(ge=0, le=16)]

    def group_sizes(self, *, E: int, M: int) -> tuple[int, ...]:
        """Return sizes in proportion to 1, 2^-s, ..., E^-s."""
        # A whole exponent has exact weights, so zipf:1 is skew to the last row.
        if self.s.is_integer():
            return largest_remainder([Fraction(1, (i + 1) ** int(self.s)) for i in range(E)], M)
        return largest_remainder([float(i + 1) ** -self.s for i in range(E)], M)
