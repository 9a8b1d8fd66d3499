"""A few rows for every expert, as a decode step gives them: integers between two bounds, in drawn order."""

from __future__ import annotations

import numpy as np

from harness.distributions import Distribution, largest_remainder
from harness.errors import ShapesError
from harness.strict import NotNegative, Positive


class Sizes(Distribution):
    """Integers from NumPy's ``Generator(PCG64(seed))``, each from ``low`` to ``high`` equally likely, brought to M.

    Attributes
    ----------
    high
        The most rows of an expert, 1 or more.
    low
        The fewest.
    seed
        Of the generator.
    """

    high: Positive
    low: NotNegative = 1
    seed: NotNegative = 0

    def group_sizes(self, *, E: int, M: int) -> tuple[int, ...]:
        """Return E drawn sizes; what M has more or less is given or taken in proportion to the room to that bound."""
        if self.low > self.high:
            raise ShapesError(f"low must be <= high = {self.high}, got {self.low}")
        if not E * self.low <= M <= E * self.high:
            bounds = f"{self.low} to {self.high} rows for each of E = {E}"
            raise ShapesError(f"M must be in {E * self.low}..{E * self.high} with {bounds}, got {M}")
        generator = np.random.Generator(np.random.PCG64(self.seed))
        drawn = generator.integers(self.low, self.high, E, endpoint=True).tolist()
        missing = M - sum(drawn)
        if not missing:
            return tuple(drawn)
        sign, bound = (1, self.high) if missing > 0 else (-1, self.low)
        changes = largest_remainder([sign * (bound - size) for size in drawn], sign * missing)
        return tuple(size + sign * change for size, change in zip(drawn, changes, strict=True))
