"""The sentences about how the rows stand: headline, gains, regressions, rows wholly on one side, spread."""

from __future__ import annotations

from dataclasses import dataclass

from harness.model.report import CLOCK_APART, Geomean, Ratio, Report, RowRatio, Standing
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.geomean_table import busy_beside
from harness.pages.markdown.numbers import NOTHING, counted, expected_rows, percent, speedup

NAMED = 5
"""Rows whose clocks leave no verdict that a line names."""


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
    return tuple(Paragraph(title=_title(report, s), lines=_lines(report, s)) for s in report.standings)


def _headline(report: Report, standing: Standing) -> str:
    new, against = escape(report.new.name), words.column(standing.against)
    n = len(standing.rows)
    equal = n - standing.above - standing.below
    rest = f", equal in {equal}" if equal else ""
    counts = f"faster than {against} in {standing.above} of {counted(n, 'row')}, slower in {standing.below}{rest}"
    clocks = f"; cycles do not confirm {doubtful} of these" if (doubtful := _doubtful(standing)) else ""
    return f"**{new} is {counts}**{_where(report, standing)}{clocks}{_means(report, standing)}."


def _doubtful(standing: Standing) -> int:
    """Return in how many rows clocks that should agree do not, and cycles do not confirm the time."""
    return len(standing.cycles_disagree) if standing.regime == "boost" else 0


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
    direction = words.direction(report, standing.against)
    if len(here) == 1:
        return f"; geomean of {direction}: {_mean(report, low[1])}"
    return f"; geomeans of {direction} from {_mean(report, low[1])} to {_mean(report, high[1])}"


def _mean(report: Report, geomean: Geomean) -> str:
    value = NOTHING if geomean.value is None else speedup(geomean.value)
    of = ", ".join(part for part in (f"{geomean.op} {escape(geomean.row_class)}", busy_beside(report, geomean)) if part)
    return f"{value} ({of})"


def _title(report: Report, standing: Standing) -> str:
    return f"{words.direction(report, standing.against)}{_where(report, standing)}"


def _where(report: Report, standing: Standing) -> str:
    """Return the device and regime, where the report has several."""
    several_devices = len({s.device for s in report.standings}) > 1
    several_regimes = len({s.regime for s in report.standings}) > 1
    device = f" on {escape(standing.device)}" if several_devices else ""
    regime = f" in {escape(standing.regime)}" if several_regimes else ""
    return device + regime


def _lines(report: Report, standing: Standing) -> tuple[str, ...]:
    n = len(standing.rows)
    chance = expected_rows(standing.chance)
    lines = [
        f"Regressions, reported as is: {_listed(standing.below, n, 'below', 'lowest', standing.regressions)}",
        f"Largest gains: {_listed(standing.above, n, 'above', 'highest', standing.gains)}",
        f"Wholly above 1.0 (every group): {_whole(standing.wholly_above)};"
        f" wholly below: {_whole(standing.wholly_below)}."
        f" Chance alone gives {chance} of {counted(n, 'row')} on each side",
    ]
    lines += _within_noise(report, standing)
    if standing.spread_rows:
        lines.append(
            f"Spread, (max - min) / median of a row's ratios: median {percent(standing.spread_median)},"
            f" p90 {percent(standing.spread_p90)} over {counted(standing.spread_rows, 'row')}"
        )
    else:
        lines.append("Spread: n/a, no row has the five groups that it needs")
    if standing.regime == "boost" and standing.clock_rows:
        lines.append(_clocks(standing))
    return tuple(f"{line}." for line in lines)


def _within_noise(report: Report, standing: Standing) -> list[str]:
    """Return how many rows an A/A pair of the same place cannot tell from 1.0; of several pairs the widest counts."""
    floors = [aa.p95 for aa in report.aa if (aa.device, aa.regime) == (standing.device, standing.regime)]
    if not floors:
        return []
    lost = [entry for entry in standing.rows if abs(entry.ratio.median - 1) <= max(floors)]
    return [f"No further from 1.0 than the noise floor, ± {percent(max(floors))}: {_whole(tuple(lost))}"]


def _clocks(standing: Standing) -> str:
    """Return whether the clocks agreed, as they should in boost, and what cycles say where they did not."""
    apart, disagree = standing.clocks_apart, standing.cycles_disagree
    rows = f"Clocks of new and baseline differ by more than {100 * CLOCK_APART:g} % in {len(apart)} of"
    if not apart:
        return f"{rows} {counted(standing.clock_rows, 'row')}"
    if not disagree:
        return f"{rows} {counted(standing.clock_rows, 'row')}; cycles name the same arm as faster in all of them"
    named = ", ".join(f"{words.row(e.row.case)} {_two(e.ratio)}" for e in disagree[:NAMED])
    more = f" and {len(disagree) - NAMED} more" if len(disagree) > NAMED else ""
    return (
        f"{rows} {counted(standing.clock_rows, 'row')}; in {len(disagree)} of these cycles do not confirm the time, so"
        f" that no verdict holds (`clock`): {named}{more}"
    )


def _two(ratio: Ratio) -> str:
    cycles = NOTHING if ratio.cycles_median is None else speedup(ratio.cycles_median)
    return f"{speedup(ratio.median)} in time, {cycles} in cycles"


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
