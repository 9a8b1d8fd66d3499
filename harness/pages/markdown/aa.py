"""A/A in Markdown: how far apart one arm and itself are, which is the noise floor of the run."""

from __future__ import annotations

from harness.model.report import AaStanding, Report
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.numbers import counted, expected_rows, percent, speedup_range
from harness.pages.markdown.table import table


def noise_floor(report: Report) -> str:
    """Return the sentence for the head of the page; on a GPU it says so if there is no pair."""
    if report.aa:
        floors = ", ".join(f"± {percent(aa.p95)}{_where(report, aa)}" for aa in report.aa)
        return f"Noise floor, from an arm against itself (A/A): 95 % of its ratios lie within 1.0 {floors}."
    on_gpu = any(environment.machine.device == "cuda" for environment in report.environments)
    return "No A/A pair ran: the noise floor of these numbers is not known." if on_gpu and report.rows else ""


def aa_table(report: Report) -> str:
    """Return one line a device, regime and pair; empty without a pair."""
    if not report.aa:
        return ""
    headers = {
        "device": "device",
        "regime": "regime",
        "arm": "arm, twice",
        "rows": "rows",
        "mean": "geomean",
        "within": "rows near 1.0",
        "whole": "wholly above / below 1.0 (by chance each)",
        "p95": "95 % of rows within",
        "largest": "furthest row",
    }
    if len({aa.device for aa in report.aa}) == 1:
        del headers["device"]
    rows = [_cells(aa) for aa in report.aa]
    return table(headers, [{name: cells[name] for name in headers} for cells in rows])


def _cells(aa: AaStanding) -> dict[str, str]:
    return {
        "device": escape(aa.device),
        "regime": escape(aa.regime),
        "arm": escape(aa.arm),
        "rows": str(aa.rows),
        "mean": f"{aa.value:.4f}",
        "within": f"{aa.within} of {aa.rows} within ± {100 * aa.limit:g} % ({100 * aa.within / aa.rows:.0f} %)",
        "whole": f"{aa.wholly_above} / {aa.wholly_below} ({expected_rows(aa.chance)})",
        "p95": f"± {percent(aa.p95)}",
        "largest": f"{words.row(aa.largest.row.case)} {speedup_range(aa.largest.ratio)}",
    }


def _where(report: Report, aa: AaStanding) -> str:
    """Return what tells this standing from the others."""
    parts = (
        (f" ({escape(aa.arm)})", len({a.arm for a in report.aa}) > 1),
        (f" in {escape(aa.regime)}", True),
        (f" on {escape(aa.device)}", len({a.device for a in report.aa}) > 1),
        (f" ({counted(aa.rows, 'row')})", True),
    )
    return "".join(text for text, wanted in parts if wanted)


def aa_meaning(report: Report) -> str:
    """Return the sentence that tells a reader what the table means."""
    count = counted(sum(aa.rows for aa in report.aa), "ratio")
    return (
        f"An arm and its twin are the same prepared call, so all that differs from 1.0 in these {count} is noise: a"
        " row's ratio that is no further from 1.0 than theirs shows nothing. The twin has no part in any other number."
    )
