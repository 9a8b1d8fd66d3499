"""The geomean of named rows, with the rows that have no place in it listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.stats.errors import is_finite
from harness.stats.geomean_interval import geomean_interval
from harness.stats.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFailure:
    """A row whose ratio is no ratio.

    Attributes
    ----------
    row
        The row's name.
    value
        What stood for its ratio: NaN, infinite, zero or negative.
    """

    row: str
    value: float

    @property
    def reason(self) -> str:
        """What is wrong, as a table prints it."""
        return f"ratio must be positive and finite, got {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsGeomean:
    """A geomean over rows.

    Attributes
    ----------
    interval
        Geomean and bootstrap interval over ``rows``; None where no row has a ratio.
    rows
        Names of the rows in it, in the order given.
    failures
        The other rows, in the order given. While there is one, the geomean is not that of the table.
    """

    interval: Interval | None
    rows: tuple[str, ...]
    failures: tuple[RowFailure, ...]


def geomean_over_rows(
    ratios: Mapping[str, float], *, seed: int, confidence: float = 0.95, resamples: int = 10_000
) -> RowsGeomean:
    """Return ``geomean_interval`` over the rows that have a ratio, and list every other row as a failure.

    ``ratios`` are by row's name. The other arguments, and what is repeatable, are those of ``geomean_interval``.

    Raises
    ------
    StatisticsError
        A ratio is no real number or too large for a float, the confidence is no probability, the seed is no integer
        >= 0, or there are too few resamples.
    """
    sound = {
        row: ratio
        for row, ratio in ratios.items()
        if is_finite(ratio, "geomean_over_rows", f"the ratio of row {row!r}") and ratio > 0
    }
    interval = None
    if sound:
        interval = geomean_interval(tuple(sound.values()), seed=seed, confidence=confidence, resamples=resamples)
    return RowsGeomean(
        interval=interval,
        rows=tuple(sound),
        failures=tuple(RowFailure(row=row, value=ratio) for row, ratio in ratios.items() if row not in sound),
    )
