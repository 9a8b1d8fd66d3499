"""Paired groups: in a group every arm runs once, close together; a row's speedup comes from ratios within groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, median_low

from harness.arms import Prepared
from harness.devices import Device
from harness.errors import FOREIGN, MeasurementError, first_line
from harness.model.run import Discarded, GroupState
from harness.model.sample import Sample, Samples
from harness.monitor import ABNORMAL, Monitor
from harness.orders import group_count, orders
from harness.protocols.regimes import Regime
from harness.timers import TimedCall, Timer

CALIBRATION_CALLS = 3
"""Calls from which the length of an arm's gap and of its wait are learned: their median."""

CLOCK_TOLERANCE = 0.03
"""A group is measured again where an arm's clock is off the same arm's in the other groups by more than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the protocol has of one row in one regime.

    Attributes
    ----------
    failures
        Arm -> why it could not be timed; such an arm has no samples.
    discarded
        Groups that were thrown away and measured again.
    states
        The GPU after each group.
    skipped
        Why the row is not measured in this regime; empty otherwise.
    records, kernels
        As in :class:`~harness.model.run.Row`.
    """

    n_groups: int = 0
    samples: Samples = field(default_factory=Samples)
    failures: dict[str, str] = field(default_factory=dict)
    discarded: tuple[Discarded, ...] = ()
    states: tuple[GroupState, ...] = ()
    skipped: str = ""
    records: dict[str, int | None] = field(default_factory=dict)
    kernels: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What measuring needs beside the arms.

    Attributes
    ----------
    groups
        Paired groups a row, at least.
    monitor
        The GPU's driver, where there is one.
    clock
        Integer nanoseconds of the host.
    """

    timer: Timer
    device: Device
    groups: int
    monitor: Monitor | None = None
    clock: Callable[[], int] = time.perf_counter_ns


def measure(arms: Mapping[str, Prepared], regime: Regime, session: Session, *, floor_ns: int, case_id: str) -> Measured:
    """Time ``arms`` in paired groups, in an order that is balanced over the arms that can be timed.

    A group is discarded whole and measured again when a sample is invalid (not a number, infinite, not positive: a lost
    record), when the GPU was held down by something else than its power cap, or when an arm's clock differs from the
    same arm's in the other groups; never for a duration. A reason has as many tries as the row has groups: an arm
    without a valid sample then fails, a group under another clock then stands as it is, with its clock beside it. A
    time below ``floor_ns`` fails its arm at once: it is impossible, and trying again until it is merely improbable
    would be choosing. When an arm fails, the row starts again without it, so that the others' order stays balanced.
    """
    failures: dict[str, str] = {}
    discarded: list[Discarded] = []
    while remaining := {name: arm for name, arm in arms.items() if name not in failures}:
        session.timer.start_row(f"{regime.name} {case_id}")
        try:
            calls = {name: _calibrated(name, arm, session) for name, arm in remaining.items()}
            if skipped := regime.why_not(min(call.gap_ns for call in calls.values())):
                return Measured(failures=failures, discarded=tuple(discarded), skipped=skipped)
            groups = _Groups(calls, regime, session, floor_ns, discarded, attempt=len(failures)).measured()
        except _ArmFailed as failed:
            failures[failed.arm] = failed.reason
            continue
        traced = session.timer.traced()
        return Measured(
            n_groups=len(groups),
            samples=_columns(groups),
            failures=failures,
            discarded=tuple(discarded),
            states=tuple(group.state for group in groups if group.state),
            records=traced.records,
            kernels=traced.kernels,
        )
    return Measured(failures=failures, discarded=tuple(discarded))


class _ArmFailed(MeasurementError):
    """An arm cannot be timed in this row."""

    def __init__(self, arm: str, reason: str) -> None:
        super().__init__(f"{arm}: {reason}")
        self.arm = arm
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Named:
    """An arm's launch that says whose exception it was."""

    arm: str
    launch: Callable[[], object]

    def __call__(self) -> object:
        try:
            return self.launch()
        except FOREIGN as error:  # whatever an arm raises is the recorded reason for its missing time
            raise _ArmFailed(self.arm, f"raised {type(error).__name__}: {first_line(error)}") from error


def _calibrated(name: str, arm: Prepared, session: Session) -> TimedCall:
    """Warm the arm up and learn how long the host takes to enqueue a call, and the device to do it."""
    launch = _Named(name, arm.launch)
    launch()
    session.device.synchronize()
    times = [_one_call(launch, session) for _ in range(CALIBRATION_CALLS)]
    return TimedCall(
        arm=name,
        launch=launch,
        gap_ns=median_low(done for _, done in times),
        enqueue_ns=median_low(enqueued for enqueued, _ in times),
    )


def _one_call(launch: Callable[[], object], session: Session) -> tuple[int, int]:
    start = session.clock()
    launch()
    enqueued = session.clock()
    session.device.synchronize()
    return enqueued - start, session.clock() - start


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """A group that was accepted: its arms in their order, a sample each."""

    arms: tuple[str, ...]
    samples: tuple[Sample, ...]
    state: GroupState | None

    def clock_of(self, arm: str) -> int | None:
        return self.samples[self.arms.index(arm)].clock_mhz


