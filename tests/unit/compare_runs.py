"""Runs and rows of the tests of ``cake-bench compare``: two revisions of ours, and two baselines."""

import random

from harness.compare.comparison import ComparedRow, Comparison, Limits
from harness.model.case import Case
from tests.unit.report_runs import case

LIMITS = Limits()
OURS, THEIRS, T, C = "cake_det", "previous_det", "torch_grouped_mm", "cublas_loop"


def noisy(source: random.Random, middle_ns: float, n: int, sd: float = 0.003) -> tuple[int, ...]:
    return tuple(round(middle_ns * (1 + source.gauss(0, sd))) for _ in range(n))


def named(index: int, op: str = "dW") -> Case:
    return case(f"row {index:03}", op=op)


def one(comparison: Comparison, name: str = "row 000") -> ComparedRow:
    (found,) = [row for row in comparison.rows if row.id.name == name]
    return found


def steps(middle_ns: int, n: int = 12, step: int = 10_000) -> tuple[int, ...]:
    """``n`` distinct spans from ``middle_ns`` on, a step apart."""
    return tuple(middle_ns + step * place for place in range(n))


SLOW, FAST = steps(8_400_000), steps(8_000_000)
