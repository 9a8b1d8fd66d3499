"""CUPTI: the GPU time of one call from the records of its own kernels, memsets and copies."""

from __future__ import annotations

import atexit
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol

from harness import cupti_session
from harness.clock import RingClock
from harness.cupti_session import CuptiSession, Role, external_id
from harness.devices import Device
from harness.model.sample import Sample
from harness.probe import ClockProbe as Probe
from harness.timers import TimedCall, Traced, refuse_argument
from harness.trace import Attribution, Fault, Ledger, Record, Refused, Timed, added_ns, attribute

Launches = tuple[tuple[str, int], ...]
"""What one call launched: kernels by name, memsets and copies, each with how often; sorted."""

# The host's time varies from call to call; what is enqueued before a call covers it with this margin.
COVER = 1.5


def why_not(device: str) -> str | None:
    """Ask for a GPU, the pinned pair of libraries, a driver, and no profiler around the process."""
    if device != "cuda":
        return "it needs a CUDA device; use --timer cpu"
    return cupti_session.why_not(os.environ)


def check_argument(argument: str | None) -> None:
    """Refuse any."""
    refuse_argument("cupti", argument)


def open_timer(device: Device, argument: str | None) -> CuptiTimer:
    """Return the timer with its session open until the process ends; it takes no argument.

    Raises
    ------
    UsageError
        CUPTI cannot be used, or delivers no records.
    """
    check_argument(argument)
    session = CuptiSession(cupti_session.load(), synchronize=device.synchronize, probe=device.flush)
    session.open()
    # CUPTI hands over what it still holds at exit, when there is no interpreter left to take it.
    atexit.register(session.close)
    return CuptiTimer(device, session, probe=RingClock(Probe(device.torch_device), device.torch_device))


