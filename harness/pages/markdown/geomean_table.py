"""The geomean table: one line a suite, operation and row class, one column a baseline."""

from __future__ import annotations

from harness.model.report import Geomean, Report
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.numbers import NOTHING, speedup
from harness.pages.markdown.table import table

BUSY_APART = 0.001
"""A geomean of busy times stands beside that of spans where the two differ by more."""

Line = tuple[str, ...]


def geomean_table(report: Report) -> str:
    """Return the table, whose numbers are of spans; busy ones stand beside them where they differ. Empty without one.

    ``count`` is that of the first column. A cell with another count says so: it is the mean over other rows.
    """
    if all(g.value is None for g in report.geomeans):
        return ""
    device = "GPU" if all(e.machine.device == "cuda" for e in report.environments) else "device"
    headers = {"device": device, "regime": "regime", "suite": "suite", "op": "operation", "rows": "rows"}
    headers |= {"count": "count"} | {against: words.direction(report, against) for against in report.columns}
    if len({g.suite for g in report.geomeans}) == 1:
        del headers["suite"]
    lines: dict[Line, dict[str, Geomean]] = {}
    for g in report.geomeans:
        if g.metric == "span":
            lines.setdefault((g.device, g.regime, g.suite, g.op, g.row_class), {})[g.against] = g
    cells = [_cells(report, by_column) for by_column in lines.values()]
    return table(headers, [{name: line[name] for name in headers} for line in cells])


def busy_beside(report: Report, span: Geomean) -> str:
    """Return ``busy 0.991`` where the geomean of busy times is known and differs from that of spans, else nothing."""
    busy = next((g for g in report.geomeans if g.metric == "busy" and _same_rows(g, span)), None)
    if busy is None or busy.value is None or span.value is None:
        return ""
    if busy.n == span.n and abs(busy.value - span.value) <= BUSY_APART:
        return ""
    others = "" if busy.n == span.n else f" ({busy.n} of {busy.expected_n})"
    return f"busy {speedup(busy.value)}{others}"


def _same_rows(one: Geomean, other: Geomean) -> bool:
    def key(g: Geomean) -> tuple[str, ...]:
        return (g.device, g.regime, g.suite, g.op, g.row_class, g.against)

    return key(one) == key(other)


def _cells(report: Report, by_column: dict[str, Geomean]) -> dict[str, str]:
    first = by_column[report.columns[0]]
    cells = {
        "device": escape(first.device),
        "regime": escape(first.regime),
        "suite": escape(first.suite),
        "op": first.op,
        "rows": escape(first.row_class),
        "count": f"{first.n} of {first.expected_n}",
    }
    return cells | {against: _mean(report, g, first.n) for against, g in by_column.items()}


def _mean(report: Report, span: Geomean, count: int) -> str:
    if span.value is None or span.low is None or span.high is None:
        return NOTHING
    others = "" if span.n == count else f"{span.n} of {span.expected_n}"
    mean = f"{speedup(span.value)} ({speedup(span.low)}-{speedup(span.high)})"
    return ", ".join(part for part in (mean, others, busy_beside(report, span)) if part)
