"""What CUPTI adds to each kernel: events around many small launches, before its session opens and after."""

from __future__ import annotations

from dataclasses import dataclass

from harness.doctor.finding import Check, Finding, Status
from harness.doctor.gpu import Gpu
from harness.doctor.untraced import LAUNCHES, LaunchCost, read_launch_cost

ADVICE = "measure on an idle host: the launches must be enqueued before the device comes to them"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingCost:
    """One small launch without CUPTI in the process, and with it."""

    off: LaunchCost
    on: LaunchCost


def check(gpu: Gpu) -> Check[TracingCost]:
    """Return the check."""
    return Check(name="CUPTI's own time", advice=ADVICE, read=lambda: read_tracing_cost(gpu), judge=judge)


def read_tracing_cost(gpu: Gpu) -> TracingCost:
    """Take what was read without CUPTI, and read the same again with its session open."""
    gpu.cupti()
    return TracingCost(off=gpu.untraced().launch, on=read_launch_cost(gpu.stage()))


def judge(reading: TracingCost) -> Finding:
    """Say what it adds; it is no fault, but a reader of a row with many kernels must know it."""
    off, on = reading.off, reading.on
    device = f"{_change(off.device_ns, on.device_ns)} a kernel on the device"
    host = f"{_change(off.host_ns, on.host_ns)} a launch on the host"
    return Finding(status=Status.NOTE, measured=f"{device}, {host}, by events around {LAUNCHES} small kernels")


def _change(off_ns: float, on_ns: float) -> str:
    return f"{on_ns - off_ns:+.0f} ns ({off_ns:.0f} -> {on_ns:.0f})"
