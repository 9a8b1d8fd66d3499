"""The GPU through its driver (NVML): state after a group, energy, who else uses it. Reads; never sets anything."""

from __future__ import annotations

import os
from typing import Any, Protocol

from harness.errors import UsageError
from harness.model.run import GroupState

# Reasons by bit, as nvml.h names them. The power cap is how a GPU lives under load; those marked are not normal.
THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
}
ABNORMAL = frozenset({"hardware slowdown", "software thermal", "hardware thermal", "power brake", "sync boost"})
"""A group that ran under one of these is measured again: the machine was not itself."""


class Monitor(Protocol):
    """What a protocol asks of the driver."""

    def state(self) -> GroupState:
        """Return the GPU's state now."""

    def energy_mj(self) -> int:
        """Return the energy in millijoules that the board has used since the driver was loaded."""


class Nvml:
    """One GPU as NVML sees it.

    Parameters
    ----------
    nvml
        The module ``pynvml``; tests give another.
    uuid
        The board's UUID as torch says it.
    """

    def __init__(self, nvml: Any, uuid: str) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        self._handle = self._find(uuid)

    def state(self) -> GroupState:
        """Return clock, power, temperature and throttle reasons."""
        nvml, handle = self._nvml, self._handle
        return GroupState(
            clock_mhz=int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            temperature_c=int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            throttle=throttle_names(int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))),
        )

    def energy_mj(self) -> int:
        """Return the energy counter."""
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))

    def foreign_processes(self) -> tuple[int, ...]:
        """Return the process ids, other than this one's, that compute on the GPU."""
        running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return tuple(sorted({int(process.pid) for process in running} - {os.getpid()}))

    def settings(self) -> dict[str, str]:
        """Return what the GPU is set to; ``unknown (...)`` where the driver does not say."""
        nvml, handle = self._nvml, self._handle
        readings = {
            "power limit": lambda: f"{nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000:.0f} W",
            "persistence": lambda: on_off(nvml.nvmlDeviceGetPersistenceMode(handle)),
            "ECC": lambda: on_off(nvml.nvmlDeviceGetEccMode(handle)[0]),
            "MIG": lambda: on_off(nvml.nvmlDeviceGetMigMode(handle)[0]),
            "MPS": lambda: on_off(bool(nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle))),
            "clocks": self._clock_policy,
        }
        found: dict[str, str] = {}
        for name, read in readings.items():
            try:
                found[name] = read()
            except nvml.NVMLError as error:
                found[name] = f"unknown ({error})"
        return found

    def driver(self) -> str:
        """Return the driver's version."""
        return str(self._nvml.nvmlSystemGetDriverVersion())

    def uuid(self) -> str:
        """Return the board's UUID."""
        return str(self._nvml.nvmlDeviceGetUUID(self._handle))

    def max_clock_mhz(self) -> int:
        """Return the highest SM clock that the board can have."""
        return int(self._nvml.nvmlDeviceGetMaxClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))

    def _clock_policy(self) -> str:
        """Return whether application clocks hold the GPU; a clock locked by an administrator NVML does not tell."""
        applications = int(self._nvml.nvmlDeviceGetApplicationsClock(self._handle, self._nvml.NVML_CLOCK_SM))
        highest = self.max_clock_mhz()
        return (
            "application clocks at maximum"
            if applications >= highest
            else f"application clock {applications} MHz of {highest} MHz"
        )

    def _find(self, uuid: str) -> Any:
        for index in range(self._nvml.nvmlDeviceGetCount()):
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            if str(self._nvml.nvmlDeviceGetUUID(handle)).removeprefix("GPU-") == uuid.removeprefix("GPU-"):
                return handle
        raise UsageError(f"NVML lists no GPU with the UUID {uuid} that torch reports; is MIG on? choose a whole GPU")


def throttle_names(bits: int) -> tuple[str, ...]:
    """Return the names of the reasons in ``bits``; an unknown bit keeps its number."""
    known = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    rest = bits & ~sum(THROTTLE_REASONS)
    return (*known, *([f"reason {rest:#x}"] if rest else []))


def on_off(state: object) -> str:
    """Return ``on`` or ``off``."""
    return "on" if state else "off"