class ClockProbe(Protocol):
    """Reads the SM clock by a small kernel on the current stream."""

    def read(self) -> object:
        """Enqueue a reading and return its token; nothing is waited for."""

    def clock_mhz(self, before: object, after: object) -> int | None:
        """Return the mean clock between two readings, once the device was waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLedger:
    """What became of the records of one row, calibration included.

    Attributes
    ----------
    kernels
        Arm -> every set of kernels, memsets and copies that one of its calls was seen to launch. More than one set is
        worth a look: an arm that does the same work launches the same.
    cover_ns
        Arm -> how long the device is kept busy before its calls; 0 where the host is fast enough anyhow.
    """

    records: Ledger = field(default_factory=Ledger)
    kernels: dict[str, tuple[Launches, ...]] = field(default_factory=dict)
    cover_ns: dict[str, int] = field(default_factory=dict)


class CuptiTimer:
    """Runs calls in one window of a session and times each from its own records.

    A call whose records cannot all be believed gets a reason instead of a time. No other clock takes over, so that a
    paired group is of one timer or is discarded.

    Parameters
    ----------
    session
        Open, for as long as the timer is used.
    probe
        Read before and after each call, where clocks are wanted.
    """

    heading = "CUPTI GPU time of one call, cold L2, queue pre-filled where the host is slower"

    def __init__(
        self,
        device: Device,
        session: CuptiSession,
        *,
        probe: ClockProbe | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._device = device
        self._session = session
        self._probe = probe
        self._sleep = sleep
        self._case_id = ""
        self._ledger = RowLedger()
        self._launches: dict[str, Counter[Launches]] = {}

    @property
    def ledger(self) -> RowLedger:
        """The row's ledger so far."""
        return self._ledger

    def start_row(self, case_id: str) -> None:
        """Begin another row. The same ``case_id`` again is the same row, started again without an arm: counts go on."""
        if case_id != self._case_id:
            self._case_id = case_id
            self._ledger = RowLedger()
            self._launches = {}

    def traced(self) -> Traced:
        """Return the ledger as the run file has it."""
        kernels = {
            arm: tuple(tuple(f"{name} x {count}" for name, count in one) for one in sets)
            for arm, sets in self._ledger.kernels.items()
        }
        return Traced(records=asdict(self._ledger.records), kernels=kernels)

    def measure(self, calls: Sequence[TimedCall]) -> list[Sample]:
        """Time each call; what an arm needs enqueued before it is learned from one call more, its first in the row."""
        for call in {call.arm: call for call in calls}.values():
            if call.arm not in self._ledger.cover_ns:
                self._calibrate(call)
        return self._window(calls)[0]

    def _calibrate(self, call: TimedCall) -> None:
        timed = self._window([call])[1][0]
        # An invalid record leaves the arm uncalibrated: its calls are covered in full until one is valid.
        if isinstance(timed, Timed):
            cover = cover_ns(call.enqueue_ns, timed.records)
            self._ledger = replace(self._ledger, cover_ns={**self._ledger.cover_ns, call.arm: cover})

    def _window(self, calls: Sequence[TimedCall]) -> tuple[list[Sample], list[Timed | Refused]]:
        """Run the calls in one window; return what each is as a sample, and as a verdict."""
        cover = max(self._cover_ns(call) for call in calls)
        self._session.start()
        readings = [self._one(index, call, cover) for index, call in enumerate(calls)]
        trace = self._session.stop()
        places = range(len(calls))
        own = (Role.FLUSH,) if self._probe is None else (Role.FLUSH, Role.PROBE)
        found = attribute(
            trace.records,
            trace.external,
            [external_id(Role.CALL, place) for place in places],
            trace.window,
            dropped=trace.dropped,
            reserved_ids=[external_id(role, place) for role in own for place in places],
        )
        seen = judged(found, len(calls))
        verdicts = self._whole(calls, seen)
        partial = sum(verdict is not before for verdict, before in zip(verdicts, seen, strict=True))
        self._record(calls, found.ledger + Ledger(lost=partial), verdicts)
        return [self._sample(v, *r) for v, r in zip(verdicts, readings, strict=True)], verdicts

    def _cover_ns(self, call: TimedCall) -> int:
        return self._ledger.cover_ns.get(call.arm, math.ceil(COVER * call.enqueue_ns))

    def _one(self, place: int, call: TimedCall, cover_ns: int) -> tuple[object, object]:
        """Run one call; return the clock's readings before and after it.

        All arms of a window wait as long as the one that needs it most: a wait is rest, and rest is clock.
        """
        if call.gap_ns:
            self._device.synchronize()
            self._sleep(call.gap_ns / 1e9)
        with self._session.label(external_id(Role.FLUSH, place)):
            self._device.flush(cover_ns=cover_ns if call.enqueue_ns else 0)
        before = self._read(place)
        with self._session.label(external_id(Role.CALL, place)):
            call.launch()
        return before, self._read(place)

    def _read(self, place: int) -> object:
        if self._probe is None:
            return None
        with self._session.label(external_id(Role.PROBE, place)):
            return self._probe.read()

    def _sample(self, verdict: Timed | Refused, before: object, after: object) -> Sample:
        if isinstance(verdict, Refused):
            return Sample(span_ns=math.nan, reason=verdict.reason)
        clock_mhz = self._probe.clock_mhz(before, after) if self._probe else None
        return Sample(span_ns=verdict.span_ns, busy_ns=verdict.busy_ns, clock_mhz=clock_mhz)

    def _whole(self, calls: Sequence[TimedCall], verdicts: Sequence[Timed | Refused]) -> list[Timed | Refused]:
        """Refuse the calls that lack records of what their arm usually launches in this row."""
        for call, verdict in zip(calls, verdicts, strict=True):
            if isinstance(verdict, Timed):
                self._launches.setdefault(call.arm, Counter())[launches(verdict)] += 1
        return [
            whole(verdict, usual(self._launches[call.arm])) if isinstance(verdict, Timed) else verdict
            for call, verdict in zip(calls, verdicts, strict=True)
        ]

    def _record(self, calls: Sequence[TimedCall], found: Ledger, verdicts: Sequence[Timed | Refused]) -> None:
        kernels = dict(self._ledger.kernels)
        for call, verdict in zip(calls, verdicts, strict=True):
            if isinstance(verdict, Refused):
                continue
            launched = launches(verdict)
            if launched not in kernels.get(call.arm, ()):
                kernels[call.arm] = (*kernels.get(call.arm, ()), launched)
        self._ledger = replace(self._ledger, records=self._ledger.records + found, kernels=kernels)


