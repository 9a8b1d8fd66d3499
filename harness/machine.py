"""Reads what a run records of the machine: product, architecture, caches, peaks, versions, settings."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from harness.errors import UsageError
from harness.model.machine import Machine
from harness.monitor import Nvml

LIBRARIES = (
    "nvidia-cublas",
    "triton",
    "nvidia-cudnn-frontend",
    "quack-kernels",
    "nvidia-cutlass-dsl",
    "cupti-python",
    "nvidia-cuda-cupti",
)
"""Optional libraries whose versions a reader of a table asks for."""

# Dense BF16 operations that one SM can start per clock: 4 tensor cores x 512 (sm_80), 1024 (sm_90) and 2048 (sm_100)
# FMAs. From the vendor's data sheets: H100 SXM 989.4 TFLOP/s = 132 SMs x 4096 FLOP x 1.83 GHz.
_FLOP_PER_SM_CLOCK = {8: 2048, 9: 4096, 10: 8192}

# AMX does 1024 BF16 FLOP per core and clock; AVX-512 and NEON do less. No core runs above 6.5 GHz.
_CPU_PEAK_FLOPS_PER_CORE = 1024 * 6.5e9

# Bytes per second by product, from the vendor's data sheets, plus 5 % so that a bound stays a bound.
_PEAK_BANDWIDTH = {
    "NVIDIA H200": 1.05 * 4.8e12,
    "NVIDIA H100 80GB HBM3": 1.05 * 3.35e12,
    "NVIDIA B200": 1.05 * 8.0e12,
}


def read_machine(device: Literal["cpu", "cuda"]) -> Machine:
    """Return the facts of the current device.

    Raises
    ------
    UsageError
        A fact that no result can do without (the size of the last-level cache) cannot be read.
    """
    return _cuda() if device == "cuda" else _cpu()


def _versions() -> dict[str, str]:
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
        found["cudnn"] = str(torch.backends.cudnn.version())
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _cpu() -> Machine:
    cores = os.cpu_count() or 1
    return Machine(
        device="cpu",
        product=_cpu_model(),
        arch=platform.machine(),
        units=cores,
        cache_bytes=_last_level_cache(Path("/sys/devices/system/cpu")),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        peak_flops=cores * _CPU_PEAK_FLOPS_PER_CORE,
        peak_bytes_per_s=None,
        peak_source="1024 BF16 FLOP per core and clock (AMX) at 6.5 GHz; operands may lie in a cache",
        versions=_versions(),
        settings={"threads": str(_threads())},
    )


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _last_level_cache(cpus: Path) -> int:
    """Return the bytes of the last-level caches, all of them: cores in groups of a few may each have their own."""
    found: dict[tuple[int, str], int] = {}
    for index in cpus.glob("cpu[0-9]*/cache/index*"):
        level, shared = (int((index / "level").read_text()), (index / "shared_cpu_list").read_text().strip())
        found[level, shared] = _bytes((index / "size").read_text().strip())
    if not found:
        raise UsageError(f"{cpus} lists no caches; the CPU timer must know the last level's size to flush it")
    last = max(level for level, _ in found)
    return sum(size for (level, _), size in found.items() if level == last)


def _bytes(size: str) -> int:
    return int(size.rstrip("KM")) * {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1)


def open_nvml() -> Nvml:
    """Return the current CUDA device as NVML sees it."""
    import pynvml
    import torch

    return Nvml(pynvml, str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid))


def _cuda() -> Machine:
    import torch

    props = torch.cuda.get_device_properties(torch.cuda.current_device())
    gpu = open_nvml()
    board = hashlib.sha256(gpu.uuid().encode()).hexdigest()[:12]
    per_clock = _FLOP_PER_SM_CLOCK.get(props.major)
    bandwidth = _PEAK_BANDWIDTH.get(props.name)
    return Machine(
        device="cuda",
        product=props.name,
        arch=f"sm_{props.major}{props.minor}" + ("a" if props.major >= 9 else ""),
        units=props.multi_processor_count,
        cache_bytes=props.L2_cache_size,
        memory_bytes=props.total_memory,
        peak_flops=per_clock * props.multi_processor_count * 1e6 * gpu.max_clock_mhz() if per_clock else None,
        peak_bytes_per_s=bandwidth,
        peak_source="dense BF16 FLOP per SM and clock x SMs x the highest SM clock; data-sheet bandwidth + 5 %",
        board=board,
        versions={**_versions(), "driver": gpu.driver()},
        settings=gpu.settings(),
    )
