"""``--dry-run``: what would be measured, how long it takes and how much memory it needs, about."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click
import torch

from harness.arms import Arm
from harness.devices import Device
from harness.model.case import Case
from harness.operands import memory_bytes
from harness.orders import group_count
from harness.runner import Bench, why_not_row

# A timed call costs itself, an idle gap of its own length and a flush; a check costs an FP64 product, about ten calls.
CHECKS_IN_CALLS = 20


def print_plan(cases: Sequence[Case], bench: Bench, timer: str) -> None:
    """Print one line a row and the totals."""
    rate = _flops_per_s(bench.device)
    free = bench.device.free_bytes()
    total_s = 0.0
    for case in cases:
        runnable = [arm for arm in bench.arms if arm.why_not(case, bench.device.machine) is None]
        seconds = _seconds(case, len(runnable), bench.groups, rate)
        note = why_not_row(case, len(runnable), free) if runnable else "no arm can do it"
        total_s += 0.0 if note else seconds
        gib = memory_bytes(case, len(runnable)) / 2**30
        click.echo(
            f"{case.case_id}: {_arms(runnable)}; about {seconds:.1f} s, {gib:.2f} GiB"
            + (f"; skipped: {note}" if note else "")
        )
    click.echo(
        f"{len(cases)} rows on {bench.device.machine.product}, timer {timer}, at least {bench.groups} groups; about"
        f" {total_s:.0f} s from {rate / 1e12:.3g} TFLOP/s of one BF16 product here; {free / 2**30:.1f} GiB free"
    )


def _arms(runnable: Sequence[Arm]) -> str:
    return ", ".join(arm.info.name for arm in runnable) or "no arm"


def _seconds(case: Case, n_arms: int, at_least: int, flops_per_s: float) -> float:
    if not n_arms:
        return 0.0
    calls = n_arms * 2 * group_count(n_arms, at_least) + CHECKS_IN_CALLS
    return calls * case.flops / flops_per_s


def _flops_per_s(device: Device) -> float:
    n = 8192 if device.machine.device == "cuda" else 1024
    a = torch.ones(n, n, dtype=torch.bfloat16, device=device.torch_device)
    a @ a
    device.synchronize()
    start = time.perf_counter_ns()
    a @ a
    device.synchronize()
    return 2 * n**3 / ((time.perf_counter_ns() - start) / 1e9)
