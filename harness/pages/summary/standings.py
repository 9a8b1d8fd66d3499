"""How the rows stand in one column: gains, regressions, rows wholly on one side, spread."""

from __future__ import annotations

from harness.model.figures import ReportRow
from harness.model.report import RowRatio, Standing
from harness.pages.summary.roles import counts
from harness.stats.chance import highest_by_chance, rows_by_chance
from harness.stats.median import median
from harness.stats.percentile import percentile
from harness.stats.spread import shows_noise

LISTED = 5
"""Rows that a list of gains or regressions names."""


def standings(rows: tuple[ReportRow, ...], columns: tuple[str, ...]) -> tuple[Standing, ...]:
    """Return one a device, regime and column that has a ratio; regimes and devices never share a count."""
    places = dict.fromkeys((row.device, row.regime) for row in rows)
    every = (_standing(rows, device, regime, column) for device, regime in places for column in columns)
    return tuple(standing for standing in every if standing.rows)


def _standing(rows: tuple[ReportRow, ...], device: str, regime: str, against: str) -> Standing:
    here = tuple(
        RowRatio(row=row, ratio=ratio)
        for row in rows
        if (row.device, row.regime) == (device, regime) and counts(row, against) and (ratio := row.ratio(against))
    )
    above = sorted((r for r in here if r.ratio.median > 1), key=lambda r: (-r.ratio.median, r.row.case.case_id))
    below = sorted((r for r in here if r.ratio.median < 1), key=lambda r: (r.ratio.median, r.row.case.case_id))
    apart = tuple(r for r in here if r.ratio.clocks_apart)
    noisy = [r.ratio for r in here if shows_noise(r.ratio.groups)]
    spreads = [ratio.spread for ratio in noisy if ratio.spread is not None]
    return Standing(
        device=device,
        regime=regime,
        against=against,
        rows=here,
        gains=tuple(above[:LISTED]),
        regressions=tuple(below[:LISTED]),
        above=len(above),
        below=len(below),
        wholly_above=tuple(r for r in here if r.ratio.min > 1),
        wholly_below=tuple(r for r in here if r.ratio.max < 1),
        chance=rows_by_chance(r.ratio.n for r in here),
        chance_high=highest_by_chance(ratio.groups for ratio in noisy) if len(noisy) > 1 else None,
        spread_median=median(spreads) if spreads else None,
        spread_p90=percentile(spreads, 90) if spreads else None,
        spread_rows=len(spreads),
        clock_rows=sum(r.ratio.clock is not None for r in here),
        clocks_apart=apart,
        cycles_disagree=tuple(r for r in apart if r.ratio.cycles_disagree),
    )
