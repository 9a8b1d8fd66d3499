"""Cost: how long rows took, and how much of that the device spent in calls that count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from harness.model.run import Row, Run, Sitting


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What sittings took.

    Attributes
    ----------
    rows
        How many rows they measured.
    elapsed_ns
        Host time. What is not in calls that count is flushes, idle gaps, checks, the settling third of each block,
        discarded groups, and the host, which makes inputs, and builds and tunes kernels.
    counted_ns
        Time in calls that count.
    busy
        Whether that is busy time, which the timer then gave for every call; else it is spans.
    """

    rows: int
    elapsed_ns: int
    counted_ns: int
    busy: bool

    @property
    def share(self) -> float:
        """The part of the time in calls that count; 0 where nothing was measured."""
        return self.counted_ns / max(1, self.elapsed_ns)


def with_rows(run: Run) -> tuple[tuple[Sitting, tuple[Row, ...]], ...]:
    """Return each sitting of the run with its rows, which are the run's last."""
    start = len(run.rows) - sum(sitting.rows for sitting in run.sittings)
    found = []
    for sitting in run.sittings:
        found.append((sitting, run.rows[start : start + sitting.rows]))
        start += sitting.rows
    return tuple(found)


def cost(sittings: Sequence[tuple[Sitting, Sequence[Row]]]) -> Cost:
    """Return what ``sittings`` took, each given with its rows."""
    samples = [row.samples for _, rows in sittings for row in rows]
    calls = [count for of_row in samples for count in of_row.calls]
    span_ns = [span for of_row in samples for span in of_row.span_ns]
    busy_ns = [busy for of_row in samples for busy in of_row.busy_ns if busy is not None]
    busy = bool(calls) and len(busy_ns) == len(calls)
    return Cost(
        rows=sum(sitting.rows for sitting, _ in sittings),
        elapsed_ns=sum(sitting.elapsed_ns for sitting, _ in sittings),
        counted_ns=sum(map(mul, busy_ns if busy else span_ns, calls)),
        busy=busy,
    )
