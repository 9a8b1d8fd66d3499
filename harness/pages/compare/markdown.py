"""The page ``markdown``: the sentence, what forbids to trust it, what is not the same, the rows, the terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.compare.comparison import VERDICTS, ComparedRow, Comparison, Difference, Geomean, Revision
from harness.pages.compare.paired import paired_section
from harness.pages.compare.words import GLYPHS, change_of, interval, probability, sentence
from harness.pages.markdown.escape import escape
from harness.pages.markdown.items import Item, bullets
from harness.pages.markdown.numbers import NOTHING, TimeUnit, counted, percent, speedup, time_unit
from harness.pages.markdown.table import table

MEANINGS = {
    "effect": "further from 1 than the floor, and not noise",
    "below-floor": "the interval, or the ratio, lies within the floor",
    "spread": "with such noise the ratio may lie within the floor, or the noise is not known",
    "clock": "cycles do not name the same side as faster",
    "few-groups": "one or two groups on a side",
    "cannot-reach": "with these groups, beside the other rows, no result could have passed the limit",
    "host-bound": "gaps between kernels exceed 10 % of the span, or busy times name the other side as faster",
    "lane-moved": "what is the same on both sides has moved as well",
    "environment": "the machine differs",
    "method": "how numbers came about differs",
    "wrong-result": "HEAD was wrong, raised or could not be timed",
    "oom": "HEAD ran out of memory",
    "no-baseline": "one side, or the baseline, has no time",
}
"""What each reason code means; a page explains those that it has."""

NAMED = 20
"""Rows of each side that are named where the two have none in common."""


def render_page(comparison: Comparison) -> str:
    """Return the page, the same bytes for the same comparison."""
    sections = (
        f"# Comparison: {escape(comparison.head.revision)} against {escape(comparison.base.revision)}",
        f"**{escape(sentence(comparison))}**",
        *_warnings(comparison),
        bullets(Item(line=line) for line in _how(comparison)),
        *_differences(comparison.differences),
        *_geomeans(comparison),
        *paired_section(comparison),
        *_rows(comparison),
        f"## Terms\n\n{bullets(Item(line=line) for line in _terms(comparison))}",
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _warnings(comparison: Comparison) -> Iterator[str]:
    if not comparison.matched:
        base, head = _names(comparison.base_names), _names(comparison.head_names)
        yield f"**No row has a time under one name on both sides.**\n\n- BASE has: {base}\n- HEAD has: {head}"
    limit = comparison.limits.q
    if comparison.lone_q is not None and comparison.lone_q > limit:
        yield (
            f"**One changed row alone cannot reach q {limit:g}**: over {counted(comparison.tested, 'row')} the smallest"
            f" q in reach of {comparison.fewest_groups} groups a side is {probability(comparison.lone_q)}; it takes"
            f" {comparison.enough_groups}."
        )
    for lane in comparison.lanes:
        if lane.moved:
            yield (
                f"**The lane has moved** in {escape(lane.regime)}: {lane.what}, by {speedup(lane.value)} over"
                f" {counted(lane.rows, 'row')}; no row of it is called faster or slower."
            )
    if comparison.base.sources_sha256 and comparison.base.sources_sha256 == comparison.head.sources_sha256:
        yield "Both sides have the same sources: this is an A/A comparison; each *faster* or *slower* in it is false."


def _names(names: Sequence[str]) -> str:
    more = f", and {len(names) - NAMED} more; the format json names all" if len(names) > NAMED else ""
    return escape(", ".join(names[:NAMED])) + more if names else "none"


def _how(comparison: Comparison) -> Iterator[str]:
    base, head, limits = comparison.base, comparison.head, comparison.limits
    if comparison.form == "interleaved":
        yield f"run {escape(head.run_id)}: both sides in the same paired groups"
    else:
        yield f"BASE run {_run(base)}, HEAD run {_run(head)}: each over one baseline in its own run"
    yield f"{', '.join(map(escape, comparison.products)) or 'no machine'}; {'; '.join(map(escape, comparison.timers))}"
    if comparison.form == "interleaved":
        reach = "" if comparison.lone_q is None else f"; alone, one can reach {probability(comparison.lone_q)}"
        tested = counted(comparison.tested, "row")
        yield f"limits: floor {percent(limits.floor)}, q {limits.q:g} over {tested} tested{reach}"
    else:
        yield f"limits: floor {percent(limits.floor)}; without both sides in one run there is no p and no q"
    for noise in comparison.noise:
        moved = f"{percent(noise.largest)}, in cycles {percent(noise.largest_cycles)}"
        yield (
            f"{escape(noise.regime)}: between the runs, {counted(noise.ratios, 'ratio')} of baselines moved by up to"
            f" {moved}; every interval is that much wider"
        )
    for lane in comparison.lanes:
        if not lane.moved:
            yield f"{escape(lane.regime)}: {lane.what}: {speedup(lane.value)} over {counted(lane.rows, 'row')}"
    if comparison.untried:
        yield f"{counted(comparison.untried, 'row')} that neither side can do"


def _run(side: Revision) -> str:
    return escape(f"{side.run_id} ({side.file})" if side.file else side.run_id)


def _differences(differences: Sequence[Difference]) -> Iterator[str]:
    if differences:
        headers = {"field": "What differs", "base": "BASE", "head": "HEAD", "role": "So"}
        roles = {"refused": "**not comparable**", "allowed": "allowed by name", "shown": "shown"}
        cells = [
            {"field": escape(d.field), "base": escape(d.base), "head": escape(d.head), "role": roles[d.role]}
            for d in differences
        ]
        yield f"## Environment\n\n{table(headers, cells)}"


def _geomeans(comparison: Comparison) -> Iterator[str]:
    if comparison.geomeans:
        headers = {
            "regime": "Regime",
            "arm": "Arm",
            "op": "Operation",
            "value": "BASE / HEAD, ↑ HEAD is faster (lowest-highest)",
            "interval": "95 % interval over rows",
            "n": "Rows",
        }
        cells = [
            {
                "regime": escape(mean.regime),
                "arm": escape(mean.arm),
                "op": mean.op,
                "value": _mean_value(mean),
                "interval": _mean_interval(mean),
                "n": f"{mean.n} of {mean.expected_n}",
            }
            for mean in comparison.geomeans
        ]
        yield f"## Geomeans\n\n{table(headers, cells)}"
        failures = [failure for mean in comparison.geomeans for failure in mean.failures]
        if failures:
            yield f"**In no geomean:** {escape('; '.join(failures))}"


def _mean_value(mean: Geomean) -> str:
    if mean.value is None or mean.low is None or mean.high is None:
        return "n/a"
    return f"{speedup(mean.value)} ({speedup(mean.low)}-{speedup(mean.high)})"


def _mean_interval(mean: Geomean) -> str:
    if mean.interval_low is None or mean.interval_high is None:
        return "n/a"
    return f"[{speedup(mean.interval_low)}, {speedup(mean.interval_high)}], seed {mean.seed}"


def _rows(comparison: Comparison) -> Iterator[str]:
    """Yield a table of all that is not the same, and a folded one of the rest."""
    rows, over = comparison.rows, " over the baseline's" if comparison.form == "stored" else ""
    unit = time_unit(time for row in rows for time in (row.base_ns, row.head_ns))
    notable = [row for row in rows if row.verdict != "same"]
    rest = [row for row in rows if row.verdict == "same"]
    if notable:
        yield f"## Rows\n\n{_table(notable, unit, over)}"
    if rest:
        title = f"{counted(len(rest), 'row')} that {'is' if len(rest) == 1 else 'are'} the same"
        yield f"<details>\n<summary>{title}</summary>\n\n{_table(rest, unit, over)}\n\n</details>"


def _table(rows: Sequence[ComparedRow], unit: TimeUnit, over: str) -> str:
    columns = {
        "verdict": "Verdict",
        "row": "Row",
        "arm": "Arm",
        "regime": "Regime",
        "base": f"BASE ({unit.name})",
        "head": f"HEAD ({unit.name})",
        "change": f"HEAD's time{over}",
        "ratio": "BASE / HEAD, ↑ HEAD is faster",
        "cycles": "Cycles",
        "clocks": "Clocks (MHz)",
        "p": "p",
        "q": "q",
        "superiority": "HEAD faster, of all pairs",
        "n": "n",
        "why": "Why",
    }
    cells = [_cells(row, unit) for row in rows]
    shown = {name: title for name, title in columns.items() if any(cell[name] != NOTHING for cell in cells)}
    return table(shown, [{name: cell[name] for name in shown} for cell in cells])


def _cells(row: ComparedRow, unit: TimeUnit) -> dict[str, str]:
    clocks = f"{row.base_mhz:.0f}, {row.head_mhz:.0f}" if row.base_mhz and row.head_mhz else NOTHING
    against = f"over {row.against}" if row.against else ""
    why = "; ".join(part for part in ("control" if row.control else "", row.detail, against) if part)
    return {
        "verdict": f"{GLYPHS[row.verdict]} {row.verdict}",
        "row": escape(row.id.case_id),
        "arm": escape(row.id.arm),
        "regime": escape(row.id.regime),
        "base": unit.format(row.base_ns),
        "head": unit.format(row.head_ns),
        "change": change_of(row) or NOTHING,
        "ratio": interval(row) or NOTHING,
        "cycles": NOTHING if row.cycles is None else speedup(row.cycles),
        "clocks": clocks,
        "p": probability(row.p) or NOTHING,
        "q": probability(row.q) or NOTHING,
        "superiority": NOTHING if row.superiority is None else f"{row.superiority:.2f}",
        "n": f"{row.n_base}, {row.n_head}",
        "why": f"`{row.reason}`{f' {escape(why)}' if why else ''}",
    }


def _terms(comparison: Comparison) -> Iterator[str]:
    stored = comparison.form == "stored"
    over = ", each over the baseline's of the same paired group" if stored else ""
    yield (
        f"ratio: BASE's time over HEAD's{over}; the median over all pairs of groups (Hodges-Lehmann) with its"
        f" {comparison.limits.confidence:.0%} interval"
    )
    yield "HEAD's time: 1 / ratio - 1; plus is slower"
    if stored:
        yield "interval: widened by the furthest that a ratio of two baselines moved between the runs"
    else:
        yield (
            "p: two-sided, of a ratio within the floor, by an exact Mann-Whitney test against each end of it; q: after"
            " Benjamini-Hochberg over all rows tested, controls not among them"
        )
    yield "cycles: the same ratio of span x SM clock; faster and slower must hold in it too"
    present = [verdict for verdict in VERDICTS if any(row.verdict == verdict for row in comparison.rows)]
    yield f"verdicts, what HEAD is: {', '.join(f'{GLYPHS[verdict]} {verdict}' for verdict in present)}"
    reasons = {row.reason for row in comparison.rows}
    for reason, meaning in MEANINGS.items():
        if reason in reasons:
            yield f"`{reason}`: {meaning}"
