"""The caches are cold after the CPU's flush: a read after it is slower than the same read once more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np

from harness.devices import CPU_FLUSH_FACTOR, Device
from harness.doctor.finding import Check, Finding, held
from harness.doctor.once import Once
from harness.doctor.units import mib, us

ADVICE = "do not measure by --timer cpu here: calls find operands in a cache; report it with the JSON of doctor"

OPERAND_BYTES = 512 << 10
"""What a core's own caches hold, so that warm is much faster than memory; of a small last level, an eighth."""

READS = 15

LEAST_RATIO = 1.5
"""Memory is several times slower than a core's caches; a machine that shares them shows less of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCold:
    """One read of ``num_bytes``, right after a flush and right after a read."""

    num_bytes: int
    cache_bytes: int
    flush_bytes: int
    cold_ns: tuple[int, ...]
    warm_ns: tuple[int, ...]


def check(device: Once[Device]) -> Check[CpuCold]:
    """Return the check."""
    return Check(name="cold caches", advice=ADVICE, read=lambda: read_cold(device(), perf_counter_ns), judge=judge)


def read_cold(device: Device, clock: Callable[[], int]) -> CpuCold:
    """Read a buffer cold and warm in turn."""
    cache_bytes = device.machine.cache_bytes
    # By numpy, on this thread alone: waking threads takes longer than the read.
    operands = np.ones(min(OPERAND_BYTES, cache_bytes // 8) // 4, dtype=np.float32)

    def timed_read() -> int:
        begin = clock()
        operands.max()
        return clock() - begin

    cold, warm = [], []
    for _ in range(READS):
        device.flush()
        cold.append(timed_read())
        warm.append(timed_read())
    return CpuCold(
        num_bytes=operands.nbytes,
        cache_bytes=cache_bytes,
        flush_bytes=CPU_FLUSH_FACTOR * cache_bytes,
        cold_ns=tuple(cold),
        warm_ns=tuple(warm),
    )


def judge(reading: CpuCold) -> Finding:
    """Compare the fastest reads: other work on the machine only lengthens."""
    cold, warm = min(reading.cold_ns), min(reading.warm_ns)
    said = (
        f"{mib(reading.num_bytes)} cold {us(cold)}, warm {us(warm)} ({cold / warm:.1f} x); the flush reads"
        f" {mib(reading.flush_bytes)}, the last-level cache has {mib(reading.cache_bytes)}"
    )
    return Finding(
        status=held(good=cold >= LEAST_RATIO * warm and reading.flush_bytes > reading.cache_bytes),
        measured=said,
        limit=f"cold at least {LEAST_RATIO:g} x warm, the flush larger than the cache",
    )
