import os
from types import SimpleNamespace

import pytest

from harness.errors import UsageError
from harness.monitor import Nvml, throttle_names


class FakeNvml:
    """Two GPUs; the second is the one asked for."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.pids = [os.getpid(), 41, 40]
        self.energy = 5_000

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-uuid-{handle}"

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return 1400 + handle

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 690_500

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> int:
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x4 | 0x40

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        return self.energy

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetPowerManagementLimit(self, handle: int) -> int:
        return 700_000

    def nvmlDeviceGetPersistenceMode(self, handle: int) -> int:
        return 1

    def nvmlDeviceGetEccMode(self, handle: int) -> list[int]:
        return [1, 1]

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: int) -> list[object]:
        return []

    def nvmlDeviceGetApplicationsClock(self, handle: int, kind: int) -> int:
        return 1500

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        return 1980

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"


def test_the_gpu_is_found_by_torchs_uuid_and_says_its_state() -> None:
    state = Nvml(FakeNvml(), "uuid-1").state()

    assert (state.clock_mhz, state.power_w, state.temperature_c) == (1401, 690.5, 61)
    assert state.throttle == ("power cap", "hardware thermal")


def test_a_gpu_that_nvml_does_not_list_is_an_error() -> None:
    with pytest.raises(UsageError, match="NVML lists no GPU with the UUID uuid-7"):
        Nvml(FakeNvml(), "uuid-7")


def test_foreign_processes_are_all_but_this_one() -> None:
    assert Nvml(FakeNvml(), "uuid-0").foreign_processes() == (40, 41)


def test_settings_say_what_is_unknown() -> None:
    assert Nvml(FakeNvml(), "uuid-0").settings() == {
        "power limit": "700 W",
        "persistence": "on",
        "ECC": "on",
        "MIG": "unknown (Not Supported)",
        "MPS": "off",
        "clocks": "application clock 1500 MHz of 1980 MHz",
    }


def test_reasons_are_named_and_an_unknown_bit_keeps_its_number() -> None:
    assert throttle_names(0) == ()
    assert throttle_names(0x24) == ("power cap", "software thermal")
    assert throttle_names(0x10004) == ("power cap", "reason 0x10000")
