"""Nobody else computes on the GPU."""

from __future__ import annotations

from dataclasses import dataclass

from harness.doctor.finding import Check, Finding, Status
from harness.doctor.gpu import Gpu

ADVICE = "end the other processes, or say --allow-busy to doctor and run, which print them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """Process ids, other than this one's, that computed on the GPU before this process did."""

    foreign: tuple[int, ...]
    allowed: bool


def check(gpu: Gpu, *, allow_busy: bool) -> Check[Processes]:
    """Return the check; it must be the first to touch the GPU."""
    return Check(
        name="alone on the GPU",
        advice=ADVICE,
        read=lambda: Processes(foreign=gpu.driver().foreign_processes(), allowed=allow_busy),
        judge=judge,
    )


def judge(reading: Processes) -> Finding:
    """Fail on another process unless that is allowed."""
    limit = "none" if not reading.allowed else ""
    if not reading.foreign:
        return Finding(status=Status.OK, measured="no other process computes on it", limit=limit)
    pids = ", ".join(map(str, reading.foreign))
    said = f"{len(reading.foreign)} other process{'es' if len(reading.foreign) > 1 else ''} (pid {pids})"
    status = Status.NOTE if reading.allowed else Status.FAIL
    return Finding(status=status, measured=said + (", allowed by --allow-busy" if reading.allowed else ""), limit=limit)
