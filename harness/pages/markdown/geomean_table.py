"""The geomean table: one line an operation and row class, one column a baseline."""

from __future__ import annotations

from harness.model.report import Geomean, Report
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.numbers import NOTHING, speedup
from harness.pages.markdown.table import table


def geomean_table(report: Report) -> str:
    """Return the table; a metric column only where busy times are known.

    ``count`` is that of the first column. A cell with another count says so: it is the mean over other rows.
    """
    has_busy = any(geomean.metric == "busy" for geomean in report.geomeans)
    device = "GPU" if all(e.machine.device == "cuda" for e in report.environments) else "device"
    headers = {"device": device, "regime": "regime", "op": "operation", "rows": "rows", "count": "count"}
    if has_busy:
        headers["metric"] = "time"
    headers |= {f"against {against}": words.direction(report, against) for against in report.columns}
    lines: dict[tuple[str, ...], dict[str, Geomean]] = {}
    for g in report.geomeans:
        lines.setdefault((g.device, g.regime, g.op, g.row_class, g.metric), {})[g.against] = g
    return table(headers, [_cells(report, cells, has_busy=has_busy) for cells in lines.values()])


def _cells(report: Report, by_column: dict[str, Geomean], *, has_busy: bool) -> dict[str, str]:
    first = by_column[report.columns[0]]
    cells = {
        "device": escape(first.device),
        "regime": escape(first.regime),
        "op": first.op,
        "rows": escape(first.row_class),
        "count": f"{first.n} of {first.expected_n}",
    }
    if has_busy:
        cells["metric"] = first.metric
    return cells | {f"against {against}": _mean(g, first.n) for against, g in by_column.items()}


def _mean(geomean: Geomean, count: int) -> str:
    if geomean.value is None or geomean.low is None or geomean.high is None:
        return NOTHING
    others = "" if geomean.n == count else f", {geomean.n} of {geomean.expected_n}"
    return f"{speedup(geomean.value)} ({speedup(geomean.low)}-{speedup(geomean.high)}){others}"
