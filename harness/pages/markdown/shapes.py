"""The line "Operations and shapes": which sizes the rows cover."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.model.case import OPS
from harness.model.report import Report
from harness.model.shape import Shape
from harness.pages.markdown.escape import escape

NAMED = 12
"""Projections, (E, M) pairs or kinds that the line names."""

_NAME = re.compile(r"(?P<projection>.*?) ?\bE\d+ M\d+\b ?(?P<kind>.*)")
"""A row's name: ``[model] projection E M [kind] [seed]``."""


def operations_and_shapes(report: Report) -> str:
    """Return operations, N and K of each projection, pairs of E and M, and kinds; empty without a row."""
    cases = list(dict.fromkeys(row.case for row in report.rows))
    if not cases:
        return ""
    shapes = list(dict.fromkeys(case.shape for case in cases))
    types = {op: sorted({case.out_dtype.upper() for case in cases if case.op == op}) for op in OPS}
    ops = [f"{op} ({' and '.join(found)} output)" if "FP32" in found else op for op, found in types.items() if found]
    pairs = sorted({(shape.E, shape.M) for shape in shapes})
    parts = [
        ", ".join(ops),
        _list(_projection(shape) for shape in shapes),
        _list(f"E{E} M{M}" for E, M in pairs),
    ]
    kinds = [kind for shape in shapes if (kind := _part(shape, "kind"))]
    parts += [f"kinds {_list(map(escape, kinds))}"] if kinds else []
    return f"Operations and shapes: {'; '.join(parts)}."


def _projection(shape: Shape) -> str:
    return f"{escape(_part(shape, 'projection'))} N {shape.N} K {shape.K}".strip()


def _part(shape: Shape, part: str) -> str:
    match = _NAME.fullmatch(shape.name)
    return match[part] if match else ""


def _list(texts: Iterable[str]) -> str:
    listed = list(dict.fromkeys(texts))
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more
