"""What has no number, and why: coverage limits, failures, skipped, host-bound and missing rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from harness.model.figures import ReportRow
from harness.model.report import BEST_KNOWN, PREVIOUS, PREVIOUS_OF, SOTA, Limit, LimitKind, Missing, RowName
from harness.model.run import ArmInfo, Run, row_key
from harness.pages.summary.pool import PooledRow


def limits(
    pooled: tuple[PooledRow, ...],
    rows: tuple[ReportRow, ...],
    arms: tuple[ArmInfo, ...],
    new: ArmInfo,
    columns: tuple[str, ...],
) -> tuple[Limit, ...]:
    """Return each reason once with all its rows: 36 rows that lack an arm for one reason are one limit.

    They are ordered by kind, then by arm, then as they came up.
    """
    found: dict[tuple[LimitKind, str, str], dict[RowName, None]] = {}
    for pooled_row in pooled:
        name = _name(pooled_row)
        for key in _of_runs(pooled_row):
            found.setdefault(key, {})[name] = None
    for row in rows:
        name = _name(row)
        for key in _of_row(row, new, columns):
            found.setdefault(key, {})[name] = None
    names = [arm.name for arm in arms]
    ordered = sorted(
        found.items(),
        key=lambda item: (
            get_args(LimitKind).index(item[0][0]),
            names.index(item[0][1]) if item[0][1] in names else len(names),
        ),
    )
    return tuple(
        Limit(kind=kind, what=what, reason=reason, rows=tuple(names)) for (kind, what, reason), names in ordered
    )


def missing(runs: Sequence[Run]) -> tuple[Missing, ...]:
    """Return the runs that lack rows that they planned and no other one of ``runs`` has either, with those rows."""
    done = {row_key(row.regime, row.case) for run in runs for row in run.rows}
    lacking = ((run, tuple(key for key in run.planned if key not in done)) for run in runs)
    return tuple(Missing(run_id=run.run_id, planned=len(run.planned), rows=keys) for run, keys in lacking if keys)


def _of_runs(pooled: PooledRow) -> Iterator[tuple[LimitKind, str, str]]:
    """Yield what the runs say of a row.

    Why a regime leaves out a row reads ``what this row is; rows ... (the rule)``, and the rule is the same for all its
    rows. Any other reason is the row's own.
    """
    for measurement in pooled.measurements:
        for arm, outcome in measurement.row.arms.items():
            if outcome.status != "measured":
                yield outcome.status, arm, outcome.reason
    for reason in pooled.skipped:
        _, _, rule = reason.rpartition("; ")
        if rule.startswith("rows "):
            yield "other-regime", pooled.regime, rule
        else:
            yield "skipped", "", reason


def _of_row(row: ReportRow, new: ArmInfo, columns: tuple[str, ...]) -> Iterator[tuple[LimitKind, str, str]]:
    for bound in row.host_bound:
        yield "host-bound", bound, "the device waits for the host in more than 10 % of its span"
    figure = row.figure(new.name)
    if figure is None or figure.span_ns is None:
        yield "no-ratio", "", f"{new.name} has no time"
        return
    behind = {SOTA: row.sota, BEST_KNOWN: row.best_known, PREVIOUS: PREVIOUS_OF.get(new.name)}
    for column in columns:
        if row.ratio(column) is not None:
            continue
        arm = behind.get(column, column)
        known = row.figure(arm) if arm else None
        has_time = known is not None and known.span_ns is not None
        yield "no-ratio", column, f"never timed in a group with {new.name}" if has_time else "no time to compare with"


def _name(row: PooledRow | ReportRow) -> RowName:
    return RowName(device=row.device, regime=row.regime, case=row.case)
