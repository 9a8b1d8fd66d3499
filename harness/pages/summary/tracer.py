"""What the tracer saw over all rows: the ledger of its records, and what one call of an arm launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.model.case import STEPS
from harness.model.conditions import Launches, RecordCount
from harness.model.run import ArmInfo, Row, Run
from harness.pages.summary.states import value_range

MEMSET, COPY = "memset", "memcpy"


def record_counts(runs: Sequence[Run]) -> tuple[RecordCount, ...]:
    """Return the sum of each count of the ledger; unknown where one row's is: a sum without it would be too small."""
    ledgers = [row.records for run in runs for row in run.rows if row.records]
    names = dict.fromkeys(name for ledger in ledgers for name in ledger)
    return tuple(
        RecordCount(name=name, count=_sum(ledger[name] for ledger in ledgers if name in ledger)) for name in names
    )


def launches(runs: Sequence[Run], arms: tuple[ArmInfo, ...]) -> tuple[Launches, ...]:
    """Return one an arm that a tracer saw, and one for each kind of step; twins launch what their arm does."""
    rows = [row for run in runs for row in run.rows]
    every = (_of_arm(arm.name, op, _seen(rows, arm.name, op)) for arm in arms if not arm.twin_of for op in ("", *STEPS))
    return tuple(entry for entry in every if entry is not None)


def _seen(rows: Sequence[Row], arm: str, op: str) -> list[Row]:
    return [row for row in rows if row.kernels.get(arm) and op == (row.case.op if row.case.is_step else "")]


def _of_arm(arm: str, op: str, rows: Sequence[Row]) -> Launches | None:
    if not rows:
        return None
    sets = [(row, dict(map(_parsed, one))) for row in rows for one in row.kernels[arm]]
    kernels = [(row, sum(n for name, n in one.items() if name not in (MEMSET, COPY))) for row, one in sets]
    return Launches(
        arm=arm,
        op=op,
        rows=len(rows),
        kernels=value_range(n for _, n in kernels),
        memsets=value_range(one.get(MEMSET, 0) for _, one in sets),
        copies=value_range(one.get(COPY, 0) for _, one in sets),
        per_group=not op and all(n == sum(size > 0 for size in row.case.shape.group_sizes) for row, n in kernels),
        varying=sum(len(row.kernels[arm]) > 1 for row in rows),
        names=tuple(dict.fromkeys(name for _, one in sets for name in one if name not in (MEMSET, COPY))),
    )


def _parsed(launched: str) -> tuple[str, int]:
    """Return name and count of ``name x count``; a kernel's name may hold an ``x`` of its own."""
    name, _, count = launched.rpartition(" x ")
    return name, int(count)


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
