"""The device that a run measures on: flush, synchronise, free memory. The only place that knows CPU from CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import Protocol

import torch

from cake_kernels.errors import CakeError
from harness.errors import MeasurementError, UsageError
from harness.machine import read_machine
from harness.model.machine import Machine
from harness.probe import ReadFlush, Spin

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

        On a GPU this is enqueued, not waited for, and takes at least about ``cover_ns``: the host enqueues the next
        call meanwhile, so that the call's time does not contain the host's.
        """

    def synchronize(self) -> None:
        """Wait until everything enqueued is done; raises what the device has to report."""

    def free_bytes(self) -> int:
        """Return how many bytes a new tensor could take now."""

    def reader(self, num_bytes: int) -> Callable[[], torch.Tensor]:
        """Return a call that reads once through a buffer of ``num_bytes``, a multiple of 16, and writes nothing.

        What it returns depends on what it read.
        """


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

    def reader(self, num_bytes: int) -> Callable[[], torch.Tensor]:
        """Return a sum over the buffer, by all threads."""
        return torch.ones(num_bytes // 4, dtype=torch.float32).sum


class Cuda:
    """The current CUDA device and its current stream."""

    def __init__(self, machine: Machine, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.machine = machine
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        self._stream = torch.cuda.current_stream().cuda_stream
        # Reads and never writes: dirty lines would be written back inside the next call's time.
        self._read = ReadFlush(self.torch_device)
        self._spin = Spin(self.torch_device)
        _give_up_set_aside_l2()
        self._one_flush_ns = self._time_one(clock)

    def flush(self, cover_ns: int = 0) -> None:
        """Enqueue a wait for what the read alone does not cover of ``cover_ns``, then the read."""
        if cover_ns > self._one_flush_ns:
            self._spin.launch(cover_ns - self._one_flush_ns, self._stream)
        self._read.launch(stream=self._stream)

    def synchronize(self) -> None:
        """Wait for the device, and see to it that no line of the L2 persists, now or in any call before.

        Raises
        ------
        MeasurementError
            A part of the L2 is set aside for lines that persist: a flush does not reach them.
        """
        torch.cuda.synchronize()
        _reset_persisting_l2()
        _refuse_set_aside_l2()

    def free_bytes(self) -> int:
        """Return the device's free memory after giving the allocator's cache back."""
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])

    def reader(self, num_bytes: int) -> Callable[[], torch.Tensor]:
        """Return the flush's own kernel over another buffer."""
        read = ReadFlush(self.torch_device, num_bytes)

        def launch() -> torch.Tensor:
            read.launch(stream=self._stream)
            return read.sink

        return launch

    def _time_one(self, clock: Callable[[], int]) -> int:
        repeats = 20
        self._read.launch(stream=self._stream)
        self.synchronize()
        start = clock()
        for _ in range(repeats):
            self._read.launch(stream=self._stream)
        self.synchronize()
        return max(1, (clock() - start) // repeats)


def _reset_persisting_l2() -> None:
    driver = import_module("cuda.bindings.driver")
    (status,) = driver.cuCtxResetPersistingL2Cache()
    if status != driver.CUresult.CUDA_SUCCESS:
        raise MeasurementError(f"resetting the persisting lines of the L2 failed: {status.name}")


# Lines can persist only in a part of the L2 that the process has set aside for them; a context begins with none.


def _give_up_set_aside_l2() -> None:
    driver = import_module("cuda.bindings.driver")
    (status,) = driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise MeasurementError(f"setting none of the L2 aside for lines that persist failed: {status.name}")


def _refuse_set_aside_l2() -> None:
    driver = import_module("cuda.bindings.driver")
    status, set_aside = driver.cuCtxGetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise MeasurementError(f"reading how much of the L2 is set aside failed: {status.name}")
    if set_aside:
        raise MeasurementError(
            "none of the L2 may be set aside for lines that persist, which a flush does not reach,"
            f" got {set_aside} bytes: an arm or a library of its set the device's limit cudaLimitPersistingL2CacheSize;"
            " leave that arm out"
        )


def _with(machine: Machine, settings: Mapping[str, str]) -> Machine:
    return replace(machine, settings={**machine.settings, **settings})


def names() -> tuple[str, ...]:
    """Return the devices that a run can be on here, the one it takes by default first."""
    return ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)


def open_device(name: str, settings: Mapping[str, str] = MappingProxyType({})) -> Device:
    """Return the device ``cpu`` or ``cuda``; ``settings`` are recorded beside what the machine says itself.

    Raises
    ------
    UsageError
        There is no CUDA device here, no such name, or what compiles the flush is not installed.
    """
    if name == "cpu":
        return Cpu(_with(read_machine("cpu"), settings))
    if name == "cuda" and torch.cuda.is_available():
        try:
            return Cuda(_with(read_machine("cuda"), settings))
        except CakeError as error:
            raise UsageError(f"--device cuda cannot be used: {error}") from error
    reason = "torch sees no CUDA device" if name == "cuda" else "it must be cpu or cuda"
    raise UsageError(f"--device {name} cannot be used: {reason}; here: {', '.join(names())}")
