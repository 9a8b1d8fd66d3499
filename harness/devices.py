"""The device that a run measures on: flush, synchronise, free memory. The only place that knows CPU from CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch

from harness.errors import UsageError
from harness.machine import read_machine
from harness.model.machine import Machine

FLUSH_FACTOR = 4
"""A flush reads this many times the last-level cache: what a cache with imperfect replacement needs to forget all."""

# The last level of a CPU is shared and read at about 10 GB/s per core: twice its size is more than it holds, and four
# times would take most of a small suite's time.
CPU_FLUSH_FACTOR = 2


class Device(Protocol):
    """What timers and protocols ask of a device."""

    @property
    def torch_device(self) -> torch.device:
        """Where the tensors of a run live."""

    @property
    def machine(self) -> Machine:
        """What the run file records of it."""

    def flush(self, cover_ns: int = 0) -> None:
        """Read through a buffer larger than the last-level cache, so that the next call finds none of its operands.

        On a GPU this is enqueued, not waited for, and repeated until it is expected to take at least ``cover_ns``: the
        host enqueues the next call meanwhile, so that the call's time does not contain the host's.
        """

    def synchronize(self) -> None:
        """Wait until everything enqueued is done; raises what the device has to report."""

    def free_bytes(self) -> int:
        """Return how many bytes a new tensor could take now."""


class Cpu:
    """The processor that Python runs on; a call is done when it returns."""

    torch_device = torch.device("cpu")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._buffer = torch.ones(CPU_FLUSH_FACTOR * machine.cache_bytes // 4, dtype=torch.float32)

    def flush(self, cover_ns: int = 0) -> None:  # noqa: ARG002 - a CPU has no queue to cover
        """Stream the buffer through the caches."""
        self._buffer.sum()

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def free_bytes(self) -> int:
        """Return MemAvailable."""
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return 1024 * int(line.split()[1])
        raise UsageError("/proc/meminfo has no line MemAvailable; a run on the CPU needs Linux")


class Cuda:
    """The current CUDA device."""

    def __init__(self, machine: Machine, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.machine = machine
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        # Written once and then only read: dirty lines would be written back inside the next call's time.
        self._buffer = torch.ones(FLUSH_FACTOR * machine.cache_bytes // 4, dtype=torch.float32, device="cuda")
        self._sink = torch.empty((), dtype=torch.float32, device="cuda")
        self._one_flush_ns = self._time_one(clock)

    def flush(self, cover_ns: int = 0) -> None:
        """Enqueue as many reads of the buffer as ``cover_ns`` asks, at least one."""
        for _ in range(max(1, -(-cover_ns // self._one_flush_ns))):
            torch.sum(self._buffer, dim=0, out=self._sink)

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()

    def free_bytes(self) -> int:
        """Return the device's free memory after giving the allocator's cache back."""
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])

    def _time_one(self, clock: Callable[[], int]) -> int:
        repeats = 20
        self._one_flush_ns = 1
        self.flush()
        self.synchronize()
        start = clock()
        for _ in range(repeats):
            self.flush()
        self.synchronize()
        return max(1, (clock() - start) // repeats)


def names() -> tuple[str, ...]:
    """Return the devices that a run can be on here, the one it takes by default first."""
    return ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)


def open_device(name: str) -> Device:
    """Return the device ``cpu`` or ``cuda``.

    Raises
    ------
    UsageError
        There is no CUDA device here, or no such name.
    """
    if name == "cpu":
        return Cpu(read_machine("cpu"))
    if name == "cuda" and torch.cuda.is_available():
        return Cuda(read_machine("cuda"))
    reason = "torch sees no CUDA device" if name == "cuda" else "it must be cpu or cuda"
    raise UsageError(f"--device {name} cannot be used: {reason}; here: {', '.join(names())}")
