"""Side: what one run says of one arm in one row."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from harness.model.run import Row
from harness.stats.median import median

Number = TypeVar("Number", int, float)

_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory|MemoryError|fit in memory|of (device )?memory", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What a call of an arm costs, group by group, or why there is nothing.

    Attributes
    ----------
    status
        ``measured``; ``failed``: wrong, raised, or out of memory; ``absent``: the run does not have the row, or the arm
        cannot do it.
    why
        Why there is no time; empty when measured.
    span_ns, cycles, busy_ns
        Of each group, in order; the latter two empty where not known.
    clock_mhz
        Median SM clock.
    """

    status: Literal["measured", "failed", "absent"]
    why: str = ""
    span_ns: tuple[float, ...] = ()
    cycles: tuple[float, ...] = ()
    busy_ns: tuple[float, ...] = ()
    clock_mhz: float | None = None

    @property
    def out_of_memory(self) -> bool:
        """Whether memory is the reason."""
        return bool(_OUT_OF_MEMORY.search(self.why))

    @property
    def middle_ns(self) -> float | None:
        """Median span."""
        return median(self.span_ns) if self.span_ns else None

    @property
    def gap(self) -> float:
        """(span - busy) / span, the median over the groups; 0 where busy times are not known."""
        if not self.busy_ns:
            return 0.0
        return median([(span - busy) / span for span, busy in zip(self.span_ns, self.busy_ns, strict=True)])

    def over(self, baseline: Side) -> Side:
        """Return this side's costs over those of a baseline in the same paired groups: numbers without a unit."""
        return Side(
            status="measured",
            span_ns=_quotients(self.span_ns, baseline.span_ns),
            cycles=_quotients(self.cycles, baseline.cycles),
            busy_ns=_quotients(self.busy_ns, baseline.busy_ns),
        )


def side_of(row: Row | None, arm: str) -> Side:
    """Return what ``row`` says of ``arm``; None: the run does not have the row."""
    if row is None:
        return Side(status="absent", why="the run does not have the row")
    if row.skipped:
        return Side(status="absent", why=row.skipped)
    outcome = row.arms.get(arm)
    if outcome is None:
        return Side(status="absent", why=f"the run does not have the arm {arm}")
    if outcome.status == "unsupported":
        return Side(status="absent", why=outcome.reason)
    if outcome.status == "failed":
        return Side(status="failed", why=outcome.reason)
    places = [index for _, index in row.samples.by_group(arm)]
    spans = tuple(row.samples.span_ns[index] for index in places)
    clocks = _known(row.samples.clock_mhz[index] for index in places)
    return Side(
        status="measured",
        span_ns=spans,
        cycles=tuple(span * mhz / 1e3 for span, mhz in zip(spans, clocks, strict=True)) if clocks else (),
        busy_ns=_known(row.samples.busy_ns[index] for index in places),
        clock_mhz=median(clocks) if clocks else None,
    )


def _known(values: Iterable[Number | None]) -> tuple[Number, ...]:
    """Return the values where all are known, else none."""
    listed = list(values)
    known = tuple(value for value in listed if value is not None)
    return known if len(known) == len(listed) else ()


def _quotients(ours: tuple[float, ...], theirs: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(one / other for one, other in zip(ours, theirs, strict=True)) if ours and theirs else ()
