"""All rows in one expert, the others empty."""

from __future__ import annotations

from harness.distributions import Distribution
from harness.errors import ShapesError
from harness.strict import NotNegative


class Sizes(Distribution):
    """One expert takes everything.

    Attributes
    ----------
    expert
        Its index, from 0.
    """

    expert: NotNegative = 0

    def group_sizes(self, *, E: int, M: int) -> tuple[int, ...]:
        """Return M at ``expert`` and 0 elsewhere."""
        if self.expert >= E:
            raise ShapesError(f"expert must be < E = {E}, got {self.expert}")
        return tuple(M if index == self.expert else 0 for index in range(E))
