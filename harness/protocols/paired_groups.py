"""Paired groups: in a group every arm runs once, close together; a row's speedup comes from ratios within groups."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.arms import Prepared
from harness.devices import Device
from harness.errors import MeasurementError, UsageError
from harness.model.run import Discarded
from harness.model.sample import Sample, Samples
from harness.orders import group_count, orders
from harness.timers import TimedCall, Timer

REGIMES = ("boost",)
"""``boost``: calls rotate one by one, with an idle gap of about one call before each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the protocol has of one row.

    Attributes
    ----------
    failures
        Arm -> why it could not be timed; such an arm has no samples.
    discarded
        Groups that were thrown away for an invalid sample and measured again.
    """

    n_groups: int
    samples: Samples
    failures: dict[str, str] = field(default_factory=dict)
    discarded: tuple[Discarded, ...] = ()


def measure(
    arms: Mapping[str, Prepared],
    *,
    timer: Timer,
    device: Device,
    groups: int,
    floor_ns: int,
    case_id: str,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Measured:
    """Time ``arms`` in at least ``groups`` paired groups, in an order that is balanced over the arms that can be timed.

    A group with an invalid sample (not a number, infinite, not positive) is discarded whole and measured again, at most
    ``groups`` times over the row; then the arm fails. A time below ``floor_ns`` fails its arm at once: it is
    impossible, and trying again until it is merely improbable would be choosing. When an arm fails, the row starts
    again without it, so that the others' order stays balanced.
    """
    failures: dict[str, str] = {}
    discarded: list[Discarded] = []
    while remaining := {name: arm for name, arm in arms.items() if name not in failures}:
        timer.start_row(case_id)
        try:
            calls = {name: _calibrated(name, arm, device, clock) for name, arm in remaining.items()}
            n_groups = group_count(len(remaining), groups)
            samples = _groups(calls, timer, n_groups, groups, floor_ns, discarded)
        except _ArmFailed as failed:
            failures[failed.arm] = failed.reason
            continue
        return Measured(n_groups=n_groups, samples=samples, failures=failures, discarded=tuple(discarded))
    return Measured(n_groups=0, samples=Samples(), failures=failures, discarded=tuple(discarded))


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
        except UsageError:
            raise
        except Exception as error:  # whatever an arm raises is the recorded reason for its missing time
            raise _ArmFailed(self.arm, f"raised {type(error).__name__}: {error}") from error


def _calibrated(name: str, arm: Prepared, device: Device, clock: Callable[[], int]) -> TimedCall:
    """Warm the arm up and learn how long the host takes to enqueue a call and the device to do it."""
    launch = _Named(name, arm.launch)
    launch()
    device.synchronize()
    start = clock()
    launch()
    enqueued = clock()
    device.synchronize()
    done = clock()
    return TimedCall(arm=name, launch=launch, gap_ns=done - start, enqueue_ns=enqueued - start)


def _groups(
    calls: Mapping[str, TimedCall],
    timer: Timer,
    n_groups: int,
    max_discarded: int,
    floor_ns: int,
    discarded: list[Discarded],
) -> Samples:
    names = list(calls)
    columns: list[tuple[int, int, str, Sample]] = []
    for group, order in enumerate(orders(len(names), n_groups)):
        ordered = [calls[names[index]] for index in order]
        accepted = _accepted_group(ordered, timer, group, max_discarded, floor_ns, discarded)
        columns += [(group, place, call.arm, s) for place, (call, s) in enumerate(zip(ordered, accepted, strict=True))]
    return Samples(
        group=tuple(c[0] for c in columns),
        position=tuple(c[1] for c in columns),
        arm=tuple(c[2] for c in columns),
        span_ns=tuple(int(c[3].span_ns) for c in columns),
        busy_ns=tuple(c[3].busy_ns for c in columns),
        clock_mhz=tuple(c[3].clock_mhz for c in columns),
    )


def _accepted_group(
    ordered: Sequence[TimedCall],
    timer: Timer,
    group: int,
    max_discarded: int,
    floor_ns: int,
    discarded: list[Discarded],
) -> list[Sample]:
    while True:
        samples = timer.measure(ordered)
        if len(samples) != len(ordered):
            raise MeasurementError(f"the timer gave {len(samples)} samples for {len(ordered)} calls")
        invalid = [(c.arm, reason) for c, s in zip(ordered, samples, strict=True) if (reason := invalid_reason(s))]
        if not invalid:
            for call, sample in zip(ordered, samples, strict=True):
                if sample.span_ns < floor_ns:
                    raise _ArmFailed(
                        call.arm,
                        f"took {sample.span_ns:g} ns, below the {floor_ns} ns that the row's FLOPs and bytes need here",
                    )
            return samples
        discarded += [Discarded(group=group, arm=arm, reason=reason) for arm, reason in invalid]
        for arm, reason in invalid:
            lost = sum(d.arm == arm for d in discarded)
            if lost > max_discarded:
                raise _ArmFailed(arm, f"{lost} groups discarded, {group} accepted: {reason}")


def invalid_reason(sample: Sample) -> str:
    """Return why ``sample`` can be no duration, or an empty string."""
    if not math.isfinite(sample.span_ns):
        return f"span_ns must be finite, got {sample.span_ns}"
    if sample.span_ns < 1:
        return f"span_ns must be at least 1, got {sample.span_ns:g}"
    if sample.busy_ns is not None and not 0 < sample.busy_ns <= sample.span_ns:
        return f"busy_ns must be in 1..span_ns = {sample.span_ns:g}, got {sample.busy_ns}"
    return ""
