"""Wall clock of one call on the CPU, after streaming more than the last-level cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from harness.devices import Device
from harness.model.sample import Sample
from harness.timers import TimedCall, Traced, refuse_argument


def why_not(device: str) -> str | None:
    """Refuse a GPU: a wall clock around a launch would time the host."""
    if device != "cpu":
        return "it times the host, and calls on a GPU return before they are done; use --timer cuda_event"
    return None


def check_argument(argument: str | None) -> None:
    """Refuse any."""
    refuse_argument("cpu", argument)


def open_timer(device: Device, argument: str | None) -> CpuTimer:
    """Return the timer; it takes no argument."""
    check_argument(argument)
    return CpuTimer(device, clock=time.perf_counter_ns, sleep=time.sleep)


class CpuTimer:
    """Reads ``clock`` (integer nanoseconds) before and after each call."""

    heading = "wall clock (perf_counter_ns) of one call, caches flushed"

    def __init__(self, device: Device, clock: Callable[[], int], sleep: Callable[[float], None]) -> None:
        self._device = device
        self._clock = clock
        self._sleep = sleep

    def start_row(self, case_id: str) -> None:
        """Nothing to prepare."""

    def traced(self) -> Traced:
        """See no records."""
        return Traced()

    def measure(self, calls: Sequence[TimedCall]) -> list[Sample]:
        """Time each call."""
        return [self._one(call) for call in calls]

    def _one(self, call: TimedCall) -> Sample:
        self._sleep(call.gap_ns / 1e9)
        self._device.flush()
        start = self._clock()
        call.launch()
        return Sample(span_ns=self._clock() - start)
