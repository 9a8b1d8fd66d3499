"""Names of things in a report's Markdown: arms, columns, rows."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model.case import OPS, Case
from harness.model.report import BEST_KNOWN, SOTA, Geomean, Report, RowRatio
from harness.pages.markdown.escape import escape
from harness.pages.markdown.numbers import counted, speedup_range

NAMED_ROWS = 3
"""Rows that a sentence names; of more it gives the count."""


def column(report: Report, against: str) -> str:
    """Return what a column compares with: ``SOTA``, ``best known``, ``previous``, or an arm's name.

    New is never its own baseline. Where it is itself one of those that a role is chosen from, what is left is not that
    role, and is not called so.
    """
    if against == SOTA:
        return "fastest other of t, c, d" if SOTA in report.notes else "SOTA"
    if against == BEST_KNOWN:
        return "best known" if report.new.is_cake else "fastest other baseline"
    return escape(against)


def with_key(report: Report, arm: str) -> str:
    """Return an arm's name with the letter that stands for it in tables, ``cublas_loop (c)``; not yet escaped."""
    key = next((known.key for known in report.arms if known.name == arm), "")
    return f"{arm} ({key})" if key else arm


def direction(report: Report, against: str) -> str:
    """Return ``SOTA / cake_det``, baseline over new as everywhere."""
    return f"{column(report, against)} / {escape(report.new.name)}"


def row(case: Case) -> str:
    """Return operation and name: ``dW gate_up E4 M112576 bal``."""
    return f"{case.op} {escape(case.name)}"


def row_ratio(entry: RowRatio) -> str:
    """Return a row with its ratio: ``dW gate_up E4 M112576 bal 1.061 [1.056, 1.102]``."""
    return f"{row(entry.row.case)} {speedup_range(entry.ratio)}"


def rows(cases: Iterable[Case], *, named: int = NAMED_ROWS) -> str:
    """Return the names of a few rows, or of many their count by operation: ``36 rows (18 fwd, 18 dX)``."""
    listed = list(dict.fromkeys(cases))
    if len(listed) <= named:
        return ", ".join(row(case) for case in listed)
    return f"{counted(len(listed), 'row')} ({by_op(listed)})"


def row_class(report: Report, geomean: Geomean) -> str:
    """Return whose mean it is, ``dW owner``; with the suite where the report has several."""
    several = len({row.case.suite for row in report.rows}) > 1
    suite = f"{escape(geomean.suite)} " if several else ""
    return f"{suite}{geomean.op} {escape(geomean.row_class)}"


def by_op(cases: Iterable[Case]) -> str:
    """Return how many cases each operation has: ``18 fwd, 18 dX``; the operation alone if it is the only one."""
    ops = [case.op for case in cases]
    present = [op for op in OPS if op in ops]
    return present[0] if len(present) == 1 else ", ".join(f"{ops.count(op)} {op}" for op in present)
