"""Attribution: which device records belong to which call, and what a call's GPU time is. Pure: records in, numbers out.

A record carries the correlation id of the API call that launched it, runtime or driver; a correlation ties that id to
the external id under which the harness made the call. Records come in no order. What cannot be trusted makes its call
:class:`Refused`: a call is never timed from the records that happen to be left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What the device did."""

    KERNEL = "kernel"
    MEMSET = "memset"
    MEMCPY = "memcpy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One kernel, memset or copy as the tracer reported it, believable or not.

    Attributes
    ----------
    correlation_id
        Of the API call that launched it; the nodes of one graph launch share it.
    graph_node
        Tells the nodes of a graph apart; 0 outside of graphs.
    name
        Of a kernel; empty for the others.
    bytes
        Of a memset or copy; 0 for a kernel.
    """

    kind: Kind
    correlation_id: int
    start_ns: int
    end_ns: int
    stream: int = 0
    graph_node: int = 0
    name: str = ""
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """The API call ``correlation_id`` was made under the external id ``external_id``."""

    correlation_id: int
    external_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When a trace was taken; a record outside of it is no record of it."""

    start_ns: int
    end_ns: int


class Fault(StrEnum):
    """Why a call has no time. A call with several has the first of them."""

    ZERO = "zero timestamp"
    INVERTED = "end before start"
    OUTSIDE = "outside the window"
    DUPLICATE = "reported twice"
    STRAY = "a kernel without an id beside it"
    OVERLAP = "overlaps a flush"
    CANNOT_TELL = "cannot tell"
    LOST = "lost"
    LAUNCHED_NOTHING = "launched nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A call that has no time, and why."""

    fault: Fault
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A call whose records, at least one, are all believable; in the order of their starts."""

    records: tuple[Record, ...]

    @property
    def start_ns(self) -> int:
        """First start."""
        return self.records[0].start_ns

    @property
    def end_ns(self) -> int:
        """Last end: the last to start need not be the last to end."""
        return max(r.end_ns for r in self.records)

    @property
    def span_ns(self) -> int:
        """Last end minus first start."""
        return self.end_ns - self.start_ns

    @property
    def busy_ns(self) -> int:
        """Time in which at least one record ran; at most the span, and at most the sum."""
        return union_ns((r.start_ns, r.end_ns) for r in self.records)

    @property
    def sum_ns(self) -> int:
        """Sum of the durations: counts the overlap of kernels twice."""
        return sum(r.end_ns - r.start_ns for r in self.records)

    @property
    def gap_ns(self) -> int:
        """Time within the span in which nothing ran."""
        return self.span_ns - self.busy_ns

    @property
    def names(self) -> tuple[str, ...]:
        """Kernels by name, ``memset`` and ``memcpy``, in the order of their starts."""
        return tuple(r.name or str(r.kind) for r in self.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What became of every record. ``seen`` is the sum of ``attributed`` to ``duplicates``.

    Attributes
    ----------
    attributed, reserved
        Believable records of expected calls, and of what the harness itself launched beside them.
    orphans
        Records whose call is not known: no id, an id nobody gave out, or two of them.
    duplicates
        Records of a launch, or of a node of a graph launch, beyond its first.
    lost
        Expected calls that lack records: all, or some that the calls of their arm usually have.
    dropped
        Records that the tracer says it had no room for; ``None`` where it could not say.
    """

    seen: int = 0
    attributed: int = 0
    reserved: int = 0
    orphans: int = 0
    zero: int = 0
    inverted: int = 0
    outside: int = 0
    duplicates: int = 0
    lost: int = 0
    dropped: int | None = 0

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger(
            seen=self.seen + other.seen,
            attributed=self.attributed + other.attributed,
            reserved=self.reserved + other.reserved,
            orphans=self.orphans + other.orphans,
            zero=self.zero + other.zero,
            inverted=self.inverted + other.inverted,
            outside=self.outside + other.outside,
            duplicates=self.duplicates + other.duplicates,
            lost=self.lost + other.lost,
            dropped=None if self.dropped is None or other.dropped is None else self.dropped + other.dropped,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """A trace taken apart: a verdict for each id, the records that nobody owns by start, the count of everything."""

    calls: dict[int, Timed | Refused]
    reserved: dict[int, Timed | Refused]
    orphans: tuple[Record, ...]
    ledger: Ledger


def attribute(
    records: Iterable[Record],
    external: Iterable[Correlation],
    expected_ids: Sequence[int],
    window: Window,
    *,
    dropped: int | None,
    reserved_ids: Collection[int] = (),
) -> Attribution:
    """Give every record to its call and time the calls.

    Parameters
    ----------
    expected_ids
        External ids of the calls to time, each once.
    dropped
        Records that the tracer dropped while the window was open, ``None`` where it could not say. A dropped record may
        be anybody's: unless it is 0, no call of the trace has a time.
    reserved_ids
        External ids of what the harness launched beside the calls: flushes, probes.

    Raises
    ------
    ValueError
        An id stands twice.
    """
    ids = [*expected_ids, *reserved_ids]
    if len(set(ids)) != len(ids):
        twice = sorted(i for i in set(ids) if ids.count(i) > 1)
        raise ValueError(f"expected_ids and reserved_ids must name each external id once, got {twice} twice")
    correlations = list(external)
    owners = _owners(correlations)
    mine: dict[int, list[Record]] = {external_id: [] for external_id in ids}
    faults: dict[int, list[Fault]] = {external_id: [] for external_id in ids}
    orphans: list[Record] = []
    seen: set[tuple[Kind, int, int]] = set()
    ordered = sorted(records, key=_order)
    for record in ordered:
        owner = owners.get(record.correlation_id)
        if owner not in mine:
            orphans.append(record)
        elif fault := _fault(record, window, seen):
            faults[owner].append(fault)
        else:
            mine[owner].append(record)
            seen.add(_launched(record))
    traced = {c.external_id for c in correlations}
    verdicts = {i: _verdict(mine[i], faults[i], dropped=dropped, traced=i in traced) for i in ids}
    found = [fault for of_call in faults.values() for fault in of_call]
    ledger = Ledger(
        seen=len(ordered),
        attributed=sum(len(mine[i]) for i in expected_ids),
        reserved=sum(len(mine[i]) for i in reserved_ids),
        orphans=len(orphans),
        zero=found.count(Fault.ZERO),
        inverted=found.count(Fault.INVERTED),
        outside=found.count(Fault.OUTSIDE),
        duplicates=found.count(Fault.DUPLICATE),
        lost=sum(not mine[i] and not faults[i] for i in expected_ids),
        dropped=dropped,
    )
    return Attribution(
        calls={i: verdicts[i] for i in expected_ids},
        reserved={i: verdicts[i] for i in reserved_ids},
        orphans=tuple(orphans),
        ledger=ledger,
    )


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of ``(start, end)`` intervals with start <= end, in any order."""
    return sum(added_ns(sorted(intervals)))


def added_ns(ordered: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield how much each interval adds to the union of those before it; they are ordered by start."""
    reach: int | None = None
    for start, end in ordered:
        covered = start if reach is None else max(start, reach)
        yield max(0, end - covered)
        reach = end if reach is None else max(reach, end)


def _owners(correlations: Iterable[Correlation]) -> dict[int, int]:
    """Return correlation id -> external id; an id that two calls claim belongs to neither."""
    claims: dict[int, set[int]] = {}
    for c in correlations:
        claims.setdefault(c.correlation_id, set()).add(c.external_id)
    return {correlation_id: ids.pop() for correlation_id, ids in claims.items() if len(ids) == 1}


def _order(record: Record) -> tuple[int, int, int, int, int, str, str, int]:
    return (
        record.start_ns,
        record.end_ns,
        record.correlation_id,
        record.stream,
        record.graph_node,
        record.kind,
        record.name,
        record.bytes,
    )


def _launched(record: Record) -> tuple[Kind, int, int]:
    """Return what makes one record and no more: a launch, memset or copy, or a node of a graph launch."""
    return (record.kind, record.correlation_id, record.graph_node)


def _fault(record: Record, window: Window, seen: Collection[tuple[Kind, int, int]]) -> Fault | None:
    if record.start_ns == 0 or record.end_ns == 0:
        return Fault.ZERO
    if record.end_ns < record.start_ns:
        return Fault.INVERTED
    if record.start_ns < window.start_ns or record.end_ns > window.end_ns:
        return Fault.OUTSIDE
    return Fault.DUPLICATE if _launched(record) in seen else None


def _verdict(mine: Sequence[Record], faults: Sequence[Fault], *, dropped: int | None, traced: bool) -> Timed | Refused:
    if faults:
        fault = min(faults, key=list(Fault).index)
        total = len(mine) + len(faults)
        return Refused(fault=fault, reason=f"{fault}: {faults.count(fault)} of its {total} records")
    if dropped is None:
        reason = "the count of dropped records could not be read, so nobody knows whether its records are all there"
        return Refused(fault=Fault.CANNOT_TELL, reason=f"{Fault.CANNOT_TELL}: {reason}")
    if dropped:
        reason = f"{dropped} records were dropped while its group ran, and they may be its own"
        return Refused(fault=Fault.LOST, reason=f"{Fault.LOST}: {reason}")
    if mine:
        return Timed(records=tuple(mine))
    if traced:
        reason = "its launch was traced, and no record of what it launched came back"
        return Refused(fault=Fault.LOST, reason=f"{Fault.LOST}: {reason}")
    reason = "no launch, memset or copy was made under its id, or it was made from another thread"
    return Refused(fault=Fault.LAUNCHED_NOTHING, reason=f"{Fault.LAUNCHED_NOTHING}: {reason}")
