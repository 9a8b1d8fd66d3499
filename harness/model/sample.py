"""Sample and Samples: what a timer says of one call or block of calls, and a row's samples as columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace

from harness.errors import RunFileError

QUEUE_DRY = "the device was idle before the call was enqueued, so the events hold the host's time"
"""Reason of a timer by events for a call that came too late; tables count such groups apart from lost records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a timer says of one call.

    Attributes
    ----------
    span_ns
        Last end minus first start of all the call's device work, in integer nanoseconds. A timer may hand over
        whatever it read (zero, negative, not a number): the protocol decides what can become a result.
    busy_ns
        Length of the union of the kernels' intervals; ``None`` where the timer cannot see kernels.
    clock_mhz
        Mean SM clock while the call ran, where the timer reads one.
    joules
        Energy of one call: what the board's counter went up by over a block of calls, over their number. The counter
        moves about ten times a second; over a shorter block it may stand still, and this is 0.
    calls
        Calls behind the sample: 1, or those of a block that were kept.
    reason
        Why the timer has no time, where it knows; ``span_ns`` is then not a number.
    """

    span_ns: float
    busy_ns: int | None = None
    clock_mhz: int | None = None
    joules: float | None = None
    calls: int = 1
    reason: str = ""

    def impossible(self) -> str:
        """Return why this can be no result, or an empty string. The one rule for timers and for run files."""
        if self.reason:
            return self.reason
        if not math.isfinite(self.span_ns):
            return f"span_ns must be finite, got {self.span_ns}"
        if self.span_ns < 1:
            return f"span_ns must be at least 1, got {self.span_ns:g}"
        if self.span_ns >= 2**63:
            return f"span_ns must be below 2**63, got {self.span_ns:g}"
        if self.busy_ns is not None and not 0 < self.busy_ns <= self.span_ns:
            return f"busy_ns must be in 1..span_ns = {self.span_ns:g}, got {self.busy_ns}"
        if self.clock_mhz is not None and self.clock_mhz < 1:
            return f"clock_mhz must be at least 1, got {self.clock_mhz}"
        if self.joules is not None and not 0 <= self.joules < math.inf:
            return f"joules must be a finite number >= 0, got {self.joules:g}"
        return "" if self.calls >= 1 else f"calls must be at least 1, got {self.calls}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """A row's accepted samples as columns of equal length, in the order in which they ran.

    Attributes
    ----------
    group
        Paired group, from 0.
    position
        Place in the group's order, from 0. The place of an arm that lost its samples afterwards stays empty.
    arm
        Name of the arm.
    span_ns, busy_ns, clock_mhz, joules, calls
        As in :class:`Sample`; positive, and ``None`` where the timer has none.
    """

    group: tuple[int, ...] = ()
    position: tuple[int, ...] = ()
    arm: tuple[str, ...] = ()
    span_ns: tuple[int, ...] = ()
    busy_ns: tuple[int | None, ...] = ()
    clock_mhz: tuple[int | None, ...] = ()
    joules: tuple[float | None, ...] = ()
    calls: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        columns = [getattr(self, field.name) for field in fields(self)]
        if len({len(column) for column in columns}) != 1:
            raise RunFileError(f"samples: all columns must have one length, got {[len(c) for c in columns]}")
        for index in range(len(self)):
            sample = Sample(**{f.name: getattr(self, f.name)[index] for f in fields(Sample) if f.name != "reason"})
            if reason := sample.impossible():
                raise RunFileError(f"samples[{index}] of {self.arm[index]}: {reason}")
        last = (0, -1)
        for index, place in enumerate(zip(self.group, self.position, strict=True)):
            if place[1] < 0 or place <= last:
                raise RunFileError(f"samples[{index}]: (group, position) must come after {last}, got {place}")
            last = place

    def __len__(self) -> int:
        return len(self.span_ns)

    def only(self, arms: Collection[str]) -> Samples:
        """Return the samples of ``arms``."""
        kept = [index for index, name in enumerate(self.arm) if name in arms]
        return Samples(**{f.name: tuple(getattr(self, f.name)[i] for i in kept) for f in fields(self)})

    def without(self, arms: Collection[str]) -> Samples:
        """Return the samples of all others, whose places in a group's order close up."""
        kept = self.only(set(self.arm) - set(arms))
        places: dict[int, int] = {}
        positions = []
        for group in kept.group:
            positions.append(places.get(group, 0))
            places[group] = positions[-1] + 1
        return replace(kept, position=tuple(positions))

    def by_group(self, arm: str) -> Iterator[tuple[int, int]]:
        """Yield (index of the group, index of the sample) of ``arm``, in the order in which they ran."""
        for index, (group, name) in enumerate(zip(self.group, self.arm, strict=True)):
            if name == arm:
                yield group, index
