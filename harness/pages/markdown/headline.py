"""The head of the page: how the rows stand in the first column, and in bold what forbids to conclude from it."""

from __future__ import annotations

from harness.model.report import SOTA, Geomean, Report, Standing
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.geomean_table import busy_beside
from harness.pages.markdown.numbers import NOTHING, counted, expected_rows, percent, speedup
from harness.pages.markdown.standing import results, where
from harness.pages.summary.pool import REGIMES

HOPELESS = 0.5
"""Median spread from which rows show nothing, if it is also larger than every effect."""

NAMED = 4
"""Geomeans that a warning names."""


def first_column(report: Report) -> str:
    """Return the first column that has a ratio; SOTA where none has."""
    have = {standing.against for standing in results(report)}
    return next((column for column in report.columns if column in have), report.columns[0])


def headlines(report: Report) -> tuple[str, ...]:
    """Return a sentence a device and regime on the first column that has a ratio, its warnings, and the notes."""
    first = [standing for standing in results(report) if standing.against == first_column(report)]
    said = [line for standing in first for line in (_headline(report, standing), *_warning(report, standing))]
    return (
        *(said or [_nothing(report)]),
        *_studies(report, first),
        *(_note(what, text) for what, text in report.notes.items()),
    )


def _headline(report: Report, standing: Standing) -> str:
    n = len(standing.rows)
    above, below = len(standing.wholly_above), len(standing.wholly_below)
    equal = n - standing.above - standing.below
    rest = f", 1.0 in {equal}" if equal else ""
    parts = [
        f"**{words.direction(report, standing.against)} is above 1.0 in {standing.above} of {counted(n, 'row')}, wholly"
        f" above in {above}**{where(report, standing)}; below in {standing.below}, wholly below in {below}{rest}"
        f" (chance gives {n / 2:g} and {expected_rows(standing.chance)} on each side)"
    ]
    if doubtful := len(standing.cycles_disagree) if standing.regime == "boost" else 0:
        parts.append(f"cycles do not confirm {doubtful} of these")
    parts += [means] if (means := _means(report, standing)) else []
    if standing.spread_median is not None:
        parts.append(f"median spread {percent(standing.spread_median)}")
    return f"{'; '.join(parts)}."


def _warning(report: Report, standing: Standing) -> tuple[str, ...]:
    """Return in bold that the spread is not known, larger than the effect, or so large that nothing can be said."""
    if standing.spread_median is None:
        text = f"No row has five groups{where(report, standing)}: the spread is not known, nor how sure this is"
        return (f"**{text}.**",)
    means = _geomeans(report, standing)
    lost = [g for g in means if g.within_spread]
    if not lost:
        return ()
    if standing.spread_median >= HOPELESS and len(lost) == len(means):
        text = (
            f"Nothing can be concluded{where(report, standing)}: the groups of one row lie"
            f" {percent(standing.spread_median)} apart (median spread), more than any geomean lies from 1.0"
        )
        return (f"**{text}.**",)
    named = "; ".join(
        f"{words.row_class(report, g)} {percent(g.effect)} from 1.0, spread {percent(g.spread)}" for g in lost[:NAMED]
    )
    more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
    of = f"{len(lost)} of {counted(len(means), 'geomean')}"
    return (f"**The spread is larger than the effect in {of}{where(report, standing)}: {named}{more}.**",)


def _nothing(report: Report) -> str:
    bound = [row for row in report.rows if row.host_bound and row.ratios]
    if bound:
        rows = counted(len(bound), "row")
        return f"**Nothing is compared: whatever has a ratio ({rows}) is host-bound, so that the host made the times.**"
    return f"**Nothing is compared: no row has a time of {escape(report.new.name)} and of a baseline.**"


def _studies(report: Report, first: list[Standing]) -> tuple[str, ...]:
    """Return which regimes are studies of the method, where they stand beside results."""
    shown = {standing.regime for standing in first}
    studies = [r for r in dict.fromkeys(row.regime for row in report.rows) if r not in REGIMES and r not in shown]
    if not studies:
        return ()
    names = ", ".join(map(escape, studies))
    return (f"Studies of the method, no results; below they have their geomeans and rows: {names}.",)


def _note(what: str, text: str) -> str:
    sentence = f"{escape(text[:1].upper() + text[1:])}."
    return sentence if what == SOTA else f"**{sentence}**"


def _geomeans(report: Report, standing: Standing) -> list[Geomean]:
    place = (standing.device, standing.regime, standing.against, "span")
    return [g for g in report.geomeans if g.value is not None and (g.device, g.regime, g.against, g.metric) == place]


def _means(report: Report, standing: Standing) -> str:
    here = _geomeans(report, standing)
    if not here:
        return ""
    low, high = (pick(here, key=lambda g: g.value or 0.0) for pick in (min, max))
    if len(here) == 1:
        return f"geomean {_mean(report, low)}"
    return f"geomeans from {_mean(report, low)} to {_mean(report, high)}"


def _mean(report: Report, geomean: Geomean) -> str:
    value = NOTHING if geomean.value is None else speedup(geomean.value)
    of = ", ".join(part for part in (words.row_class(report, geomean), busy_beside(report, geomean)) if part)
    return f"{value} ({of})"
