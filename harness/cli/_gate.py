"""``--fail-below``, and which exit code measured runs give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from harness.errors import ExitCode, NothingMeasured
from harness.model.report import SOTA, Report
from harness.model.run import Run
from harness.pages.summary import below

Command = TypeVar("Command", bound=Callable[..., Any])


def fail_below(command: Command) -> Command:
    """Add the option."""
    return click.option(
        "--fail-below",
        type=click.FloatRange(min=0, min_open=True),
        callback=_finite,
        metavar="R",
        help="Exit with 1 if a geomean of SOTA / new, of spans or of busy times, is below R.",
    )(command)


def _finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:  # noqa: ARG001 - click's
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} must be a finite number, such as 0.98")
    return value


def exit_code(runs: Sequence[Run], report: Report, limit: float | None) -> ExitCode:
    """Return the exit code; of several that hold the contract's order decides: 1, 5, 3.

    Raises
    ------
    NothingMeasured
        No row has a time, or ``limit`` was given and there is no geomean to hold against it.
    """
    low = below(report, limit) if limit is not None else ()
    for geomean in low:
        what = f"{geomean.op} {geomean.row_class} {geomean.regime} {geomean.metric}"
        against = "fastest other of t, c, d" if SOTA in report.notes else "SOTA"
        click.echo(f"below {limit:g}: {against} / {geomean.new}, {what} {geomean.value:.3f}", err=True)
    if low:
        return ExitCode.BELOW
    if any(outcome.status == "failed" for run in runs for row in run.rows for outcome in row.arms.values()):
        return ExitCode.FAILED_ROWS
    if not any(len(row.samples) for run in runs for row in run.rows):
        raise NothingMeasured("nothing measured: " + _why_nothing(runs))
    if limit is not None and not any(g.against == SOTA and g.value is not None for g in report.geomeans):
        raise NothingMeasured(
            f"--fail-below: no row has a time of {report.new.name} and of SOTA, so nothing was compared"
        )
    return ExitCode.OK


def _why_nothing(runs: Sequence[Run]) -> str:
    rows = [row for run in runs for row in run.rows]
    reasons = [row.skipped for row in rows if row.skipped]
    reasons += [f"{name}: {outcome.reason}" for row in rows for name, outcome in row.arms.items()]
    return "; ".join(dict.fromkeys(reasons)) or "there are no rows"
