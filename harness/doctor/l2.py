"""The L2 is cold after a flush, and holds nothing that must be written back: both shown by reading operands.

A buffer that fits the L2 is read right after a flush (cold), after it was read (warm), and after as much was written as
a flush reads (dirty). What the bytes ask for follows from two rates of this machine: that of memory, from one pass over
a buffer of many times the L2, and that of the L2, from what each further warm pass takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.doctor.finding import Finding, held
from harness.doctor.gpu import Gpu
from harness.doctor.stage import COVER_NS, Times, Trial
from harness.doctor.units import mib, signed_us, tb_per_s, us
from harness.probe import FLUSH_FACTOR

ADVICE_COLD = "do not measure: calls find operands in the L2; report it with the JSON of doctor"
ADVICE_CLEAN = "do not measure: write-backs of the flush fall into calls; report it with the JSON of doctor"

SHARE_OF_L2 = 3 / 8
"""Of the L2's bytes: each half of it may keep a copy of its own, and what is left is room for imperfect replacement."""

STREAM_FACTOR = 16
"""The buffer for the rate of memory, in sizes of the L2: what of it the L2 could hold does not matter."""

WARM_PASSES = 9
PRIMING_PASSES = 3
"""Reads that make the buffer warm: with one, imperfect replacement might keep the lines of before."""

COLD_SHARE = 0.5
"""Of the time that the bytes ask for: a short read reaches neither rate, the one of memory least of all."""

DIRTY_SHARE = 0.125
"""Of the time that writing the buffer's size takes: not every line that is driven out is dirty. On an H200 a quarter of
it was seen, 1.3 to 1.5 us, where a read repeats to 0.1 us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class L2:
    """Times of one read of ``num_bytes``, by what was done before it.

    Attributes
    ----------
    stream
        One pass over ``stream_bytes``.
    warm_long
        ``passes`` warm passes in one kernel.
    dirty
        After a write of as many bytes as a flush reads.
    peak_bytes_per_s
        Of memory, an upper bound; None where none is known.
    """

    num_bytes: int
    cache_bytes: int
    stream_bytes: int
    passes: int
    peak_bytes_per_s: float | None
    stream: Times
    cold: Times
    warm: Times
    warm_long: Times
    dirty: Times

    @property
    def memory_bytes_per_s(self) -> float:
        """Rate of memory."""
        return 1e9 * self.stream_bytes / self.stream.cupti

    @property
    def warm_pass_ns(self) -> float:
        """Time of a further pass over the buffer in the L2, free of the launch."""
        return (self.warm_long.cupti - self.warm.cupti) / (self.passes - 1)

    @property
    def memory_pass_ns(self) -> float:
        """Time that the buffer's bytes ask of memory."""
        return 1e9 * self.num_bytes / self.memory_bytes_per_s


def read_l2(gpu: Gpu) -> L2:
    """Read the buffers; nothing is written but the one buffer that makes the L2 dirty."""
    stage, session = gpu.stage(), gpu.cupti().session
    device, spin = stage.device, stage.spin
    cache_bytes = device.machine.cache_bytes
    num_bytes = int(SHARE_OF_L2 * cache_bytes) >> 20 << 20
    operands = gpu.hardware.reader(device, num_bytes)
    stream = gpu.hardware.reader(device, STREAM_FACTOR * cache_bytes)
    write = gpu.hardware.writer(device, FLUSH_FACTOR * cache_bytes)
    # First launches compile and allocate, which no timed call may do.
    operands.launch()
    stream.launch()
    write()
    device.synchronize()

    def flushed() -> None:
        device.flush(COVER_NS)

    def warmed() -> None:
        spin.launch(COVER_NS)
        operands.launch(PRIMING_PASSES)

    def dirtied() -> None:
        spin.launch(COVER_NS)
        write()

    trials = {
        "stream": Trial(prepare=flushed, call=stream.launch),
        "cold": Trial(prepare=flushed, call=operands.launch),
        "warm": Trial(prepare=warmed, call=operands.launch),
        "warm_long": Trial(prepare=warmed, call=lambda: operands.launch(WARM_PASSES)),
        "dirty": Trial(prepare=dirtied, call=operands.launch),
    }
    return L2(
        num_bytes=num_bytes,
        cache_bytes=cache_bytes,
        stream_bytes=STREAM_FACTOR * cache_bytes,
        passes=WARM_PASSES,
        peak_bytes_per_s=device.machine.peak_bytes_per_s,
        **{name: stage.by_both(session, trial) for name, trial in trials.items()},
    )


def judge_cold(reading: L2) -> Finding:
    """Ask that cold - warm >= 0.5 x (bytes / memory rate - bytes / L2 rate), by CUPTI and by events."""
    warm_rate = 1e9 * reading.num_bytes / reading.warm_pass_ns if reading.warm_pass_ns > 0 else None
    memory = tb_per_s(reading.memory_bytes_per_s)
    rates = f"memory {memory}, L2 {tb_per_s(warm_rate) if warm_rate else 'unknown'}"
    asked_ns = reading.memory_pass_ns - reading.warm_pass_ns
    least_ns = COLD_SHARE * asked_ns
    peak = reading.peak_bytes_per_s
    if peak is not None and reading.memory_bytes_per_s > peak:
        return Finding(status=held(good=False), measured=rates, limit=f"memory at most {tb_per_s(peak)}")
    if warm_rate is None or asked_ns <= 0:
        # Any difference would then do: the limit would prove nothing.
        return Finding(status=held(good=False), measured=rates, limit="the L2 faster than memory, else nothing shows")
    apart_ns = {
        "CUPTI": reading.cold.cupti - reading.warm.cupti,
        "events": reading.cold.events - reading.warm.events,
    }
    said = (
        f"{mib(reading.num_bytes)} cold {us(reading.cold.cupti)}, warm {us(reading.warm.cupti)} by CUPTI (apart"
        f" {signed_us(apart_ns['CUPTI'])}), {us(reading.cold.events)} and {us(reading.warm.events)} by events (apart"
        f" {signed_us(apart_ns['events'])}); {rates}"
    )
    limit = f"apart at least {us(least_ns)} = {COLD_SHARE:g} x (bytes / memory rate - bytes / L2 rate)"
    return Finding(status=held(good=all(apart >= least_ns for apart in apart_ns.values())), measured=said, limit=limit)


def judge_clean(reading: L2) -> Finding:
    """Ask that a read after a write takes longer than one after a flush: else the flush leaves dirty lines, too."""
    least_ns = DIRTY_SHARE * reading.memory_pass_ns
    more_ns = reading.dirty.cupti - reading.cold.cupti
    said = (
        f"{mib(reading.num_bytes)} in {us(reading.cold.cupti)} after the flush, in {us(reading.dirty.cupti)} after a"
        f" write of {mib(FLUSH_FACTOR * reading.cache_bytes)} (write-backs {signed_us(more_ns)})"
    )
    limit = f"write-backs at least {us(least_ns)} = {DIRTY_SHARE:g} x bytes / memory rate, and none after the flush"
    return Finding(status=held(good=more_ns >= least_ns), measured=said, limit=limit)
