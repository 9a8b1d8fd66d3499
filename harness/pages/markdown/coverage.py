"""The lines about what has no number: failures, coverage limits, skipped, host-bound, discarded and missing rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness.model.case import Case
from harness.model.conditions import Discards
from harness.model.report import Limit, Missing, Report, ReportRow
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.numbers import counted, percent

FAILED_NAMED = 10
"""Failed, host-bound or missing rows that a line names."""

_DISCARDED: dict[str, Callable[[Discards], int]] = {
    "for a lost or unbelievable record": lambda d: d.invalid,
    "held down by something else than the power cap": lambda d: d.throttled,
    "for an arm's clock away from its own in the other groups": lambda d: d.clock,
    "of rows that started again without an arm that failed": lambda d: d.restarted,
}
"""Why groups were discarded -> how many of a row's."""


def failure_lines(report: Report) -> tuple[str, ...]:
    """Return one line an arm and reason; every failed row counts, so that up to ten are named."""
    return tuple(
        f"**{_arm(report, limit.what)}**, {words.rows(_cases(limit), named=FAILED_NAMED)}{_only_in(report, limit)}:"
        f" {escape(limit.reason)}"
        for limit in report.limits_of("failed")
    )


def coverage_lines(report: Report) -> tuple[str, ...]:
    """Return what arms cannot do, rows that were not tried, and rows that a run planned and has not."""
    unsupported = (
        f"**{_arm(report, limit.what)}**, {_rows(report, limit)}{_only_in(report, limit)}: {escape(limit.reason)}"
        for limit in report.limits_of("unsupported")
    )
    skipped = (
        f"Not tried: {words.rows(_cases(limit), named=FAILED_NAMED)}: {escape(limit.reason)}"
        for limit in report.limits_of("skipped")
    )
    elsewhere = (
        f"Not in {escape(limit.what)}: {words.rows(_cases(limit))}; {escape(limit.reason)}"
        for limit in report.limits_of("other-regime")
    )
    return (*unsupported, *skipped, *elsewhere, *(_missing(missing) for missing in report.missing))


def excluded_lines(report: Report) -> tuple[str, ...]:
    """Return the rows that have times and are in no geomean of a column, and the groups that count for nothing."""
    without = (
        f"{_versus(limit)}{_rows(report, limit)}{_only_in(report, limit)}: {escape(limit.reason)}"
        for limit in report.limits_of("no-ratio")
    )
    regimes = dict.fromkeys(row.regime for row in report.rows)
    return (*_host_bound(report), *without, *(line for regime in regimes for line in _discarded(report, regime)))


def _host_bound(report: Report) -> Iterator[str]:
    """Yield one line an arm and regime, each row with the part of the span in which nothing ran."""
    found: dict[tuple[str, str], list[tuple[ReportRow, float]]] = {}
    for row in report.rows:
        for arm in row.host_bound:
            figure = row.figure(arm)
            found.setdefault((arm, row.regime), []).append((row, (figure.gap if figure else None) or 0.0))
    for (arm, regime), rows in found.items():
        gaps = sorted(gap for _, gap in rows)
        if len(rows) <= FAILED_NAMED:
            named = ", ".join(f"{words.row(row.case)} (gap {percent(gap)})" for row, gap in rows)
        else:
            named = f"{words.rows([row.case for row, _ in rows])} (gaps {percent(gaps[0])} to {percent(gaps[-1])})"
        yield f"Host-bound by {_arm(report, arm)}{_in(report, regime)}, so in no geomean and no count: {named}"


def _discarded(report: Report, regime: str) -> Iterator[str]:
    """Yield one line on the groups of a regime that were measured and thrown away, by reason."""
    rows = [row for row in report.rows if row.regime == regime]
    total = sum(row.discarded.total for row in rows)
    if not total:
        return
    reasons = []
    for what, count_of in _DISCARDED.items():
        having = [row for row in rows if count_of(row.discarded)]
        if having:
            count = sum(count_of(row.discarded) for row in having)
            reasons.append(f"{count} {what} ({words.rows(row.case for row in having)})")
    groups = counted(total + sum(row.n for row in rows), "group")
    yield f"Discarded{_in(report, regime)}, never for a duration: {total} of {groups}: {'; '.join(reasons)}"


def _in(report: Report, regime: str) -> str:
    return f" in {escape(regime)}" if len({row.regime for row in report.rows}) > 1 else ""


def _only_in(report: Report, limit: Limit) -> str:
    """Return the regime where the limit holds for rows of one that have a time in another, else nothing."""
    regimes = {name.regime for name in limit.rows}
    cases = {name.case for name in limit.rows}
    if len(regimes) > 1 or all(row.regime in regimes for row in report.rows if row.case in cases):
        return ""
    return f" in {escape(regimes.pop())}"


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
    return escape(words.with_key(report, name))
