"""Both timers against a kernel of known duration, and against each other."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from harness.doctor.finding import Check, Finding, held
from harness.doctor.gpu import Gpu
from harness.doctor.units import signed_us, us
from harness.doctor.untraced import spin_trial

ADVICE = "do not measure with the timer whose error is outside; see docs/doctor.md for what each part of a limit allows"

SHORT_NS = 2_000
"""The spin reads a timer whose step is up to a microsecond, at its begin and at its end."""

CUPTI_LONG_NS = 5_000
"""A record begins before the kernel's first instruction and ends after its last: a microsecond or two each."""

EVENTS_LONG_NS = 10_000
"""Events enclose the kernel's launch as well, and step by half a microsecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDuration:
    """A spin of ``ns``: by CUPTI, and by events while CUPTI was not in the process, as each timer is used."""

    ns: int
    cupti_ns: tuple[int, ...]
    events_ns: tuple[int, ...]


def check(gpu: Gpu, ns: int) -> Check[KnownDuration]:
    """Return the check for one duration."""
    return Check(name=f"timers at {ns / 1e3:g} us", advice=ADVICE, read=lambda: read_duration(gpu, ns), judge=judge)


def read_duration(gpu: Gpu, ns: int) -> KnownDuration:
    """Time the spin by CUPTI; by events it was timed before."""
    stage, session = gpu.stage(), gpu.cupti().session
    times = stage.by_both(session, spin_trial(stage, ns))
    return KnownDuration(ns=ns, cupti_ns=times.cupti_ns, events_ns=gpu.untraced().spin(ns))


def judge(reading: KnownDuration) -> Finding:
    """Hold both medians and their distance to the limits."""
    cupti, events = median(reading.cupti_ns), median(reading.events_ns)
    errors = (
        ("CUPTI", cupti - reading.ns, CUPTI_LONG_NS),
        ("events", events - reading.ns, EVENTS_LONG_NS),
        ("events - CUPTI", events - cupti, EVENTS_LONG_NS),
    )
    said = f"CUPTI {us(cupti)} ({signed_us(errors[0][1])}), events {us(events)} ({signed_us(errors[1][1])})"
    return Finding(
        status=held(good=all(-SHORT_NS <= error <= long for _, error, long in errors)),
        measured=f"{said}, apart {signed_us(errors[2][1])}",
        limit=", ".join(f"{name} {signed_us(-SHORT_NS)} to {signed_us(long)}" for name, _, long in errors),
    )
