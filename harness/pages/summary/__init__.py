"""Run -> Report: what the samples of one or several runs say; pure, and the same whatever the order of rows and arms.

``roles`` says which arm is what, ``pool`` puts several runs together, ``rows`` makes a row's numbers, ``floors`` those
that its machine's rates give, ``geomeans``, ``standings``, ``aa``, ``clock_energy`` and ``limits`` look over all rows;
``states``, ``discards`` and ``tracer`` say what else a run recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.model.report import Report
from harness.model.run import Run
from harness.pages.summary.aa import aa_standings
from harness.pages.summary.clock_energy import clock_energy
from harness.pages.summary.floors import floor_standings, with_floor
from harness.pages.summary.geomeans import below, geomeans
from harness.pages.summary.limits import limits, missing
from harness.pages.summary.notes import notes
from harness.pages.summary.pool import check_poolable, environments, merge_arms, pool, without
from harness.pages.summary.roles import choose_columns, choose_new
from harness.pages.summary.rows import report_row
from harness.pages.summary.standings import standings
from harness.pages.summary.tracer import launches, record_counts

__all__ = ["below", "summarise", "without"]


def summarise(
    runs: Sequence[Run], *, new: str | None = None, against: Sequence[str] = (), left_out: Sequence[str] = ()
) -> Report:
    """Return what ``runs`` say; several runs pool, a row's numbers being the median over the cards.

    Parameters
    ----------
    new
        The arm that the ratios divide by; by default the first of ``cake_nondet``, ``cake_det`` that has a time
        anywhere, else the first arm that has one.
    against
        Arms to compare with, beside the roles SOTA and best known.
    left_out
        Arms that ran and that the report shall not know of but by name.

    Raises
    ------
    UnknownName
        ``new``, ``against`` or ``left_out`` names an arm that no run has.
    UsageError
        ``new`` or ``against`` is a twin, or both are one arm.
        ``left_out`` names every arm, or one whose twin stays.
        The runs cannot be pooled (:func:`check_poolable`).
    """
    runs = without(runs, left_out)
    check_poolable(runs)
    places = environments(runs)
    arms = merge_arms(runs)
    pooled = pool(runs, places)
    timed = {name for row in pooled for name in row.timed}
    timed_in_steps = {name for row in pooled if row.case.is_step for name in row.timed}
    new_arm = choose_new(arms, timed, new)
    columns = choose_columns(arms, timed, timed_in_steps, new_arm, against)
    rows = tuple(
        with_floor(report_row(row, arms, new_arm, columns), row, new_arm) for row in pooled if row.measurements
    )
    return Report(
        new=new_arm,
        columns=columns,
        arms=arms,
        timer=runs[0].timer,
        heading="; ".join(dict.fromkeys(run.heading for run in runs)),
        protocol=runs[0].protocol,
        method_version=runs[0].method_version,
        revision=runs[0].revision,
        previous_revision=next((run.previous.revision for run in runs if run.previous), ""),
        notes=notes(runs, new_arm, left_out),
        run_ids=tuple(run.run_id for run in runs),
        seeds=tuple(sorted({run.seed for run in runs})),
        environments=places,
        rows=rows,
        geomeans=geomeans(rows, runs, new_arm, columns),
        standings=standings(rows, columns),
        floors=floor_standings(rows),
        aa=aa_standings(rows, arms),
        clock_energy=clock_energy(rows, arms, new_arm),
        records=record_counts(runs),
        launches=launches(runs, arms),
        limits=limits(pooled, rows, arms, new_arm, columns),
        missing=missing(runs),
    )
