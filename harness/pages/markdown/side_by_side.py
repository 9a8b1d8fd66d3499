"""The table "Regimes side by side": each row's ratio in every regime, where some regimes are studies of the method."""

from __future__ import annotations

from harness.model.case import Case
from harness.model.figures import ReportRow
from harness.model.report import Report
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.headline import first_column
from harness.pages.markdown.numbers import NOTHING, speedup_range
from harness.pages.markdown.table import table
from harness.pages.summary.pool import REGIMES


def side_by_side(report: Report) -> str:
    """Return the table of the first column's ratios, a column a regime; empty where no regime is a study."""
    regimes = list(dict.fromkeys(row.regime for row in report.rows))
    if len(regimes) < 2 or all(regime in REGIMES for regime in regimes):
        return ""
    found: dict[tuple[str, Case], dict[str, ReportRow]] = {}
    for row in report.rows:
        found.setdefault((row.device, row.case), {})[row.regime] = row
    headers = {"device": "device", "row": "row", "op": "operation"} | {f"in {r}": escape(r) for r in regimes}
    if len({device for device, _ in found}) == 1:
        del headers["device"]
    against = first_column(report)
    lines = []
    for (device, case), by_regime in found.items():
        cells = {"device": escape(device), "row": escape(case.name), "op": case.op}
        cells |= {f"in {regime}": _cell(by_regime.get(regime), against) for regime in regimes}
        lines.append({name: cells[name] for name in headers})
    return f"{words.direction(report, against)}, ↑ new is faster:\n\n{table(headers, lines)}"


def _cell(row: ReportRow | None, against: str) -> str:
    ratio = row.ratio(against) if row else None
    return NOTHING if ratio is None else speedup_range(ratio)
