"""The page ``json``: a comparison for programs, as strict JSON; null is what is not known or not bounded."""

from __future__ import annotations

import json
from dataclasses import asdict

from harness.compare.comparison import ComparedRow, Comparison
from harness.pages.compare.words import GLYPHS, sentence
from harness.pages.summary.paired import paired_fields

Object = dict[str, object]


def render_page(comparison: Comparison) -> str:
    """Return the comparison, keys in a fixed order, rows in the order of pages. Times are nanoseconds.

    ``ratio`` is BASE / HEAD: above 1, HEAD is faster.
    """
    page: Object = {
        "summary": sentence(comparison),
        "form": comparison.form,
        "base": asdict(comparison.base),
        "head": asdict(comparison.head),
        "products": comparison.products,
        "timers": comparison.timers,
        "limits": asdict(comparison.limits),
        "counts": comparison.counts,
        "concluded": comparison.concluded,
        "tested": comparison.tested,
        "fewest_groups": comparison.fewest_groups,
        "lone_q": comparison.lone_q,
        "enough_groups": comparison.enough_groups,
        "matched": comparison.matched,
        "untried": comparison.untried,
        "base_names": comparison.base_names,
        "head_names": comparison.head_names,
        "differences": [asdict(difference) for difference in comparison.differences],
        "noise": [asdict(noise) for noise in comparison.noise],
        "lanes": [asdict(lane) for lane in comparison.lanes],
        "rows": [fields_of(row) for row in comparison.rows],
        "geomeans": [asdict(geomean) for geomean in comparison.geomeans],
    }
    return json.dumps(page, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def fields_of(row: ComparedRow) -> Object:
    """Return the row's fields by name; the page ``csv`` has the same."""
    effect, bounded = row.effect, row.effect is not None and row.effect.bounded
    return {
        "regime": row.id.regime,
        "suite": row.id.suite,
        "op": row.id.op,
        "case": row.id.name,
        "arm": row.id.arm,
        "verdict": row.verdict,
        "glyph": GLYPHS[row.verdict],
        "reason": row.reason,
        "detail": row.detail,
        "control": row.control,
        "against": row.against or None,
        "ratio": effect.ratio if effect else None,
        "low": effect.low if effect and bounded else None,
        "high": effect.high if effect and bounded else None,
        "cycles_ratio": row.cycles,
        "busy_ratio": row.busy,
        "p": row.p,
        "q": row.q,
        "q_in_reach": row.q_in_reach,
        "superiority": row.superiority,
        **paired_fields(row.paired),
        "n_base": row.n_base,
        "n_head": row.n_head,
        "base_ns": row.base_ns,
        "head_ns": row.head_ns,
        "base_mhz": row.base_mhz,
        "head_mhz": row.head_mhz,
    }
