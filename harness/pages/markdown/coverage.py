"""The lines about what has no number: failures, coverage limits, skipped, host-bound, discarded and missing rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.model.case import Case
from harness.model.conditions import Discards
from harness.model.figures import ReportRow
from harness.model.report import PREVIOUS, Limit, Missing, Report, RowName
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.items import Item
from harness.pages.markdown.numbers import counted, percent, speedup, speedup_range

FAILED_NAMED = 10
"""Failed, host-bound or missing rows that a line names."""

_DISCARDED: dict[str, Callable[[Discards], int]] = {
    "for a lost or unbelievable record": lambda d: d.invalid,
    "for a call before which the queue ran dry": lambda d: d.dry,
    "held down by something else than the power cap": lambda d: d.throttled,
    "for an arm's clock away from its own in the other groups": lambda d: d.clock,
    "of rows that started again without an arm that failed": lambda d: d.restarted,
}
"""Why groups were discarded -> how many of a row's."""

_OP_OR_TYPE = re.compile(r"\b(?:fwd|dX|dW|ckpt ES|ckpt|dgrad|wgrad|bf16|fp32)\b", re.IGNORECASE)
"""What may differ between two reasons that are one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reason:
    """One reason, and all its rows."""

    text: str
    rows: tuple[RowName, ...]


def failure_lines(report: Report) -> tuple[Item, ...]:
    """Return one line an arm and reason; every failed row counts, so that up to ten are named."""
    return tuple(
        Item(
            line=f"**{_arm(report, limit.what)}**, {words.rows(_cases(limit.rows), named=FAILED_NAMED)}"
            f"{_only_in(report, limit.rows)}: {escape(limit.reason)}"
        )
        for limit in report.limits_of("failed")
    )


def coverage_lines(report: Report) -> tuple[Item, ...]:
    """Return what arms cannot do, an arm a line; rows that were not tried; rows that a run planned and has not."""
    by_arm: dict[str, list[Limit]] = {}
    for limit in report.limits_of("unsupported"):
        by_arm.setdefault(limit.what, []).append(limit)
    unsupported = (_unsupported(report, arm, _reasons(limits)) for arm, limits in by_arm.items())
    skipped = (
        f"Not tried: {words.rows(_cases(limit.rows), named=FAILED_NAMED)}: {escape(limit.reason)}"
        for limit in report.limits_of("skipped")
    )
    elsewhere = (
        f"Not in {escape(limit.what)}: {_rows(report, limit.rows)}; {escape(limit.reason)}"
        for limit in report.limits_of("other-regime")
    )
    lines = (*skipped, *elsewhere, *(_missing(missing) for missing in report.missing))
    return (*unsupported, *(Item(line=line) for line in lines))


def excluded_lines(report: Report) -> tuple[Item, ...]:
    """Return the rows that have times and are in no geomean of a column, and the groups that count for nothing."""
    without = (
        f"{_versus(report, limit)}{_rows(report, limit.rows)}{_only_in(report, limit.rows)}: {escape(limit.reason)}"
        for limit in report.limits_of("no-ratio")
    )
    regimes = dict.fromkeys(row.regime for row in report.rows)
    discarded = (line for regime in regimes for line in _discarded(report, regime))
    return tuple(Item(line=line) for line in (*_host_bound(report), *_controls(report), *without, *discarded))


def _unsupported(report: Report, arm: str, reasons: tuple[_Reason, ...]) -> Item:
    said = [f"{_rows(report, r.rows)}{_only_in(report, r.rows)}: {escape(r.text)}" for r in reasons]
    name = f"**{_arm(report, arm)}**"
    return Item(line=f"{name}, {said[0]}") if len(said) == 1 else Item(line=name, below=tuple(said))


def _reasons(limits: list[Limit]) -> tuple[_Reason, ...]:
    """Return the reasons of one arm; those that differ in nothing but the operation or a type are one."""
    alike: dict[str, list[Limit]] = {}
    for limit in limits:
        alike.setdefault(_OP_OR_TYPE.sub("\0", limit.reason), []).append(limit)
    return tuple(
        _Reason(
            text=_merged([limit.reason for limit in same]),
            rows=tuple(dict.fromkeys(row for limit in same for row in limit.rows)),
        )
        for same in alike.values()
    )


def _merged(reasons: list[str]) -> str:
    """Return ``no program for fwd/dgrad on sm_90a`` for ``no program for fwd on sm_90a`` and the same with dgrad."""
    found = zip(*(_OP_OR_TYPE.findall(reason) for reason in reasons), strict=True)
    variants = ("/".join(dict.fromkeys(at_one_place)) for at_one_place in found)
    return _OP_OR_TYPE.sub(lambda _: next(variants), reasons[0])


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
            names = tuple(RowName(device=row.device, regime=row.regime, case=row.case) for row, _ in rows)
            named = f"{_rows(report, names)}, gaps from {percent(gaps[0])} to {percent(gaps[-1])}"
        yield f"Host-bound by {_arm(report, arm)}{_in(report, regime)}, so in no geomean and no count: {named}"


def _controls(report: Report) -> Iterator[str]:
    """Yield one line a regime on the controls, with their ratios to previous."""
    controls = [(row, ratio) for row in report.rows if row.control and (ratio := row.ratio(PREVIOUS))]
    for regime in dict.fromkeys(row.regime for row, _ in controls):
        here = [(row, ratio) for row, ratio in controls if row.regime == regime]
        if len(here) <= FAILED_NAMED:
            named = ", ".join(f"{words.row(row.case)} {speedup_range(ratio)}" for row, ratio in here)
        else:
            medians = sorted(ratio.median for _, ratio in here)
            named = f"{words.rows(row.case for row, _ in here)} from {speedup(medians[0])} to {speedup(medians[-1])}"
        yield (
            f"Controls{_in(report, regime)}, the same program in both revisions, so in no geomean and no count of"
            f" {words.direction(report, PREVIOUS)}: {named}"
        )


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
            reasons.append(f"{count} {what}, in {words.rows(row.case for row in having)}")
    groups = counted(total + sum(row.n for row in rows), "measured group")
    yield f"Discarded{_in(report, regime)}, never for a duration: {total} of {groups}: {'; '.join(reasons)}"


def _in(report: Report, regime: str) -> str:
    return f" in {escape(regime)}" if len({row.regime for row in report.rows}) > 1 else ""


def _only_in(report: Report, rows: tuple[RowName, ...]) -> str:
    """Return the regime where the limit holds for rows of one that have a time in another, else nothing."""
    regimes = {name.regime for name in rows}
    cases = {name.case for name in rows}
    if len(regimes) > 1 or all(row.regime in regimes for row in report.rows if row.case in cases):
        return ""
    return f" in {escape(regimes.pop())}"


def _versus(report: Report, limit: Limit) -> str:
    return f"No ratio to {words.column(report, limit.what)} in " if limit.what else "No ratio in "


def _rows(report: Report, names: tuple[RowName, ...]) -> str:
    cases = _cases(names)
    every = len({row.case for row in report.rows})
    if len(cases) == every > 1:
        return f"all {every} rows"
    return words.rows(cases)


def _cases(names: tuple[RowName, ...]) -> list[Case]:
    return list(dict.fromkeys(name.case for name in names))


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
