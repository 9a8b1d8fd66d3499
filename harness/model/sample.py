"""Sample and Samples: what a timer says of one call or block of calls, and a row's samples as columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields

from harness.errors import RunFileError


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
        Energy of one call: of a block of calls, its energy over their number.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """A row's accepted samples as columns of equal length, in the order in which they ran.

    Attributes
    ----------
    group
        Paired group, from 0.
    position
        Place in the group's order, from 0.
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
        for index, (span, busy) in enumerate(zip(self.span_ns, self.busy_ns, strict=True)):
            if span < 1:
                raise RunFileError(f"samples.span_ns[{index}] must be a positive integer of nanoseconds, got {span}")
            if busy is not None and not 0 < busy <= span:
                raise RunFileError(f"samples.busy_ns[{index}] must be in 1..span_ns = {span}, got {busy}")

    def __len__(self) -> int:
        return len(self.span_ns)

    def only(self, arms: Collection[str]) -> Samples:
        """Return the samples of ``arms``."""
        kept = [index for index, name in enumerate(self.arm) if name in arms]
        return Samples(**{f.name: tuple(getattr(self, f.name)[i] for i in kept) for f in fields(self)})

    def by_group(self, arm: str) -> Iterator[tuple[int, int]]:
        """Yield (index of the group, index of the sample) of ``arm``, in the order in which they ran."""
        for index, (group, name) in enumerate(zip(self.group, self.arm, strict=True)):
            if name == arm:
                yield group, index
