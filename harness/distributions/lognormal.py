"""Random sizes as routers give them: lognormal weights in drawn order, the same for one seed."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.distributions import Distribution, largest_remainder
from harness.errors import ShapesError
from harness.strict import NotNegative


class Sizes(Distribution):
    """Lognormal weights from NumPy's ``Generator(PCG64(seed))``.

    Attributes
    ----------
    cv
        Coefficient of variation of the weights (standard deviation over mean), 0 to 100.
    seed
        Of the generator.
    empty
        How many of the last experts get nothing; the others are drawn and share M.
    """

    cv: Annotated[float, Field(ge=0, le=100)]
    seed: NotNegative = 0
    empty: NotNegative = 0

    def group_sizes(self, *, E: int, M: int) -> tuple[int, ...]:
        """Return E - ``empty`` drawn sizes, unsorted, then ``empty`` zeros."""
        live = E - self.empty
        if live < 0 or (live == 0 and M > 0):
            raise ShapesError(f"empty must be < E = {E}, or no expert is left for the M = {M} rows; got {self.empty}")
        # The mean of the logarithms scales all weights alike, so 0 will do.
        sigma = math.sqrt(math.log1p(self.cv**2))
        weights = np.random.Generator(np.random.PCG64(self.seed)).lognormal(0.0, sigma, live)
        drawn = largest_remainder([float(weight) for weight in weights], M) if live else ()
        return (*drawn, *(0,) * self.empty)
