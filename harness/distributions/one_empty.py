"""The last expert empty, the others equal."""

from __future__ import annotations

from harness.distributions import Distribution, largest_remainder
from harness.errors import ShapesError


class Sizes(Distribution):
    """Equal weights, and none for the last."""

    def group_sizes(self, *, E: int, M: int) -> tuple[int, ...]:
        """Return M over the first E - 1 experts, the first ones with the remainder, then 0."""
        if E == 1 and M > 0:
            raise ShapesError(f"E must be >= 2 with one_empty, or no expert is left for the M = {M} rows; got 1")
        return (*(largest_remainder([1] * (E - 1), M) if E > 1 else ()), 0)
