"""The CPU timer against a wait of known duration."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from harness.devices import Device
from harness.doctor.finding import Check, Finding, held
from harness.doctor.once import Once
from harness.doctor.units import signed_us, us
from harness.timers import TimedCall
from harness.timers.cpu import open_timer

ADVICE = "do not measure by --timer cpu here: the clocks of this machine disagree"

SPIN_NS = 10_000_000
CALLS = 11

TOLERANCE_NS = 100_000
"""1 % of the wait: clocks of one machine drift by up to 0.05 %, and after a flush the interpreter, too, comes cold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSpins:
    """Waits of at least :data:`SPIN_NS` by a clock that nobody adjusts, and the same by the timer."""

    known_ns: tuple[int, ...]
    timer_ns: tuple[int, ...]


def check(device: Once[Device]) -> Check[CpuSpins]:
    """Return the check."""
    return Check(name="cpu timer", advice=ADVICE, read=lambda: read_spins(device(), raw_clock_ns), judge=judge)


def raw_clock_ns() -> int:
    """Return a clock that is not the timer's."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def read_spins(device: Device, clock: Callable[[], int]) -> CpuSpins:
    """Wait by ``clock`` under the timer."""
    known: list[int] = []

    def spin() -> None:
        begin = clock()
        while (now := clock()) - begin < SPIN_NS:
            pass
        known.append(now - begin)

    samples = open_timer(device, None).measure([TimedCall(arm="spin", launch=spin)] * CALLS)
    return CpuSpins(known_ns=tuple(known), timer_ns=tuple(int(sample.span_ns) for sample in samples))


def judge(reading: CpuSpins) -> Finding:
    """Compare call by call: what interrupts a wait lengthens both."""
    off_ns = median(timer - known for timer, known in zip(reading.timer_ns, reading.known_ns, strict=True))
    said = f"waits of {us(median(reading.known_ns))} take {us(median(reading.timer_ns))} by the timer"
    return Finding(
        status=held(good=abs(off_ns) <= TOLERANCE_NS),
        measured=f"{said} (error {signed_us(off_ns)})",
        limit=f"error within {us(TOLERANCE_NS)}",
    )
