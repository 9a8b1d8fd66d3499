"""Which machine this is: the facts that every run file records."""

from __future__ import annotations

from collections.abc import Callable

from harness.doctor.finding import Check, Finding, Status
from harness.doctor.units import mib
from harness.model.machine import Machine

ADVICE = "mend what the message names; a run reads the same facts before it measures anything"


def check(read: Callable[[], Machine]) -> Check[Machine]:
    """Return the check."""
    return Check(name="machine", advice=ADVICE, read=read, judge=judge)


def judge(machine: Machine) -> Finding:
    """Say what it is."""
    unit = "SMs" if machine.device == "cuda" else "logical cores"
    cache = "L2" if machine.device == "cuda" else "last-level cache"
    known = ("driver", "cuda", "torch", "python")
    versions = ", ".join(f"{name} {machine.versions[name]}" for name in known if name in machine.versions)
    said = f"{machine.product}, {machine.arch}, {machine.units} {unit}, {cache} {mib(machine.cache_bytes)}; {versions}"
    return Finding(status=Status.OK, measured=said)
