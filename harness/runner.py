"""From cases to rows: each arm is asked, prepared, checked, timed and checked again; a row is what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from harness.arms import Arm, Operands, Prepared
from harness.correctness import Verdict, check_arms
from harness.devices import Device
from harness.errors import first_line
from harness.model.case import Case
from harness.model.run import ArmOutcome, Row
from harness.model.sample import Samples
from harness.operands import make_operands, memory_bytes
from harness.protocols import paired_groups
from harness.timers import Timer

# What fragmentation, the libraries' workspaces and CUDA graphs may take beside the tensors of a row.
MEMORY_RESERVE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What measuring a row needs: the arms, where, by which timer, how often, from which seed."""

    arms: tuple[Arm, ...]
    device: Device
    timer: Timer
    groups: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A row, and whether the device can go on after it."""

    row: Row
    device_lost: str = ""


def why_not_row(case: Case, n_arms: int, free_bytes: int) -> str:
    """Return why the case does not fit into ``free_bytes`` of device memory, or an empty string."""
    needed = memory_bytes(case, n_arms)
    usable = int(free_bytes * (1 - MEMORY_RESERVE))
    if needed <= usable:
        return ""
    return f"needs {needed / 2**30:.1f} GiB of device memory for {n_arms} arms, {usable / 2**30:.1f} GiB are usable"


def measure_row(case: Case, regime: str, bench: Bench, *, machine: int) -> MeasuredRow:
    """Measure one case in one regime; whatever an arm does wrong is recorded, never raised."""
    machine_facts = bench.device.machine
    reasons = {arm.info.name: arm.why_not(case, machine_facts) for arm in bench.arms}
    runnable = [arm for arm in bench.arms if reasons[arm.info.name] is None]
    outcomes = {name: ArmOutcome(status="unsupported", reason=reason) for name, reason in reasons.items() if reason}
    row = Row(case=case, machine=machine, regime=regime, n_groups=0, arms=_in_order(outcomes, bench.arms))
    if not runnable:
        return MeasuredRow(row=row)
    skipped = why_not_row(case, len(runnable), bench.device.free_bytes())
    if skipped:
        return MeasuredRow(row=replace(row, skipped=skipped))
    try:
        operands = make_operands(case, seed=bench.seed, device=bench.device.torch_device)
    except torch.OutOfMemoryError as error:
        return MeasuredRow(row=replace(row, skipped=f"inputs do not fit in memory: {first_line(error)}"))
    try:
        measured, timed = _measure_arms(case, operands, runnable, bench)
    except Exception:
        lost = _device_lost(bench.device)
        if not lost:
            raise
        # A kernel's fault shows at whatever comes next, so nobody can say whose it was: no arm has a time.
        failed = ArmOutcome(status="failed", reason=f"the device was lost in this row: {lost}")
        outcomes |= {arm.info.name: failed for arm in runnable}
        return MeasuredRow(row=replace(row, arms=_in_order(outcomes, bench.arms)), device_lost=lost)
    outcomes |= timed
    row = replace(
        row,
        n_groups=measured.n_groups,
        arms=_in_order(outcomes, bench.arms),
        samples=measured.samples,
        discarded=measured.discarded,
    )
    return MeasuredRow(row=row, device_lost=_device_lost(bench.device))


def _measure_arms(
    case: Case, operands: Operands, arms: Iterable[Arm], bench: Bench
) -> tuple[paired_groups.Measured, dict[str, ArmOutcome]]:
    prepared, outcomes = _prepare(case, operands, arms)
    before = check_arms(case, operands, prepared)
    right = {name: arm for name, arm in prepared.items() if not before[name].failure}
    measured = paired_groups.measure(
        right,
        timer=bench.timer,
        device=bench.device,
        groups=bench.groups,
        floor_ns=bench.device.machine.floor_ns(case),
        case_id=case.case_id,
    )
    timed = {name: arm for name, arm in right.items() if name not in measured.failures}
    # A second poisoned call after hundreds: state that a call leaves behind (tickets, sums, plans) shows here.
    after = check_arms(case, operands, timed)
    for name, arm in prepared.items():
        outcomes[name] = _outcome(arm, before[name], measured.failures.get(name, ""), after.get(name))
    return _keep(measured, {name for name, outcome in outcomes.items() if outcome.status == "measured"}), outcomes


def _prepare(case: Case, operands: Operands, arms: Iterable[Arm]) -> tuple[dict[str, Prepared], dict[str, ArmOutcome]]:
    prepared: dict[str, Prepared] = {}
    outcomes: dict[str, ArmOutcome] = {}
    for arm in arms:
        try:
            prepared[arm.info.name] = arm.prepare(case, operands)
        except Exception as error:  # noqa: BLE001 - whatever an arm raises is the recorded reason for its missing time
            reason = f"could not be prepared: {type(error).__name__}: {first_line(error)}"
            outcomes[arm.info.name] = ArmOutcome(status="failed", reason=reason)
    return prepared, outcomes


def _outcome(arm: Prepared, before: Verdict, failure: str, after: Verdict | None) -> ArmOutcome:
    if before.failure:
        return ArmOutcome(status="failed", reason=before.failure, note=arm.note, check=before.check)
    if failure:
        return ArmOutcome(status="failed", reason=failure, note=arm.note, check=before.check)
    if after is not None and after.failure:
        reason = f"right at first, after timing: {after.failure}"
        return ArmOutcome(status="failed", reason=reason, note=arm.note, check=after.check)
    return ArmOutcome(status="measured", note=arm.note, check=before.check)


def _keep(measured: paired_groups.Measured, names: set[str]) -> paired_groups.Measured:
    kept = [index for index, name in enumerate(measured.samples.arm) if name in names]
    s = measured.samples
    samples = Samples(
        group=tuple(s.group[i] for i in kept),
        position=tuple(s.position[i] for i in kept),
        arm=tuple(s.arm[i] for i in kept),
        span_ns=tuple(s.span_ns[i] for i in kept),
        busy_ns=tuple(s.busy_ns[i] for i in kept),
        clock_mhz=tuple(s.clock_mhz[i] for i in kept),
    )
    return replace(measured, samples=samples, n_groups=measured.n_groups if kept else 0)


def _in_order(outcomes: Mapping[str, ArmOutcome], arms: Iterable[Arm]) -> dict[str, ArmOutcome]:
    return {arm.info.name: outcomes[arm.info.name] for arm in arms if arm.info.name in outcomes}


def _device_lost(device: Device) -> str:
    try:
        device.synchronize()
    except Exception as error:  # noqa: BLE001 - a device that cannot be waited for is lost, whatever it says
        return first_line(error)
    return ""
