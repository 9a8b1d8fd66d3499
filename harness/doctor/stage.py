"""An open GPU and how a call on it is timed by events, with CUPTI in the process or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from harness.cupti_session import CuptiSession, Role, external_id
from harness.devices import Device
from harness.errors import MeasurementError
from harness.timers.cupti import judged
from harness.trace import Refused, Timed, attribute

REPEATS = 20
"""Calls of one kind; a reading is their median."""

COVER_NS = 1_000_000
"""The device is kept busy for so long before a call: a hundred times what the host needs to enqueue one launch."""


class Event(Protocol):
    """What is asked of a CUDA event."""

    def record(self) -> object:
        """Enqueue the event."""

    def query(self) -> bool:
        """Return whether the device has come to it."""

    def synchronize(self) -> object:
        """Wait until the device has come to it."""

    def elapsed_time(self, end: Any) -> float:
        """Return the milliseconds to ``end``."""


class Wait(Protocol):
    """A kernel of known duration; :class:`harness.probe.Spin`."""

    def launch(self, ns: int) -> None:
        """Enqueue it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is launched before a call, at least one kernel that lasts :data:`COVER_NS`, and the call."""

    prepare: Callable[[], object]
    call: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """One trial's calls by both timers, in the order in which they ran."""

    cupti_ns: tuple[int, ...]
    events_ns: tuple[int, ...]

    @property
    def cupti(self) -> float:
        """Median by CUPTI."""
        return median(self.cupti_ns)

    @property
    def events(self) -> float:
        """Median by events."""
        return median(self.events_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A GPU that is open, and what is needed to time launches on it."""

    device: Device
    spin: Wait
    new_event: Callable[[], Event]
    clock: Callable[[], int]

    def by_events(self, trial: Trial, repeats: int = REPEATS) -> tuple[int, ...]:
        """Return the time of each call by events."""
        pairs = []
        for _ in range(repeats):
            trial.prepare()
            pairs.append(self._enclosed(trial.call))
        self.device.synchronize()
        return _distances_ns(pairs)

    def by_both(self, session: CuptiSession, trial: Trial, repeats: int = REPEATS) -> Times:
        """Return the time of each call by CUPTI and, in the same window, by events.

        Raises
        ------
        MeasurementError
            A call has no time by one of them.
        """
        session.start()
        pairs = []
        for place in range(repeats):
            with session.label(external_id(Role.FLUSH, place)):
                trial.prepare()
            with session.label(external_id(Role.CALL, place)):
                pairs.append(self._enclosed(trial.call))
        trace = session.stop()
        found = attribute(
            trace.records,
            trace.external,
            [external_id(Role.CALL, place) for place in range(repeats)],
            trace.window,
            dropped=trace.dropped,
            reserved_ids=[external_id(Role.FLUSH, place) for place in range(repeats)],
        )
        return Times(cupti_ns=_spans_ns(judged(found, repeats)), events_ns=_distances_ns(pairs))

    def _enclosed(self, call: Callable[[], object]) -> tuple[Event, Event]:
        start, end = self.new_event(), self.new_event()
        start.record()
        call()
        if start.query():
            raise MeasurementError("the device was idle before the call was enqueued, so its time holds the host's")
        end.record()
        return start, end


def _spans_ns(verdicts: Sequence[Timed | Refused]) -> tuple[int, ...]:
    refused = [verdict.reason for verdict in verdicts if isinstance(verdict, Refused)]
    if refused:
        raise MeasurementError(f"{len(refused)} of {len(verdicts)} calls have no time by CUPTI: {refused[0]}")
    return tuple(verdict.span_ns for verdict in verdicts if isinstance(verdict, Timed))


def _distances_ns(pairs: Sequence[tuple[Event, Event]]) -> tuple[int, ...]:
    return tuple(round(1e6 * start.elapsed_time(end)) for start, end in pairs)
