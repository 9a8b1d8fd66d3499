"""The lines about what has no number: failures, coverage limits, skipped, host-bound and missing rows."""

from __future__ import annotations

from harness.model.case import Case
from harness.model.report import Limit, Missing, Report
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape

FAILED_NAMED = 10
"""Failed or missing rows that a line names."""


def failure_lines(report: Report) -> tuple[str, ...]:
    """Return one line an arm and reason; every failed row counts, so that up to ten are named."""
    return tuple(
        f"**{_arm(report, limit.what)}**, {words.rows(_cases(limit), named=FAILED_NAMED)}: {escape(limit.reason)}"
        for limit in report.limits_of("failed")
    )


def coverage_lines(report: Report) -> tuple[str, ...]:
    """Return what arms cannot do, rows that were not tried, and rows that a run planned and has not."""
    unsupported = (
        f"**{_arm(report, limit.what)}**, {_rows(report, limit)}: {escape(limit.reason)}"
        for limit in report.limits_of("unsupported")
    )
    skipped = (
        f"Not tried: {words.rows(_cases(limit), named=FAILED_NAMED)}: {escape(limit.reason)}"
        for limit in report.limits_of("skipped")
    )
    return (*unsupported, *skipped, *(_missing(missing) for missing in report.missing))


def excluded_lines(report: Report) -> tuple[str, ...]:
    """Return the rows that have times and are in no geomean of a column."""
    host_bound = (
        f"Host-bound by {_arm(report, limit.what)}, so in no geomean:"
        f" {words.rows(_cases(limit), named=FAILED_NAMED)}: {escape(limit.reason)}"
        for limit in report.limits_of("host-bound")
    )
    without = (
        f"{_versus(limit)}{_rows(report, limit)}: {escape(limit.reason)}" for limit in report.limits_of("no-ratio")
    )
    return (*host_bound, *without)


def _versus(limit: Limit) -> str:
    return f"No ratio to {words.column(limit.what)} in " if limit.what else "No ratio in "


def _rows(report: Report, limit: Limit) -> str:
    cases = _cases(limit)
    every = len({row.case for row in report.rows})
    if len(cases) == every > 1:
        return f"all {every} rows"
    return words.rows(cases)


def _cases(limit: Limit) -> list[Case]:
    return list(dict.fromkeys(row.case for row in limit.rows))


def _missing(missing: Missing) -> str:
    named = ", ".join(escape(row) for row in missing.rows[:FAILED_NAMED])
    more = len(missing.rows) - FAILED_NAMED
    rest = f" and {more} more" if more > 0 else ""
    verb = "is" if len(missing.rows) == 1 else "are"
    return (
        f"Run {escape(missing.run_id)} was interrupted or met its time limit:"
        f" {len(missing.rows)} of {missing.planned} planned rows {verb} missing: {named}{rest}"
    )


def _arm(report: Report, name: str) -> str:
    known = {arm.name: arm.key for arm in report.arms}
    key = known.get(name, "")
    return f"{escape(name)} ({escape(key)})" if key else escape(name)
