"""The per-row table: every arm's latency, the fastest in bold, SOTA's key letter, and the ratios with [min, max]."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model.figures import ArmFigure, Ratio, ReportRow
from harness.model.report import BEST_KNOWN, SOTA, Report
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.extra_columns import TableColumn, extra_columns
from harness.pages.markdown.numbers import NOTHING, TimeUnit, counted, speedup, speedup_range, time_unit
from harness.pages.markdown.table import table


def row_table(report: Report, rows: Sequence[ReportRow], *, columns: Sequence[str]) -> str:
    """Return the table of ``rows``; all latencies in one unit, arms that have a time in one of the rows, no twins."""
    timed = {f.arm for row in rows for f in row.figures if f.span_ns is not None}
    ranked = sorted(report.arms, key=lambda arm: arm.name != report.new.name)
    arms = [arm.name for arm in ranked if arm.name in timed and not arm.twin_of]
    unit = time_unit(f.span_ns for row in rows for f in row.figures)
    chosen = [
        TableColumn(name="row", header="row", cell=lambda row: escape(row.case.name)),
        TableColumn(name="op", header="operation", cell=lambda row: row.case.op),
        *(_latency(report, arm, arms, unit) for arm in arms),
        *(_role(report, column) for column in report.columns if column in (SOTA, BEST_KNOWN)),
        *(_ratio(report, column) for column in report.columns),
        *extra_columns(report, rows, arms, _with_needed(rows, columns)),
    ]
    if any(_remarks(report, row) for row in rows):
        chosen.append(TableColumn(name="remarks", header="remarks", cell=lambda row: _remarks(report, row) or NOTHING))
    return table({c.name: c.header for c in chosen}, [{c.name: c.cell(row) for c in chosen} for row in rows])


def _with_needed(rows: Sequence[ReportRow], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns asked for, with those without which rows could be mixed up."""
    needed = []
    if any(row.floor for row in rows):
        needed.append("floor")
    if len({row.n for row in rows}) > 1:
        needed.append("n")
    if len({row.case.suite for row in rows}) > 1:
        needed.append("suite")
    return tuple(dict.fromkeys((*needed, *columns)))


def _latency(report: Report, arm: str, arms: Sequence[str], unit: TimeUnit) -> TableColumn:
    key = report.arm(arm).key
    new = ", new" if arm == report.new.name else ""

    def cell(row: ReportRow) -> str:
        figure = row.figure(arm)
        if figure is None or figure.status == "unsupported":
            return NOTHING
        if figure.status == "failed":
            return "failed"
        latency = unit.format(figure.span_ns)
        return f"**{latency}**" if _is_fastest(row, figure, arms) else latency

    title = f"{escape(arm)} {escape(key)}" if key else escape(arm)
    return TableColumn(name=f"latency {arm}", header=f"{title}{new} ({unit.name})", cell=cell)


def _is_fastest(row: ReportRow, figure: ArmFigure, arms: Sequence[str]) -> bool:
    """Return whether no arm of the table has a shorter time, where at least two have one."""
    spans = [f.span_ns for f in row.figures if f.arm in arms and f.span_ns is not None]
    return len(spans) > 1 and figure.span_ns == min(spans)


def _role(report: Report, role: str) -> TableColumn:
    """Return the column that says which arm has the role; its latency stands in the arm's own."""

    def cell(row: ReportRow) -> str:
        arm = row.sota if role == SOTA else row.best_known
        return NOTHING if arm is None else escape(report.arm(arm).key or arm)

    return TableColumn(name=role, header=words.column(report, role), cell=cell)


def _ratio(report: Report, against: str) -> TableColumn:
    def cell(row: ReportRow) -> str:
        ratio = row.ratio(against)
        return NOTHING if ratio is None else speedup_range(ratio)

    meaning = ", ↑ new is faster" if against == report.columns[0] else " ↑"
    header = f"{words.direction(report, against)}{meaning}"
    return TableColumn(name=f"ratio {against}", header=header, cell=cell)


def cycles_matter(row: ReportRow, ratio: Ratio) -> bool:
    """Return whether clocks that should agree do not, and cycles do not confirm what time says."""
    return row.regime == "boost" and ratio.clocks_apart and ratio.cycles_disagree


def _of_clocks(report: Report, ratio: Ratio) -> str:
    cycles = NOTHING if ratio.cycles_median is None else speedup(ratio.cycles_median)
    return f"clock: {words.direction(report, ratio.against)} is {cycles} in cycles"


def _below_floor(report: Report, row: ReportRow) -> list[str]:
    """Return new and the arm behind SOTA where they are faster than the measured floor."""
    if row.floor is None:
        return []
    arms = ((report.new.name, row.floor.new_is_below), (row.sota or "", row.floor.sota_is_below))
    return [escape(arm) for arm, is_below in arms if is_below]


def _remarks(report: Report, row: ReportRow) -> str:
    remarks = ["control"] if row.control else []
    remarks += [f"host-bound: {', '.join(escape(arm) for arm in row.host_bound)}"] if row.host_bound else []
    remarks += [f"**below the floor**: {', '.join(below)}"] if (below := _below_floor(report, row)) else []
    remarks += [_of_clocks(report, ratio) for ratio in row.ratios if cycles_matter(row, ratio)]
    if row.discarded.total:
        remarks.append(f"{counted(row.discarded.total, 'group')} discarded")
    return "; ".join(remarks)
