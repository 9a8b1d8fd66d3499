"""Geometric means of an operation and row class, and those below a limit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.errors import UsageError
from harness.model.case import OPS
from harness.model.figures import ReportRow
from harness.model.report import SOTA, Geomean, Metric, Report
from harness.model.run import ArmInfo, Run
from harness.pages.summary.roles import counts
from harness.stats.geomean import geomean
from harness.stats.median import median
from harness.stats.spread import shows_noise

Class = tuple[str, str, str]
"""Suite, operation and row class."""


def geomeans(
    rows: tuple[ReportRow, ...], runs: Sequence[Run], new: ArmInfo, columns: tuple[str, ...]
) -> tuple[Geomean, ...]:
    """Return one a device, regime, suite, operation, row class, column and metric (busy only where a row has it).

    Suites are never merged: two may hold the same shape. A row enters where both new and the baseline have times in one
    paired group and no arm is host-bound. Rows that only one side has are not counted, and never as zero.
    """
    expected = _expected(rows, runs)
    classes: dict[tuple[str, str, Class], list[ReportRow]] = {}
    for row in rows:
        classes.setdefault((row.device, row.regime, _class(row)), []).append(row)
    places = list(dict.fromkeys((row.device, row.regime) for row in rows))
    ordered = sorted(classes, key=lambda c: (places.index(c[:2]), c[2][0], OPS.index(c[2][1]), c[2][2]))
    has_busy = any(ratio.busy_median is not None for row in rows for ratio in row.ratios)
    metrics: tuple[Metric, ...] = ("span", "busy") if has_busy else ("span",)
    return tuple(
        _geomean(key, classes[key], new.name, column, metric, expected[key[2]])
        for key in ordered
        for column in columns
        for metric in metrics
    )


def below(report: Report, limit: float) -> tuple[Geomean, ...]:
    """Return the geomeans of SOTA / new that lie below ``limit``, of spans and, where known, of busy times.

    Raises
    ------
    UsageError
        ``limit`` is no positive number.
    """
    if not (math.isfinite(limit) and limit > 0):
        raise UsageError(f"the limit of a geomean must be a positive number, got {limit}")
    return tuple(g for g in report.geomeans if g.against == SOTA and g.value is not None and g.value < limit)


def _class(row: ReportRow) -> Class:
    return row.case.suite, row.case.op, row.case.shape.row_class


def _geomean(
    key: tuple[str, str, Class], rows: list[ReportRow], new: str, against: str, metric: Metric, expected_n: int
) -> Geomean:
    found = [ratio for row in rows if counts(row, against) and (ratio := row.ratio(against)) is not None]
    each = (ratio.median if metric == "span" else ratio.busy_median for ratio in found)
    values = [value for value in each if value is not None]
    spreads = [r.spread for r in found if metric == "span" and r.spread is not None and shows_noise(r.groups)]
    device, regime, (suite, op, row_class) = key
    return Geomean(
        device=device,
        regime=regime,
        suite=suite,
        op=op,
        row_class=row_class,
        new=new,
        against=against,
        metric=metric,
        value=geomean(values) if values else None,
        low=min(values, default=None),
        high=max(values, default=None),
        n=len(values),
        expected_n=expected_n,
        spread=median(spreads) if spreads else None,
    )


def _expected(rows: tuple[ReportRow, ...], runs: Sequence[Run]) -> dict[Class, int]:
    """Return how many rows each suite has of each operation and class; of ad-hoc shapes, how many there are."""
    counts: dict[Class, int] = {}
    for run in runs:
        for entry in run.suite_counts:
            key = (entry.suite, entry.op, entry.row_class)
            if counts.setdefault(key, entry.count) != entry.count:
                raise UsageError(
                    f"suite {entry.suite!r} has {counts[key]} rows of {entry.op} {entry.row_class} in one run and"
                    f" {entry.count} in run {run.run_id!r}; report them one by one"
                )
    seen: dict[Class, set[str]] = {}
    for row in rows:
        seen.setdefault(_class(row), set()).add(row.case.case_id)
    return {key: len(ids) for key, ids in seen.items()} | counts
