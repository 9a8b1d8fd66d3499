"""What all pages of a comparison say alike: glyph and word of a verdict, and the sentence that can be pasted."""

from __future__ import annotations

from harness.compare.comparison import VERDICTS, ComparedRow, Comparison, Verdict
from harness.pages.markdown.numbers import counted, percent, speedup

GLYPHS: dict[Verdict, str] = {
    "slower": "▲",
    "failed": "✕",
    "missing": "∅",
    "not comparable": "≠",
    "faster": "▼",
    "unclear": "?",
    "new": "+",
    "same": "=",
}
"""Of time: up is slower. A glyph never stands without its word."""

NAMED = 3
"""Rows that the sentence names of those that are slower."""


def sentence(comparison: Comparison) -> str:
    """Return the one sentence that says all, as plain text: what was compared, and what came of it."""
    counts = comparison.counts
    found = ", ".join(f"{n} {verdict}" for verdict in VERDICTS if (n := counts[verdict]))
    what = f"{comparison.head.revision} against {comparison.base.revision}"
    where = ", ".join(comparison.products) or "no machine"
    how = "both sides in the same groups" if comparison.form == "interleaved" else "two stored runs"
    controls = sum(row.control for row in comparison.rows)
    rows = counted(sum(counts.values()), "row") + (f" and {counted(controls, 'control')}" if controls else "")
    said = f"{what} on {where}, {how}: {rows}: {found or 'none'}"
    if not comparison.concluded:
        said += "; nothing could be concluded"
    worst = [_named(row) for row in comparison.rows if row.verdict == "slower"]
    if worst:
        more = f" and {len(worst) - NAMED} more" if len(worst) > NAMED else ""
        said += f"; slower: {', '.join(worst[:NAMED])}{more}"
    return f"{said}."


def _named(row: ComparedRow) -> str:
    change = f" by {change_of(row)}" if row.effect else ""
    return f"{row.id.case_id} ({row.id.arm}, {row.id.regime}){change}"


def change_of(row: ComparedRow) -> str:
    """Return by how much HEAD's time differs from BASE's: ``+5.10 %`` is slower; empty where it is not known."""
    if row.effect is None:
        return ""
    change = 1 / row.effect.ratio - 1
    return f"{'-' if change < 0 else '+'}{percent(abs(change))}"


def interval(row: ComparedRow) -> str:
    """Return ``0.951 [0.949, 0.953]``; ``n/a`` where groups are too few to bound it; empty where there is none."""
    effect = row.effect
    if effect is None:
        return ""
    ends = f"{speedup(effect.low)}, {speedup(effect.high)}" if effect.bounded else "n/a"
    return f"{speedup(effect.ratio)} [{ends}]"


def probability(value: float | None) -> str:
    """Return a p or q: ``0.049``, ``0.0021``, ``7.4e-07``; empty where there is none."""
    if value is None:
        return ""
    return f"{value:.2g}" if value < 0.001 else f"{value:.4f}" if value < 0.01 else f"{value:.3f}"
