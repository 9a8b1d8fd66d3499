"""A GPU for the doctor's checks without one: an L2 that remembers what was read, a driver, CUPTI's stand-in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from harness.cupti_session import CuptiSession
from harness.devices import Device
from harness.model.machine import Machine
from harness.model.run import GroupState
from tests.bench import machine
from tests.fake_cupti import FakeCupti, FakeGpu

L2_BYTES = 64 << 20
MEMORY_BYTES_PER_NS = 4_000
L2_BYTES_PER_NS = 8_000
LAUNCH_NS = 2_000
CLOCK_MHZ = 1500
GEMM_NS = 1_500_000
SLOTS = 4


def gpu_machine() -> Machine:
    return replace(
        machine(product="Test GPU"),
        device="cuda",
        arch="sm_90a",
        units=132,
        cache_bytes=L2_BYTES,
        peak_bytes_per_s=5e12,
        versions={"torch": "2.13.0+cu130", "cuda": "13.0", "driver": "580.159"},
    )


class FakeEvent:
    def __init__(self, cupti: FakeCupti) -> None:
        self._cupti = cupti
        self._at = 0

    def record(self) -> None:
        self._at = max(self._cupti.now, self._cupti._free_at)

    def query(self) -> bool:
        return self._cupti.now >= self._at

    def synchronize(self) -> None:
        self._cupti.now = max(self._cupti.now, self._at)

    def elapsed_time(self, end: Any) -> float:
        return (end._at - self._at) / 1e6


class FakeDriver:
    def __init__(self, cupti: FakeCupti) -> None:
        self._cupti = cupti
        self.foreign: tuple[int, ...] = ()
        self.throttle: tuple[str, ...] = ("power cap",)
        self.clock_mhz = CLOCK_MHZ

    def max_clock_mhz(self) -> int:
        return CLOCK_MHZ

    def state(self) -> GroupState:
        return GroupState(clock_mhz=self.clock_mhz, power_w=650.0, temperature_c=60, throttle=self.throttle)

    def energy_mj(self) -> int:
        return self._cupti.now * 650 // 1_000_000

    def foreign_processes(self) -> tuple[int, ...]:
        return self.foreign

    def settings(self) -> dict[str, str]:
        return {
            "power limit": "700 W",
            "persistence": "on",
            "ECC": "on",
            "MIG": "off",
            "MPS": "off",
            "clocks": "application clocks at maximum",
        }


class FakeProbe:
    slots = SLOTS

    def __init__(self, cupti: FakeCupti) -> None:
        self._cupti = cupti

    def record(self, out: torch.Tensor) -> None:
        self._cupti.launch("probe", LAUNCH_NS)
        out[0] = self._cupti._free_at * CLOCK_MHZ // 1000
        out[1] = self._cupti._free_at


class Forgetting(FakeGpu):
    """Its flush makes the L2 forget, unless told otherwise."""

    def __init__(self, hardware: FakeHardware) -> None:
        super().__init__(hardware.cupti)
        self.machine = gpu_machine()
        self._hardware = hardware

    def flush(self, cover_ns: int = 0) -> None:
        super().flush(cover_ns)
        if self._hardware.flush_leaves is not None:
            self._hardware.in_l2 = self._hardware.flush_leaves


class FakeHardware:
    """``flush_leaves`` is what the L2 holds after a flush: ``flush``, ``dirty``, or None where it does not care."""

    def __init__(self) -> None:
        self.cupti = FakeCupti()
        self.driver = FakeDriver(self.cupti)
        self.in_l2: object = "dirty"
        self.flush_leaves: str | None = "flush"
        self.spin_long_ns = 900
        self.log: list[str] = []

    def open_driver(self) -> FakeDriver:
        self.log.append("driver")
        return self.driver

    def open_device(self) -> Device:
        self.log.append("device")
        return Forgetting(self)

    def open_session(self, device: Device) -> CuptiSession:
        self.log.append("session")
        session = CuptiSession(self.cupti, synchronize=device.synchronize, probe=device.flush)
        session.open()
        return session

    def clock_probe(self, device: Device) -> FakeProbe:
        return FakeProbe(self.cupti)

    def spin(self, device: Device) -> FakeSpin:
        return FakeSpin(self)

    def reader(self, device: Device, num_bytes: int) -> FakeReader:
        return FakeReader(self, num_bytes)

    def writer(self, device: Device, num_bytes: int) -> Callable[[], object]:
        def write() -> None:
            self.cupti.launch("memset", num_bytes // MEMORY_BYTES_PER_NS)
            self.in_l2 = "dirty"

        return write

    def gemm(self, device: Device) -> Callable[[], object]:
        return lambda: self.cupti.launch("gemm", GEMM_NS)

    def new_event(self) -> FakeEvent:
        return FakeEvent(self.cupti)

    def clock(self) -> int:
        self.cupti.now += 1_000
        return self.cupti.now


class FakeSpin:
    def __init__(self, hardware: FakeHardware) -> None:
        self._hardware = hardware

    def launch(self, ns: int) -> None:
        self._hardware.cupti.launch("spin", ns + self._hardware.spin_long_ns)


class FakeReader:
    """The first pass is as slow as what lies in the L2 makes it; further ones run at the L2's rate, if it fits."""

    def __init__(self, hardware: FakeHardware, num_bytes: int) -> None:
        self._hardware = hardware
        self._num_bytes = num_bytes

    def launch(self, repeat: int = 1) -> None:
        from_memory_ns = self._num_bytes // MEMORY_BYTES_PER_NS
        from_l2_ns = self._num_bytes // L2_BYTES_PER_NS
        warm = self._hardware.in_l2 is self
        first_ns = from_l2_ns if warm else from_memory_ns
        if self._hardware.in_l2 == "dirty":
            first_ns += min(self._num_bytes, L2_BYTES) // MEMORY_BYTES_PER_NS
        fits = self._num_bytes <= L2_BYTES
        further_ns = (repeat - 1) * (from_l2_ns if fits else from_memory_ns)
        self._hardware.cupti.launch("read", LAUNCH_NS + first_ns + further_ns)
        self._hardware.in_l2 = self if fits else "stream"