def judged(found: Attribution, n_calls: int) -> list[Timed | Refused]:
    """Return the verdict on each call of a window: its own, on its flush, on strays, and on what overlaps a flush.

    A call's time goes from its flush to the next call's. A stray is blamed on that call, because it is most likely work
    that its arm launched from another thread; a stray from before the first flush, on the first call. A call that began
    before its flush was over, or ended after the next one began, ran beside a flush on another stream: its caches, or
    the next call's, were not cold.
    """
    flushes = [found.reserved[external_id(Role.FLUSH, place)] for place in range(n_calls)]
    starts = [(flush.start_ns, place) for place, flush in enumerate(flushes) if isinstance(flush, Timed)]
    strays: dict[int, list[Record]] = {}
    for stray in found.orphans:
        place = max((place for start, place in starts if start <= stray.start_ns), default=0)
        strays.setdefault(place, []).append(stray)
    verdicts = [found.calls[external_id(Role.CALL, place)] for place in range(n_calls)]
    for place, flush in enumerate(flushes):
        if isinstance(flush, Refused) and isinstance(verdicts[place], Timed):
            verdicts[place] = Refused(fault=flush.fault, reason=f"its flush: {flush.reason}")
        if mine := strays.get(place):
            reason = f"{len(mine)} records without an id ran in its time, the first {mine[0].name or mine[0].kind}"
            verdicts[place] = Refused(fault=Fault.STRAY, reason=reason)
        if overlap := _overlap(verdicts[place], flush, flushes[place + 1] if place + 1 < n_calls else None):
            verdicts[place] = Refused(fault=Fault.OVERLAP, reason=f"{Fault.OVERLAP}: {overlap}")
    return verdicts


def _overlap(call: Timed | Refused, flush: Timed | Refused, following: Timed | Refused | None) -> str:
    if isinstance(call, Refused):
        return ""
    if isinstance(flush, Timed) and call.start_ns < flush.end_ns:
        return f"it began {flush.end_ns - call.start_ns} ns before its flush was over"
    if isinstance(following, Timed) and call.end_ns > following.start_ns:
        return f"it ran on for {call.end_ns - following.start_ns} ns after the next flush had begun"
    return ""


def launches(call: Timed) -> Launches:
    """Return what ``call`` launched."""
    return tuple(sorted(Counter(call.names).items()))


def usual(seen: Counter[Launches]) -> Launches:
    """Return what an arm's calls launch most often; of sets that were seen equally often, the one with most in it."""
    return max(seen, key=lambda one: (seen[one], sum(count for _, count in one)))


def whole(call: Timed, expected: Launches) -> Timed | Refused:
    """Return ``call``, or that it lacks records: it launched a part of what is ``expected`` of it, and nothing else.

    CUPTI can lose a record without counting it as dropped. A call that launched something else as well did other work.
    """
    wanted, found = Counter(dict(expected)), Counter(call.names)
    if not found < wanted:
        return call
    missing = wanted - found
    of = f"{missing.total()} of the {wanted.total()} records that calls of its arm have"
    return Refused(fault=Fault.LOST, reason=f"{Fault.LOST}: {of}, among them {min(missing)}")


def cover_ns(enqueue_ns: int, records: Sequence[Record]) -> int:
    """Return how long the device must be busy before a call so that no record but the first waits for the host.

    Assumes that the host enqueues the call's ``records`` at a steady pace over ``enqueue_ns``. The device, once it has
    begun, is done with the first j records after the length of their union; the host needs j + 1 paces to enqueue the
    next. An arm with one kernel needs no cover, nor one whose kernels outlast their launches.
    """
    pace_ns = COVER * enqueue_ns / len(records)
    cover, done_ns = 0.0, 0
    for j, added in enumerate(added_ns((r.start_ns, r.end_ns) for r in records)):
        if j:
            cover = max(cover, pace_ns * (j + 1) - done_ns)
        done_ns += added
    return math.ceil(cover)