class _Groups:
    """Measures the groups of one row, again where one must be."""

    def __init__(
        self,
        calls: Mapping[str, TimedCall],
        regime: Regime,
        session: Session,
        floor_ns: int,
        discarded: list[Discarded],
        *,
        attempt: int,
    ) -> None:
        self._calls = calls
        self._regime = regime
        self._session = session
        self._floor_ns = floor_ns
        self._discarded = discarded
        self._attempt = attempt
        self._lost: dict[str, list[str]] = {}
        names = list(calls)
        count = group_count(len(names), session.groups)
        self._orders = [tuple(names[index] for index in order) for order in orders(len(names), count)]
        self._tries = {"invalid": count, "throttled": count, "clock": count}

    def measured(self) -> list[_Group]:
        groups: list[_Group] = []
        try:
            for index in range(len(self._orders)):
                groups.append(self._accepted(index))
            while (odd := odd_clock(groups)) and self._try("clock"):
                self._discard(odd.index, groups[odd.index], odd.arm, odd.reason)
                groups[odd.index] = self._accepted(odd.index)
        except _ArmFailed as failed:
            for index, group in enumerate(groups):
                self._discard(index, group, failed.arm, f"the row started again without {failed.arm}")
            raise
        return groups

    def _try(self, why: str) -> bool:
        self._tries[why] -= 1
        return self._tries[why] >= 0

    def _discard(self, index: int, group: _Group, arm: str, reason: str) -> None:
        spans = {
            name: None if sample.impossible() else int(sample.span_ns)
            for name, sample in zip(group.arms, group.samples, strict=True)
        }
        self._discarded.append(Discarded(attempt=self._attempt, group=index, arm=arm, reason=reason, span_ns=spans))

    def _accepted(self, index: int) -> _Group:
        order = self._orders[index]
        while True:
            samples = self._regime.measure([self._calls[name] for name in order], self._session.timer, self._energy)
            state = self._session.monitor.state() if self._session.monitor else None
            group = _Group(arms=order, samples=tuple(samples), state=state)
            invalid = {arm: why for arm, s in zip(order, samples, strict=True) if (why := s.impossible())}
            if invalid:
                arm, reason = next(iter(invalid.items()))
                self._discard(index, group, arm, reason)
                for name, why in invalid.items():
                    self._lost.setdefault(name, []).append(why)
                if not self._try("invalid"):
                    # The arm that lost most, not the one that happened to lose last.
                    arm, reasons = max(self._lost.items(), key=lambda lost: len(lost[1]))
                    raise _ArmFailed(arm, f"{len(reasons)} groups discarded, {index} accepted: {reasons[-1]}")
                continue
            self._refuse_impossible(group, index)
            held = ABNORMAL.intersection(state.throttle) if state else frozenset()
            if held and self._try("throttled"):
                self._discard(index, group, "", f"throttled: {', '.join(sorted(held))}")
                continue
            return group

    def _refuse_impossible(self, group: _Group, index: int) -> None:
        for arm, sample in zip(group.arms, group.samples, strict=True):
            if sample.span_ns < self._floor_ns:
                took = f"took {sample.span_ns:g} ns, below the {self._floor_ns} ns"
                reason = f"{took} that the row's FLOPs and bytes need here"
                self._discard(index, group, arm, reason)
                raise _ArmFailed(arm, reason)

    def _energy(self) -> int | None:
        return self._session.monitor.energy_mj() if self._session.monitor else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _OddClock:
    """A group in which an arm ran under another clock than in the rest."""

    off: float
    index: int
    arm: str
    reason: str


def odd_clock(groups: Sequence[_Group]) -> _OddClock | None:
    """Return the group in which an arm's clock is furthest off the same arm's median, if that is too far.

    The median is over all of the arm's groups that have a clock; the reason names that of the others.
    """
    worst: _OddClock | None = None
    for arm in groups[0].arms if groups else ():
        clocks = {index: clock for index, group in enumerate(groups) if (clock := group.clock_of(arm)) is not None}
        for index, clock in clocks.items():
            off = abs(clock / median(clocks.values()) - 1)
            if off > CLOCK_TOLERANCE and (worst is None or off > worst.off):
                others = median(other for group, other in clocks.items() if group != index)
                reason = f"clock {clock} MHz, {others:g} MHz in the other groups"
                worst = _OddClock(off=off, index=index, arm=arm, reason=reason)
    return worst


def _columns(groups: Sequence[_Group]) -> Samples:
    cells = [
        (index, place, arm, sample)
        for index, group in enumerate(groups)
        for place, (arm, sample) in enumerate(zip(group.arms, group.samples, strict=True))
    ]
    return Samples(
        group=tuple(index for index, _, _, _ in cells),
        position=tuple(place for _, place, _, _ in cells),
        arm=tuple(arm for _, _, arm, _ in cells),
        span_ns=tuple(int(s.span_ns) for _, _, _, s in cells),
        busy_ns=tuple(s.busy_ns for _, _, _, s in cells),
        clock_mhz=tuple(s.clock_mhz for _, _, _, s in cells),
        joules=tuple(s.joules for _, _, _, s in cells),
        calls=tuple(s.calls for _, _, _, s in cells),
    )
