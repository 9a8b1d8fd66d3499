"""The paragraphs about how the rows stand in one column: gains, regressions, what chance gives, spread, clocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.model.figures import CLOCK_APART, Ratio
from harness.model.report import PREVIOUS, Report, RowRatio, Standing
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.numbers import NOTHING, counted, expected_rows, percent, speedup
from harness.pages.summary.pool import REGIMES

NAMED = 5
"""Rows that a line names: those whose clocks leave no verdict, the furthest ones where none is on a side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A title and its lines."""

    title: str
    lines: tuple[str, ...]


def results(report: Report) -> tuple[Standing, ...]:
    """Return the standings of the regimes whose numbers are results; of all if a report has only studies."""
    return tuple(s for s in report.standings if s.regime in REGIMES) or report.standings


def standing_paragraphs(report: Report) -> tuple[Paragraph, ...]:
    """Return what the rows say, a paragraph a column, device and regime; *previous* stands under what changed."""
    return tuple(
        Paragraph(title=title(report, standing), lines=sentences(_lines(report, standing)))
        for standing in results(report)
        if standing.against != PREVIOUS
    )


def title(report: Report, standing: Standing) -> str:
    """Return what a standing is of: ``SOTA / cake_det in boost``."""
    return f"{words.direction(report, standing.against)}{where(report, standing)}"


def sentences(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines, each ended by a full stop."""
    return tuple(f"{line}." for line in lines)


def where(report: Report, standing: Standing) -> str:
    """Return the device and regime, where the report has several."""
    several_devices = len({s.device for s in report.standings}) > 1
    several_regimes = len({s.regime for s in report.standings}) > 1
    device = f" on {escape(standing.device)}" if several_devices else ""
    regime = f" in {escape(standing.regime)}" if several_regimes else ""
    return device + regime


def _lines(report: Report, standing: Standing) -> tuple[str, ...]:
    return gains(standing), regressions(standing), *scatter(report, standing)


def regressions(standing: Standing) -> str:
    """Return how many rows are below 1.0, and the lowest."""
    low = _Side(
        name="below",
        furthest="lowest",
        count=standing.below,
        wholly=len(standing.wholly_below),
        entries=standing.regressions,
        by_chance=1 / standing.chance_high if standing.chance_high else None,
    )
    return f"Regressions, reported as is: {_listed(standing, low)}"


def gains(standing: Standing) -> str:
    """Return how many rows are above 1.0, and the highest."""
    high = _Side(
        name="above",
        furthest="highest",
        count=standing.above,
        wholly=len(standing.wholly_above),
        entries=standing.gains,
        by_chance=standing.chance_high,
    )
    return f"Largest gains: {_listed(standing, high)}"


def scatter(report: Report, standing: Standing) -> list[str]:
    """Return how many rows the noise floor hides, the spread, and whether clocks leave a verdict."""
    lines = _within_noise(report, standing)
    if standing.spread_rows:
        lines.append(
            f"Spread, (max - min) / median of a row's ratios: median {percent(standing.spread_median)},"
            f" p90 {percent(standing.spread_p90)} over {counted(standing.spread_rows, 'row')}"
        )
    else:
        lines.append("Spread: n/a, no row has the five groups that it needs")
    if standing.regime == "boost" and standing.clock_rows:
        lines.append(_clocks(standing))
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The rows on one side of 1.0; ``by_chance`` is where the furthest would be if there were no difference."""

    name: str
    furthest: str
    count: int
    wholly: int
    entries: tuple[RowRatio, ...]
    by_chance: float | None


def _listed(standing: Standing, side: _Side) -> str:
    """Return how many rows are on a side and how many wholly, the furthest of them, each with what chance gives."""
    n = len(standing.rows)
    verb = "is" if side.count <= 1 else "are"
    half = f"(chance {n / 2:g})"
    if not side.count:
        said = f"none of {counted(n, 'row')} {verb} {side.name} 1.0 {half}"
        nearest = sorted(standing.rows, key=lambda entry: entry.ratio.median, reverse=side.furthest == "highest")
        if nearest:
            said += f"; the {side.furthest}: {', '.join(words.row_ratio(entry) for entry in nearest[:NAMED])}"
    else:
        title = f"; the {side.furthest}: " if side.count > len(side.entries) else ": "
        said = (
            f"{side.count} of {counted(n, 'row')} {verb} {side.name} 1.0 {half}, {side.wholly} wholly"
            f" (chance {expected_rows(standing.chance)}){title}"
            f"{', '.join(words.row_ratio(entry) for entry in side.entries)}"
        )
    if side.by_chance is None:
        return said
    return f"{said}. Chance alone would put the {side.furthest} row at about {speedup(side.by_chance)}"


def _within_noise(report: Report, standing: Standing) -> list[str]:
    """Return how many rows an A/A pair of the same place cannot tell from 1.0; of several pairs the widest counts."""
    floors = [aa.p95 for aa in report.aa if (aa.device, aa.regime) == (standing.device, standing.regime)]
    if not floors:
        return []
    lost = [entry for entry in standing.rows if abs(entry.ratio.median - 1) <= max(floors)]
    return [f"No further from 1.0 than the noise floor, ± {percent(max(floors))}: {_named(tuple(lost))}"]


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


def _named(entries: tuple[RowRatio, ...]) -> str:
    named = f" ({', '.join(words.row(entry.row.case) for entry in entries)})" if 0 < len(entries) <= 3 else ""
    return f"{counted(len(entries), 'row')}{named}"
