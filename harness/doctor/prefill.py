"""A queue that is filled first: the gaps between an arm's kernels shrink to the device's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from harness.doctor.finding import Check, Finding, held
from harness.doctor.gpu import Gpu
from harness.doctor.units import us
from harness.errors import MeasurementError
from harness.timers import TimedCall

ADVICE = "do not measure arms of many small kernels by --timer cupti: their spans hold the host's time"

KERNELS = 32
KERNEL_NS = 1_000
PAUSE_NS = 20_000
"""What the host does between two launches: several times a launch, as a slow framework would."""

CALLS = 6

GAP_SHARE = 0.5
"""Filled, only the device's own gap of about a microsecond is left between kernels, and what CUPTI adds to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Medians of the calls' spans and busy times, and how long the device was kept busy before each."""

    span_ns: float
    busy_ns: float
    cover_ns: int

    @property
    def gap_ns(self) -> float:
        """Time in the span in which nothing ran."""
        return self.span_ns - self.busy_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """One call of :data:`KERNELS` tiny kernels that the host takes ``enqueue_ns`` to enqueue."""

    enqueue_ns: int
    bare: Filling
    filled: Filling


def check(gpu: Gpu) -> Check[Prefill]:
    """Return the check."""
    return Check(name="queue pre-fill", advice=ADVICE, read=lambda: read_prefill(gpu), judge=judge)


def read_prefill(gpu: Gpu) -> Prefill:
    """Time the loop by the timer of runs, telling it once that the host takes no time, and once the truth."""
    stage, timer = gpu.stage(), gpu.cupti().timer

    def loop() -> None:
        for _ in range(KERNELS):
            stage.spin.launch(KERNEL_NS)
            end = stage.clock() + PAUSE_NS
            while stage.clock() < end:
                pass

    loop()
    stage.device.synchronize()
    begin = stage.clock()
    loop()
    enqueue_ns = stage.clock() - begin
    timer.start_row("doctor: queue pre-fill")
    return Prefill(
        enqueue_ns=enqueue_ns,
        bare=_filling(gpu, "bare", loop, enqueue_ns=0),
        filled=_filling(gpu, "filled", loop, enqueue_ns=enqueue_ns),
    )


def _filling(gpu: Gpu, arm: str, loop: Callable[[], object], *, enqueue_ns: int) -> Filling:
    timer = gpu.cupti().timer
    samples = timer.measure([TimedCall(arm=arm, launch=loop, enqueue_ns=enqueue_ns)] * CALLS)
    for sample in samples:
        if sample.reason or sample.busy_ns is None:
            raise MeasurementError(f"a call has no time by CUPTI: {sample.reason or 'no busy time'}")
    return Filling(
        span_ns=median(sample.span_ns for sample in samples),
        busy_ns=median(sample.busy_ns or 0 for sample in samples),
        cover_ns=timer.ledger.cover_ns.get(arm, 0),
    )


def judge(reading: Prefill) -> Finding:
    """Ask that filling takes half of the gap away, and more."""
    bare, filled = reading.bare, reading.filled
    said = (
        f"{KERNELS} tiny kernels, enqueued in {us(reading.enqueue_ns)}: span {us(bare.span_ns)}, gap"
        f" {us(bare.gap_ns)} as they come; span {us(filled.span_ns)}, gap {us(filled.gap_ns)} behind"
        f" {us(filled.cover_ns)} of other work"
    )
    most_ns = GAP_SHARE * bare.gap_ns
    return Finding(
        status=held(good=filled.gap_ns <= most_ns),
        measured=said,
        limit=f"gap at most {us(most_ns)}, {GAP_SHARE:g} of what it is without",
    )
