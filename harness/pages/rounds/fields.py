"""A cell of the table as named values: what CSV and JSON share."""

from __future__ import annotations

from harness.pages.rounds.summary import Cell, Table
from harness.rounds.model import ROLES


def cell_fields(table: Table, cell: Cell) -> dict[str, str | int | float | None]:
    """Return the values in a fixed order; times in ns, ``None`` where unknown."""
    plan, tests, lag1 = table.run.plan, cell.tests, cell.autocorrelation
    return {
        "suite": cell.case.suite,
        "case": cell.case.case_id,
        "mode": cell.mode,
        "baseline_arm": plan.baseline.arm,
        "new_arm": plan.new.arm,
        "n": cell.all.n,
        "baseline_ns": cell.all.baseline_ns,
        "new_ns": cell.all.new_ns,
        "speedup": cell.all.speedup,
        "p": tests.p if tests else None,
        "p_min": tests.min_p if tests else None,
        "p_holm": tests.p_holm if tests else None,
        "p_signed_rank": tests.p_signed_rank if tests else None,
        "p_signed_rank_min": tests.min_p_signed_rank if tests else None,
        "hl_speedup": tests.speedup.estimate if tests else None,
        "hl_low": tests.speedup.low if tests and tests.speedup.bounded else None,
        "hl_high": tests.speedup.high if tests and tests.speedup.bounded else None,
        "hl_confidence": tests.speedup.confidence if tests else None,
        "superiority": tests.superiority if tests else None,
        **{
            f"{role}_first_{name}": value
            for role in ROLES
            for name, value in (
                ("n", cell.by_order[role].n),
                ("baseline_ns", cell.by_order[role].baseline_ns),
                ("new_ns", cell.by_order[role].new_ns),
                ("speedup", cell.by_order[role].speedup),
            )
        },
        "lag1_baseline": lag1.baseline,
        "lag1_new": lag1.new,
        "lag1_ratio": lag1.ratio,
    }
