"""The per-row table: every arm's latency, SOTA with its key letter, and the ratios with [min, max]."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model.report import BEST_KNOWN, SOTA, Report, ReportRow
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.extra_columns import TableColumn, extra_columns
from harness.pages.markdown.numbers import NOTHING, TimeUnit, counted, speedup_range, time_unit
from harness.pages.markdown.table import table


def row_table(report: Report, rows: Sequence[ReportRow], *, columns: Sequence[str]) -> str:
    """Return the table of ``rows``; all latencies in one unit, arms that have a time in one of the rows."""
    timed = {f.arm for row in rows for f in row.figures if f.span_ns is not None}
    arms = [arm.name for arm in sorted(report.arms, key=lambda a: a.name != report.new.name) if arm.name in timed]
    unit = time_unit(f.span_ns for row in rows for f in row.figures)
    chosen = [
        TableColumn(name="row", header="row", cell=lambda row: escape(row.case.name)),
        TableColumn(name="op", header="operation", cell=lambda row: row.case.op),
        *(_latency(report, arm, unit) for arm in arms),
        *(_role(report, column, unit) for column in report.columns if column in (SOTA, BEST_KNOWN)),
        *(_ratio(report, column) for column in report.columns),
        *extra_columns(report, rows, arms, _with_needed(rows, columns)),
    ]
    if any(_remarks(row) for row in rows):
        chosen.append(TableColumn(name="remarks", header="remarks", cell=lambda row: _remarks(row) or NOTHING))
    return table({c.name: c.header for c in chosen}, [{c.name: c.cell(row) for c in chosen} for row in rows])


def _with_needed(rows: Sequence[ReportRow], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns asked for, with those without which rows could be mixed up."""
    needed = []
    if len({row.n for row in rows}) > 1:
        needed.append("n")
    if len({row.case.suite for row in rows}) > 1:
        needed.append("suite")
    return tuple(dict.fromkeys((*needed, *columns)))


def _latency(report: Report, arm: str, unit: TimeUnit) -> TableColumn:
    key = report.arm(arm).key
    new = ", new" if arm == report.new.name else ""

    def cell(row: ReportRow) -> str:
        figure = row.figure(arm)
        if figure is None or figure.status == "unsupported":
            return NOTHING
        return "failed" if figure.status == "failed" else unit.format(figure.span_ns)

    title = f"{escape(arm)} {escape(key)}" if key else escape(arm)
    return TableColumn(name=f"latency {arm}", header=f"{title}{new} ({unit.name})", cell=cell)


def _role(report: Report, role: str, unit: TimeUnit) -> TableColumn:
    def cell(row: ReportRow) -> str:
        arm = row.sota if role == SOTA else row.best_known
        figure = row.figure(arm) if arm else None
        if arm is None or figure is None:
            return NOTHING
        return f"{unit.format(figure.span_ns)} {escape(report.arm(arm).key or arm)}"

    return TableColumn(name=role, header=f"{words.column(role)} ({unit.name})", cell=cell)


def _ratio(report: Report, against: str) -> TableColumn:
    def cell(row: ReportRow) -> str:
        ratio = row.ratio(against)
        return NOTHING if ratio is None else speedup_range(ratio)

    header = f"{words.direction(report, against)}, above 1: new is faster"
    return TableColumn(name=f"ratio {against}", header=header, cell=cell)


def _remarks(row: ReportRow) -> str:
    remarks = [f"host-bound: {', '.join(escape(arm) for arm in row.host_bound)}"] if row.host_bound else []
    if row.discarded:
        remarks.append(f"{counted(row.discarded, 'group')} discarded")
    return "; ".join(remarks)
