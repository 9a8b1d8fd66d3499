"""CUDA events around one call, with a cold L2 and the queue filled before it begins."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from harness.devices import Device
from harness.model.machine import Machine
from harness.model.sample import Sample
from harness.timers import TimedCall, refuse_argument

# The read before a call covers the host's enqueue time with this margin; otherwise the event pair measures Python.
COVER = 1.5


def why_not(machine: Machine) -> str | None:
    """Ask for a GPU."""
    return None if machine.device == "cuda" else "it needs a CUDA device; use --timer cpu"


def open_timer(device: Device, argument: str | None) -> CudaEventTimer:
    """Return the timer; it takes no argument."""
    refuse_argument("cuda_event", argument)
    return CudaEventTimer(device)


class CudaEventTimer:
    """Records one event before and one after each call; their distance is the span, to about half a microsecond.

    The span holds the gaps between an arm's kernels and the launch of the first one; kernels are not seen, so there is
    no busy time.
    """

    heading = "CUDA events around one call, cold L2, queue pre-filled"

    def __init__(self, device: Device) -> None:
        self._device = device

    def start_row(self, case_id: str) -> None:
        """Nothing to prepare."""

    def measure(self, calls: Sequence[TimedCall]) -> list[Sample]:
        """Time each call."""
        events = [self._one(call) for call in calls]
        self._device.synchronize()
        return [Sample(span_ns=round(1e6 * start.elapsed_time(end))) for start, end in events]

    def _one(self, call: TimedCall) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if call.gap_ns:
            self._device.synchronize()
            time.sleep(call.gap_ns / 1e9)
        self._device.flush(cover_ns=round(COVER * call.enqueue_ns))
        start.record()
        call.launch()
        end.record()
        return start, end
