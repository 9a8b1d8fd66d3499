"""Every check, in the order in which they must run.

Who else computes on the GPU is asked before this process does; drops are proved in a process of its own; what is read
without CUPTI comes before its session, which stays open to the end.
"""

from __future__ import annotations

from typing import Any

from harness import arms, cases, devices, shapes
from harness.devices import Device
from harness.doctor import (
    aa_floor,
    baselines,
    clocks,
    cpu_cold,
    cpu_timer,
    cupti_live,
    drops,
    known_duration,
    l2,
    locked,
    machine,
    prefill,
    processes,
    settings,
    thermal,
    tracing_cost,
)
from harness.doctor.finding import Check
from harness.doctor.gpu import Gpu
from harness.doctor.hardware import Hardware
from harness.doctor.load import Load, read_load
from harness.doctor.once import Once
from harness.doctor.untraced import SPINS_NS
from harness.errors import PluginError
from harness.model.case import Case
from harness.model.machine import Machine
from harness.paths import data

BASELINE_ROW = "gate_up E4 M112576 bal"
BASELINE_OPS = ("fwd", "dX", "dW")
REFERENCE = "reference"

Checks = tuple[Check[Any], ...]


def gpu_checks(hardware: Hardware, *, allow_busy: bool) -> Checks:
    """Return the checks of a GPU; nothing is opened yet."""
    gpu = Gpu(hardware)
    caches: Once[l2.L2] = Once(lambda: l2.read_l2(gpu))
    load: Once[Load] = Once(lambda: read_load(gpu))
    facts: Once[Machine] = Once(lambda: gpu.stage().device.machine)
    return (
        processes.check(gpu, allow_busy=allow_busy),
        settings.check(gpu),
        drops.check(),
        machine.check(facts),
        cupti_live.check(gpu),
        tracing_cost.check(gpu),
        *(known_duration.check(gpu, ns) for ns in SPINS_NS),
        Check(name="cold L2", advice=l2.ADVICE_COLD, read=caches, judge=l2.judge_cold),
        Check(name="flush reads only", advice=l2.ADVICE_CLEAN, read=caches, judge=l2.judge_clean),
        prefill.check(gpu),
        Check(name="clocks", advice=clocks.ADVICE, read=load, judge=clocks.judge),
        Check(name="clock not locked", advice=locked.ADVICE, read=load, judge=locked.judge),
        Check(name="thermal state", advice=thermal.ADVICE, read=load, judge=thermal.judge),
        *(aa_floor.check(gpu, case_id) for case_id in aa_floor.CASE_IDS),
        *_baseline_checks(facts),
    )


def cpu_checks() -> Checks:
    """Return the checks of a CPU; nothing is opened yet."""
    device: Once[Device] = Once(lambda: devices.open_device("cpu"))
    facts: Once[Machine] = Once(lambda: device().machine)
    return (machine.check(facts), cpu_timer.check(device), cpu_cold.check(device), *_baseline_checks(facts))


def gpu_only(gpu: Checks, cpu: Checks) -> Checks:
    """Return the checks of ``gpu`` that ``cpu`` has no check of the same name for."""
    names = {check.name for check in cpu}
    return tuple(check for check in gpu if check.name not in names)


def _baseline_checks(facts: Once[Machine]) -> Checks:
    rows: Once[tuple[Case, ...]] = Once(_baseline_rows)
    return tuple(baselines.check(name, facts, rows) for name in arms.names() if _is_baseline(name))


def _baseline_rows() -> tuple[Case, ...]:
    every = cases.cases(shapes.load(data("shapes.yaml")), aa_floor.SUITE)
    return cases.select(every, case_globs=[BASELINE_ROW], ops=BASELINE_OPS)


def _is_baseline(name: str) -> bool:
    try:
        return name != REFERENCE and not arms.load(name).info.is_cake
    except PluginError:
        # Its check loads it again, and fails with the reason.
        return True
