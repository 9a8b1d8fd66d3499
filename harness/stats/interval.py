"""An estimate with its confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.stats.errors import StatisticsError, is_finite, require_confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimated ratio and the closed interval around it.

    Attributes
    ----------
    estimate
        The ratio, dimensionless.
    low, high
        Both belong to the interval. Too few values for the confidence give 0 and infinity: never a narrower interval.
    confidence
        Probability, 0 to 1, that an interval made so covers the true ratio: at least this much.

    Raises
    ------
    StatisticsError
        The confidence is not between 0 and 1, an end or the estimate is no real number, or the estimate lies outside
        the interval.
    """

    estimate: float
    low: float
    high: float
    confidence: float

    def __post_init__(self) -> None:
        require_confidence("Interval", self.confidence)
        for name in ("estimate", "low", "high"):
            is_finite(getattr(self, name), "Interval", name)  # an end may be infinite, but is a number
        if not self.low <= self.estimate <= self.high:
            raise StatisticsError(
                f"Interval: estimate must lie in [low, high], got {self.estimate} and [{self.low}, {self.high}]"
            )

    @property
    def bounded(self) -> bool:
        """Whether both ends say something: a page prints "n/a" for an end at 0 or at infinity."""
        return self.low > 0 and math.isfinite(self.high)
