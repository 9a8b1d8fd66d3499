from types import SimpleNamespace

import pytest

from harness.cli._session import foreign_processes
from harness.errors import UsageError
from harness.monitor import Nvml
from tests.unit.test_monitor import FakeNvml


def test_a_busy_gpu_is_refused_by_name_and_allowed_only_with_a_trace_of_it() -> None:
    gpu = Nvml(FakeNvml(), "uuid-0")

    with pytest.raises(UsageError, match=r"another process computes on the GPU \(pid 40, 41\); wait for it, or say"):
        foreign_processes(gpu, allow_busy=False)
    assert foreign_processes(gpu, allow_busy=True) == {"other processes on the GPU": "2"}


def test_a_gpu_of_ones_own_leaves_no_trace() -> None:
    nvml = FakeNvml()
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: [SimpleNamespace(pid=nvml.pids[0])]  # type: ignore[method-assign]

    assert foreign_processes(Nvml(nvml, "uuid-0"), allow_busy=False) == {}
