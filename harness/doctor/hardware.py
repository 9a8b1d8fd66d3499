"""What the checks open on a GPU. The only file here that names CUDA; tests give another."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch

from harness import cupti_session, devices, timers
from harness.clock import Probe
from harness.cupti_session import CuptiSession
from harness.devices import Device
from harness.doctor.stage import Event, Wait
from harness.errors import UsageError
from harness.machine import open_nvml
from harness.monitor import Monitor
from harness.probe import ClockProbe, ReadFlush, Spin

GEMM_SIZE = 8192


class Driver(Monitor, Protocol):
    """What is asked of the GPU's driver; :class:`harness.monitor.Nvml`."""

    def foreign_processes(self) -> tuple[int, ...]:
        """Return the process ids, other than this one's, that compute on the GPU."""

    def settings(self) -> dict[str, str]:
        """Return what the GPU is set to."""

    def max_clock_mhz(self) -> int:
        """Return the highest SM clock that the board can have."""


class Reader(Protocol):
    """A kernel that reads a buffer; :class:`harness.probe.ReadFlush`."""

    def launch(self, repeat: int = 1) -> None:
        """Enqueue ``repeat`` passes over the buffer."""


class Hardware(Protocol):
    """Opens things; each is called once."""

    def open_driver(self) -> Driver:
        """Return the driver's view, before this process computes on the GPU."""

    def open_device(self) -> Device:
        """Return the device that runs measure on."""

    def open_session(self, device: Device) -> CuptiSession:
        """Return the process's one CUPTI session, open until the process ends."""

    def clock_probe(self, device: Device) -> Probe:
        """Return what reads the SM clock."""

    def spin(self, device: Device) -> Wait:
        """Return a kernel of known duration."""

    def reader(self, device: Device, num_bytes: int) -> Reader:
        """Return what reads a buffer of ``num_bytes``."""

    def writer(self, device: Device, num_bytes: int) -> Callable[[], object]:
        """Return a call that writes a buffer of ``num_bytes``."""

    def gemm(self, device: Device) -> Callable[[], object]:
        """Return a call that loads the whole GPU for a millisecond or more."""

    def new_event(self) -> Event:
        """Return an event."""

    def clock(self) -> int:
        """Return the host's clock in ns."""


class CudaHardware:
    """The current CUDA device."""

    def open_driver(self) -> Driver:
        """Return NVML's view."""
        if "cuda" not in devices.names():
            raise UsageError("torch sees no CUDA device")
        return open_nvml()

    def open_device(self) -> Device:
        """Return the device ``cuda``."""
        return devices.open_device("cuda")

    def open_session(self, device: Device) -> CuptiSession:
        """Open CUPTI as the timer does."""
        if reason := timers.why_not("cupti", device.machine.device):
            raise UsageError(reason)
        session = CuptiSession(cupti_session.load(), synchronize=device.synchronize, probe=device.flush)
        session.open()
        return session

    def clock_probe(self, device: Device) -> Probe:
        """Return the probe kernel."""
        return ClockProbe(device.torch_device)

    def spin(self, device: Device) -> Wait:
        """Return the spin kernel."""
        return Spin(device.torch_device)

    def reader(self, device: Device, num_bytes: int) -> Reader:
        """Return the flush's own kernel over another buffer."""
        return ReadFlush(device.torch_device, num_bytes)

    def writer(self, device: Device, num_bytes: int) -> Callable[[], object]:
        """Return a memset."""
        return torch.empty(num_bytes, dtype=torch.uint8, device=device.torch_device).zero_

    def gemm(self, device: Device) -> Callable[[], object]:
        """Return a dense BF16 product of random numbers: zeros would take less power."""

        def square() -> torch.Tensor:
            return torch.randn(GEMM_SIZE, GEMM_SIZE, dtype=torch.bfloat16, device=device.torch_device)

        a, b, out = square(), square(), square()
        return lambda: torch.mm(a, b, out=out)

    def new_event(self) -> Event:
        """Return a CUDA event that keeps its time."""
        return torch.cuda.Event(enable_timing=True)

    def clock(self) -> int:
        """Return ``perf_counter_ns``."""
        return time.perf_counter_ns()
