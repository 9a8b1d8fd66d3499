"""CUDA events around one call, with a cold L2 and the queue filled before it begins."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from harness.devices import Device
from harness.model.sample import QUEUE_DRY, Sample
from harness.timers import TimedCall, Traced, refuse_argument


class Event(Protocol):
    """What the timer asks of a CUDA event."""

    def record(self) -> object:
        """Enqueue the event."""

    def query(self) -> bool:
        """Return whether the device has come to it."""

    def elapsed_time(self, end: Any) -> float:
        """Return the milliseconds to ``end``."""


def _new_event() -> Event:
    return torch.cuda.Event(enable_timing=True)


# What runs before a call covers the host's enqueue time with this margin; otherwise the event pair measures Python.
COVER = 1.5

# After an idle gap the host's first launches take longer than in the calibration: on an H200's host one call in four
# came too late for a cover without this.
WAKE_NS = 200_000


def why_not(device: str) -> str | None:
    """Ask for a GPU."""
    return None if device == "cuda" else "it needs a CUDA device; use --timer cpu"


def check_argument(argument: str | None) -> None:
    """Refuse any."""
    refuse_argument("cuda_event", argument)


def open_timer(device: Device, argument: str | None) -> CudaEventTimer:
    """Return the timer; it takes no argument."""
    check_argument(argument)
    return CudaEventTimer(device)


class CudaEventTimer:
    """Records one event before and one after each call; their distance is the span, to about half a microsecond.

    The span holds the gaps between an arm's kernels and the launch of the first one; kernels are not seen, so there is
    no busy time. A call whose first event is over before the host has enqueued it all is no sample, and the arm is
    covered for twice as long from then on: an arm that waits for the device within a call has no time by this timer.
    """

    heading = "CUDA events around one call, cold L2, queue pre-filled"

    def __init__(
        self,
        device: Device,
        event: Callable[[], Event] = _new_event,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._device = device
        self._event = event
        self._sleep = sleep
        self._cover: dict[str, float] = {}

    def start_row(self, case_id: str) -> None:  # noqa: ARG002 - only the cover is kept, and each row has its own
        """Begin with the usual cover."""
        self._cover = {}

    def traced(self) -> Traced:
        """See no records."""
        return Traced()

    def measure(self, calls: Sequence[TimedCall]) -> list[Sample]:
        """Time each call."""
        cover = max(round(self._cover.get(call.arm, COVER) * (call.enqueue_ns + WAKE_NS)) for call in calls)
        pairs = [self._one(call, cover) for call in calls]
        self._device.synchronize()
        return [self._sample(call, pair) for call, pair in zip(calls, pairs, strict=True)]

    def _one(self, call: TimedCall, cover_ns: int) -> _Pair:
        start, end = self._event(), self._event()
        if call.gap_ns:
            self._device.synchronize()
            self._sleep(call.gap_ns / 1e9)
        self._device.flush(cover_ns=cover_ns if call.enqueue_ns else 0)
        start.record()
        call.launch()
        dry = start.query()
        end.record()
        return _Pair(start=start, end=end, dry=dry)

    def _sample(self, call: TimedCall, pair: _Pair) -> Sample:
        if pair.dry:
            self._cover[call.arm] = 2 * self._cover.get(call.arm, COVER)
            return Sample(span_ns=math.nan, reason=QUEUE_DRY)
        return Sample(span_ns=round(1e6 * pair.start.elapsed_time(pair.end)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    start: Event
    end: Event
    dry: bool
