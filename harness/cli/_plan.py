"""``--dry-run``: what would be measured, how long it takes and how much memory it needs, about."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import click
import torch

from harness.arms import Arm, refusal
from harness.devices import Device
from harness.model.case import Case
from harness.operands import memory_bytes
from harness.orders import group_count
from harness.protocols.regimes import Regime
from harness.runner import Bench, why_not_row

# A check is an FP64 product, ten times a call or so, and there are two.
CHECKS_IN_CALLS = 20


def print_plan(
    cases: Sequence[Case], bench: Bench, regimes: Sequence[Regime], timer: str, *, controls: Collection[Case] = ()
) -> None:
    """Print one line a row and the totals; a row of ``controls`` is called one."""
    device = bench.session.device
    rate = _flops_per_s(device)
    flush_ns = _flush_ns(device)
    free = device.free_bytes()
    total_s = 0.0
    for case in cases:
        runnable = [arm for arm in bench.arms if refusal(arm, case, device.machine) is None]
        seconds = _seconds(case, _timed(runnable, bench), regimes, bench.session.groups, rate, flush_ns)
        note = why_not_row(case, len(runnable), free) if runnable else "no arm can do it"
        total_s += 0.0 if note else seconds
        gib = memory_bytes(case, len(runnable)) / 2**30
        cost = f"about {seconds:.1f} s, {gib:.2f} GiB"
        name = f"{case.case_id} (control)" if case in controls else case.case_id
        click.echo(f"{name}: {_arms(runnable)}; {cost}" + (f"; skipped: {note}" if note else ""))
    click.echo(
        f"{len(cases)} rows on {device.machine.product}, timer {timer}, {' and '.join(r.name for r in regimes)}, at"
        f" least {bench.session.groups} groups; about {total_s:.0f} s, from {rate / 1e12:.3g} TFLOP/s of one BF16"
        f" product here; {free / 2**30:.1f} GiB free"
    )


def _arms(runnable: Sequence[Arm]) -> str:
    return ", ".join(arm.info.name for arm in runnable) or "no arm"


def _timed(runnable: Sequence[Arm], bench: Bench) -> int:
    """Count the arms that are timed: a twin is timed, and neither checked nor given memory of its own."""
    return len(runnable) + sum(arm.info.name in bench.twins for arm in runnable)


def _seconds(
    case: Case, n_arms: int, regimes: Sequence[Regime], at_least: int, flops_per_s: float, flush_ns: float
) -> float:
    if not n_arms:
        return 0.0
    call_ns = 1e9 * case.flops / flops_per_s
    samples = n_arms * group_count(n_arms, at_least)
    groups = sum(samples * (regime.cost_ns(call_ns) + flush_ns) for regime in regimes)
    return (groups + CHECKS_IN_CALLS * call_ns) / 1e9


def _flush_ns(device: Device) -> int:
    device.flush()
    device.synchronize()
    start = time.perf_counter_ns()
    device.flush()
    device.synchronize()
    return time.perf_counter_ns() - start


def _flops_per_s(device: Device) -> float:
    # Where there are no BF16 instructions, 1024 x 1024 takes seconds.
    n = 8192 if device.machine.device == "cuda" else 256
    a = torch.randn(n, n, dtype=torch.bfloat16, device=device.torch_device)
    a @ a
    device.synchronize()
    start = time.perf_counter_ns()
    a @ a
    device.synchronize()
    return 2 * n**3 / ((time.perf_counter_ns() - start) / 1e9)
