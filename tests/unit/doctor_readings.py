"""Readings by hand, a sound GPU's and a sick one's, and the diagnosis of each: what the golden files are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.cupti_session import PINNED
from harness.doctor.aa_floor import AaFloor, AaRegime
from harness.doctor.baselines import Baseline
from harness.doctor.checks import cpu_checks, gpu_checks, gpu_only
from harness.doctor.cpu_cold import CpuCold
from harness.doctor.cpu_timer import CpuSpins
from harness.doctor.cupti_live import CuptiLive
from harness.doctor.finding import Examined, examine, left_out
from harness.doctor.known_duration import KnownDuration
from harness.doctor.l2 import L2
from harness.doctor.load import Load
from harness.doctor.pages import Diagnosis
from harness.doctor.prefill import Filling, Prefill
from harness.doctor.processes import Processes
from harness.doctor.settings import Settings
from harness.doctor.stage import Times
from harness.doctor.tracing_cost import TracingCost
from harness.doctor.untraced import LaunchCost
from harness.drop_proof import DropProof
from harness.errors import UsageError
from harness.model.run import GroupState
from tests.bench import machine
from tests.unit.doctor_hardware import FakeHardware, gpu_machine

STARTED = "2026-11-29T12:00:00Z"
MIB = 1 << 20


def times(cupti_ns: int, events_ns: int) -> Times:
    return Times(cupti_ns=(cupti_ns - 40, cupti_ns, cupti_ns + 90), events_ns=(events_ns - 500, events_ns, events_ns))


def caches(**others: Any) -> L2:
    """Memory at 4.3 TB/s and an L2 at 6.5 TB/s: 22 MiB ask for 1.8 us more."""
    sound: dict[str, Any] = {
        "num_bytes": 22 * MIB,
        "cache_bytes": 60 * MIB,
        "stream_bytes": 960 * MIB,
        "passes": 9,
        "peak_bytes_per_s": 5.04e12,
        "stream": times(234_000, 237_000),
        "cold": times(8_900, 12_500),
        "warm": times(5_800, 9_300),
        "warm_long": times(34_200, 37_800),
        "dirty": times(16_400, 20_100),
    }
    return L2(**sound | others)


def state(clock_mhz: int = 1425, temperature_c: int = 58, *, throttle: tuple[str, ...] = ("power cap",)) -> GroupState:
    return GroupState(clock_mhz=clock_mhz, power_w=684.0, temperature_c=temperature_c, throttle=throttle)


def load(**others: Any) -> Load:
    sound: dict[str, Any] = {
        "rest": state(1980, 34, throttle=("idle",)),
        "states": (state(1410), state(1440)),
        "probe_mhz": 1431,
        "energy_mj": 685_000,
        "duration_ns": 1_000_000_000,
        "light_states": (state(1980, throttle=()), state(1980, throttle=())),
        "light_probe_mhz": 1979,
        "max_clock_mhz": 1980,
    }
    return Load(**sound | others)


def spin(ns: int, cupti_ns: int, events_ns: int) -> KnownDuration:
    return KnownDuration(ns=ns, cupti_ns=(ns, cupti_ns, cupti_ns), events_ns=(events_ns, events_ns, events_ns + 32))


def floor(case: str, boost: float, sustained: float) -> AaFloor:
    def one(name: str, middle: float, *, discarded: int = 0) -> AaRegime:
        return AaRegime(regime=name, ratios=(middle - 0.006, middle, middle + 0.005), discarded=discarded)

    return AaFloor(
        case=case, arm="cublas_loop", regimes=(one("boost", boost), one("sustained", sustained, discarded=1))
    )


SETTINGS = {
    "power limit": "700 W",
    "persistence": "on",
    "ECC": "on",
    "MIG": "off",
    "MPS": "off",
    "clocks": "application clocks at maximum",
}

SOUND: dict[str, Any] = {
    "alone on the GPU": Processes(foreign=(), allowed=False),
    "GPU settings": Settings(values=SETTINGS),
    "drops counted": DropProof(seen=0, dropped=30),
    "machine": replace(gpu_machine(), product="NVIDIA H200", cache_bytes=60 * MIB),
    "CUPTI live": CuptiLive(versions=dict(PINNED), probes=1, unfiltered=()),
    "CUPTI's own time": TracingCost(
        off=LaunchCost(device_ns=1102.4, host_ns=2210.0), on=LaunchCost(device_ns=1890.5, host_ns=6105.0)
    ),
    "timers at 100 us": spin(100_000, 101_150, 104_300),
    "timers at 1000 us": spin(1_000_000, 1_001_120, 1_004_280),
    "cold L2": caches(),
    "flush reads only": caches(),
    "queue pre-fill": Prefill(
        enqueue_ns=905_000,
        bare=Filling(span_ns=880_000, busy_ns=62_000, cover_ns=0),
        filled=Filling(span_ns=95_000, busy_ns=61_000, cover_ns=1_290_000),
    ),
    "clocks": load(),
    "clock not locked": load(),
    "thermal state": load(),
    "A/A fwd": floor("fwd down E4 M112576 bal", 1.0004, 0.9978),
    "A/A dW": floor("dW gate_up E4 M112576 bal", 0.9991, 1.0049),
    "baseline cublas_loop": Baseline(
        arm="cublas_loop",
        libraries={"torch": "2.15.0+cu130", "nvidia-cublas": "13.10.0.20"},
        why_not={"fwd": "", "dX": "", "dW": ""},
    ),
    "baseline torch_grouped_mm": Baseline(
        arm="torch_grouped_mm", libraries={"torch": "2.11.0+cu130"}, why_not={"fwd": "", "dX": "", "dW": ""}
    ),
    "baseline cudnn": Baseline(
        arm="cudnn",
        libraries={"nvidia-cudnn-frontend": "1.32.0", "nvidia-cudnn-cu13": "9.19.0.56"},
        why_not={"fwd": "", "dX": "no plan for W row-major", "dW": "the weight gradient needs cuDNN >= 9.22.0"},
    ),
}

SICK: dict[str, Any] = {
    "alone on the GPU": Processes(foreign=(4711, 4712), allowed=False),
    "GPU settings": Settings(values=SETTINGS | {"MIG": "on", "clocks": "application clock 1410 MHz of 1980 MHz"}),
    "drops counted": DropProof(seen=0, dropped=0),
    "CUPTI live": CuptiLive(versions=dict(PINNED) | {"cupti-python": "13.4.0"}, probes=3, unfiltered=("cuInit",)),
    "timers at 100 us": spin(100_000, 107_100, 104_300),
    "timers at 1000 us": spin(1_000_000, 1_001_120, 1_044_280),
    "cold L2": caches(cold=times(5_900, 9_400)),
    "flush reads only": caches(cold=times(16_300, 20_000)),
    "queue pre-fill": Prefill(
        enqueue_ns=905_000,
        bare=Filling(span_ns=880_000, busy_ns=62_000, cover_ns=0),
        filled=Filling(span_ns=870_000, busy_ns=61_000, cover_ns=0),
    ),
    "clocks": load(probe_mhz=1980, energy_mj=0),
    "clock not locked": load(light_states=(state(1410, throttle=()), state(1410, throttle=())), light_probe_mhz=1409),
    "thermal state": load(states=(state(), state(temperature_c=88, throttle=("power cap", "hardware thermal")))),
    "A/A fwd": floor("fwd down E4 M112576 bal", 1.0061, 0.9978),
    "A/A dW": AaFloor(
        case="dW gate_up E4 M112576 bal",
        arm="cublas_loop",
        regimes=(AaRegime(regime="boost", failure="cublas_loop: raised RuntimeError: out of memory"),),
    ),
    "baseline quack": Baseline(
        arm="quack",
        libraries={},
        why_not=dict.fromkeys(
            ("fwd", "dX", "dW"), "quack-kernels is not installed; pip install 'quack-kernels>=0.6.5'"
        ),
    ),
}

CPU: dict[str, Any] = {
    "machine": machine(),
    "cpu timer": CpuSpins(known_ns=(10_000_080, 10_000_100), timer_ns=(10_014_000, 10_015_000)),
    "cold caches": CpuCold(
        num_bytes=MIB // 2,
        cache_bytes=32 * MIB,
        flush_bytes=64 * MIB,
        cold_ns=(50_500, 56_000),
        warm_ns=(7_000, 7_200),
    ),
    "baseline torch_grouped_mm": SOUND["baseline torch_grouped_mm"],
}


def sound() -> Diagnosis:
    return Diagnosis(started=STARTED, device="cuda", examined=_gpu(SOUND))


def sick() -> Diagnosis:
    """Checks that cannot even read fail with what was raised."""
    return Diagnosis(started=STARTED, device="cuda", examined=_gpu(SICK, raising=("machine", "CUPTI's own time")))


def cpu() -> Diagnosis:
    made = cpu_checks()
    notes = [left_out(check, "not here: torch sees no CUDA device") for check in gpu_only(_gpu_checks(), made)]
    examined = [examine(replace(check, read=_reads(CPU[check.name]))) for check in made if check.name in CPU]
    return Diagnosis(started=STARTED, device="cpu", examined=[*notes, *examined])


DIAGNOSES = {"sound": sound, "sick": sick, "cpu": cpu}


def _gpu(readings: Mapping[str, Any], raising: tuple[str, ...] = ()) -> list[Examined]:
    found = []
    for check in _gpu_checks():
        if check.name in readings:
            found.append(examine(replace(check, read=_reads(readings[check.name]))))
        elif check.name in raising:
            found.append(examine(replace(check, read=_raises)))
    return found


def _gpu_checks() -> tuple[Any, ...]:
    return gpu_checks(FakeHardware(), allow_busy=False)


def _reads(reading: Any) -> Any:
    return lambda: reading


def _raises() -> Any:
    raise UsageError("cupti-python is not installed; use --timer cuda_event")
