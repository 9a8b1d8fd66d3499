"""The section "What changed": this revision of ours beside the previous one, to be pasted into a pull request.

Geomeans by operation and row class; the largest gains; the regressions; the rows that lie on one side of 1.0 over their
whole range; then what says how sure that is.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.model.report import PREVIOUS, PREVIOUS_OF, Geomean, Report, RowRatio, Standing
from harness.pages.markdown import words
from harness.pages.markdown.environment import revision_text
from harness.pages.markdown.escape import escape
from harness.pages.markdown.geomean_table import busy_beside
from harness.pages.markdown.numbers import counted, expected_rows, speedup
from harness.pages.markdown.standing import Paragraph, gains, regressions, results, scatter, sentences, title

NAMED = 5
"""Rows wholly on one side that a line names; of more it gives the count by operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What is compared, and a paragraph a device and regime."""

    intro: str
    paragraphs: tuple[Paragraph, ...]


def what_changed(report: Report) -> Changed | None:
    """Return the section; None where no row has a ratio to *previous*."""
    compared = [standing for standing in results(report) if standing.against == PREVIOUS]
    if not compared:
        return None
    paragraphs = (Paragraph(title=title(report, s), lines=sentences(_lines(report, s))) for s in compared)
    return Changed(intro=_intro(report), paragraphs=tuple(paragraphs))


def _intro(report: Report) -> str:
    new, previous = escape(report.new.name), escape(PREVIOUS_OF[report.new.name])
    revisions = f"{revision_text(report.revision)} beside {revision_text(report.previous_revision or 'unknown')}"
    return f"Revision {revisions}: {new} and {previous} in the same paired groups."


def _lines(report: Report, standing: Standing) -> tuple[str, ...]:
    return (
        *_means(report, standing),
        gains(standing),
        regressions(standing),
        _wholly(standing),
        *scatter(report, standing),
    )


def _means(report: Report, standing: Standing) -> list[str]:
    """Return the geomeans of the standing's place; nothing where no class has one."""
    place = (standing.device, standing.regime, standing.against, "span")
    here = [g for g in report.geomeans if (g.device, g.regime, g.against, g.metric) == place and g.value is not None]
    return [f"Geomeans (lowest-highest row): {'; '.join(_mean(report, g) for g in here)}"] if here else []


def _mean(report: Report, g: Geomean) -> str:
    value, low, high = (speedup(number or 0.0) for number in (g.value, g.low, g.high))
    mean = f"{words.row_class(report, g)} {value} ({low}-{high})"
    busy = busy_beside(report, g)
    return ", ".join(part for part in (mean, f"{g.n} of {counted(g.expected_n, 'row')}", busy) if part)


def _wholly(standing: Standing) -> str:
    above = _side(standing, standing.wholly_above, "above")
    below = _side(standing, standing.wholly_below, "below")
    return f"{above}; {below}"


def _side(standing: Standing, entries: tuple[RowRatio, ...], side: str) -> str:
    """Return how many rows have every group on one side of 1.0, how many chance gives, and which they are."""
    n = len(standing.rows)
    verb, their = ("is", "its") if len(entries) <= 1 else ("are", "their")
    said = (
        f"{len(entries) or 'none'} of {counted(n, 'row')} {verb} {side} 1.0 over {their} whole [min, max]"
        f" (chance {expected_rows(standing.chance)})"
    )
    return f"{said}: {words.rows((entry.row.case for entry in entries), named=NAMED)}" if entries else said
