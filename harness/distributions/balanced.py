"""Every expert the same; the first ones get the remainder."""

from __future__ import annotations

from harness.distributions import Distribution, largest_remainder


class Sizes(Distribution):
    """Equal weights."""

    def group_sizes(self, *, E: int, M: int) -> tuple[int, ...]:
        """Return M // E each, and one more for the first M % E."""
        return largest_remainder([1] * E, M)
