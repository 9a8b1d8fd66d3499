"""The sentences about how the rows stand: headline, gains, regressions, rows wholly on one side, spread."""

from __future__ import annotations

from dataclasses import dataclass

from harness.model.report import Geomean, Report, RowRatio, Standing
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.numbers import counted, expected_rows, percent, speedup


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A title and its lines."""

    title: str
    lines: tuple[str, ...]


def first_column(report: Report) -> str:
    """Return the first column that has a ratio; SOTA where none has."""
    have = {standing.against for standing in report.standings}
    return next((column for column in report.columns if column in have), report.columns[0])


def headlines(report: Report) -> tuple[str, ...]:
    """Return one sentence a device and regime on the first column that has a ratio."""
    against = first_column(report)
    if not report.standings:
        return (f"**Nothing is compared: no row has a time of {escape(report.new.name)} and of a baseline.**",)
    return tuple(_headline(report, s) for s in report.standings if s.against == against)


def standing_paragraphs(report: Report) -> tuple[Paragraph, ...]:
    """Return what the rows say, a paragraph a column, device and regime."""
    return tuple(Paragraph(title=_title(report, s), lines=_lines(s)) for s in report.standings)


def _headline(report: Report, standing: Standing) -> str:
    new, against = escape(report.new.name), words.column(standing.against)
    n = len(standing.rows)
    equal = n - standing.above - standing.below
    rest = f", equal in {equal}" if equal else ""
    counts = f"faster than {against} in {standing.above} of {counted(n, 'row')}, slower in {standing.below}{rest}"
    return f"**{new} is {counts}**{_where(report, standing)}{_means(report, standing)}."


def _means(report: Report, standing: Standing) -> str:
    here = [
        (g.value, g)
        for g in report.geomeans
        if g.value is not None
        and (g.device, g.regime, g.against, g.metric) == (standing.device, standing.regime, standing.against, "span")
    ]
    if not here:
        return ""
    low, high = min(here, key=lambda m: m[0]), max(here, key=lambda m: m[0])
    if len(here) == 1:
        return f"; geomean of {words.direction(report, standing.against)}: {_mean(low[1])}"
    direction = words.direction(report, standing.against)
    return f"; geomeans of {direction} from {_mean(low[1])} to {_mean(high[1])}"


def _mean(geomean: Geomean) -> str:
    value = "–" if geomean.value is None else speedup(geomean.value)
    return f"{value} ({geomean.op} {escape(geomean.row_class)})"


def _title(report: Report, standing: Standing) -> str:
    return f"{words.direction(report, standing.against)}{_where(report, standing)}"


def _where(report: Report, standing: Standing) -> str:
    """Return the device and regime, where the report has several."""
    several_devices = len({s.device for s in report.standings}) > 1
    several_regimes = len({s.regime for s in report.standings}) > 1
    device = f" on {escape(standing.device)}" if several_devices else ""
    regime = f" in {escape(standing.regime)}" if several_regimes else ""
    return device + regime


def _lines(standing: Standing) -> tuple[str, ...]:
    n = len(standing.rows)
    chance = expected_rows(standing.chance)
    lines = [
        f"Regressions, reported as is: {_listed(standing.below, n, 'below', 'lowest', standing.regressions)}",
        f"Largest gains: {_listed(standing.above, n, 'above', 'highest', standing.gains)}",
        f"Wholly above 1.0 (every group): {_whole(standing.wholly_above)};"
        f" wholly below: {_whole(standing.wholly_below)}."
        f" Chance alone gives {chance} of {counted(n, 'row')} on each side",
    ]
    if standing.spread_rows:
        lines.append(
            f"Spread, (max - min) / median of a row's ratios: median {percent(standing.spread_median)},"
            f" p90 {percent(standing.spread_p90)} over {counted(standing.spread_rows, 'row')}"
        )
    else:
        lines.append("Spread: n/a, no row has the five groups that it needs")
    return tuple(f"{line}." for line in lines)


def _listed(count: int, n: int, side: str, furthest: str, entries: tuple[RowRatio, ...]) -> str:
    verb = "is" if count == 1 else "are"
    if not count:
        return f"none of {counted(n, 'row')} is {side} 1.0"
    named = ", ".join(words.row_ratio(entry) for entry in entries)
    title = f"the {furthest}: " if count > len(entries) else ""
    return f"{count} of {counted(n, 'row')} {verb} {side} 1.0; {title}{named}"


def _whole(entries: tuple[RowRatio, ...]) -> str:
    named = f" ({', '.join(words.row(entry.row.case) for entry in entries)})" if 0 < len(entries) <= 3 else ""
    return f"{counted(len(entries), 'row')}{named}"
