"""From cases to rows: each arm is asked, prepared, checked, timed and checked again; a row is what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from harness.arms import Arm, Operands, Prepared, refusal
from harness.correctness import Verdict, check_arms
from harness.errors import FOREIGN, PluginError, first_line, written
from harness.model.case import Case
from harness.model.run import ArmOutcome, Row
from harness.operands import fingerprint, make_operands, memory_bytes
from harness.protocols import paired_groups
from harness.protocols.paired_groups import Measured, Session
from harness.protocols.regimes import Regime

# What fragmentation, the libraries' workspaces and CUDA graphs may take beside the tensors of a row.
MEMORY_RESERVE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What measuring a case needs: the arms, a session, the seed of the inputs.

    Attributes
    ----------
    twins
        Name of an arm -> the name under which it runs once more, as an A/A pair.
    """

    arms: tuple[Arm, ...]
    session: Session
    seed: int
    twins: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """A case's rows, one a regime, and why the device cannot go on after them, if so."""

    rows: tuple[Row, ...]
    device_lost: str = ""


def why_not_row(case: Case, n_arms: int, free_bytes: int) -> str:
    """Return why the case does not fit into ``free_bytes`` of device memory, or an empty string."""
    needed = memory_bytes(case, n_arms)
    usable = int(free_bytes * (1 - MEMORY_RESERVE))
    if needed <= usable:
        return ""
    return f"needs {needed / 2**30:.1f} GiB of device memory for {n_arms} arms, {usable / 2**30:.1f} GiB are usable"


def measure_case(case: Case, regimes: Sequence[Regime], bench: Bench, *, machine: int) -> MeasuredCase:
    """Measure one case in each of ``regimes``; whatever an arm does wrong is recorded, never raised."""
    device = bench.session.device
    asked = {arm.info.name: refusal(arm, case, device.machine) for arm in bench.arms}
    runnable = [arm for arm in bench.arms if asked[arm.info.name] is None]
    refused = {name: outcome for name, outcome in asked.items() if outcome}
    blank = [Row(case=case, machine=machine, regime=r.name, n_groups=0, arms=refused) for r in regimes]
    if not runnable:
        return MeasuredCase(rows=tuple(blank))
    if skipped := why_not_row(case, len(runnable), device.free_bytes()):
        return MeasuredCase(rows=tuple(replace(row, skipped=skipped) for row in blank))
    try:
        operands = make_operands(case, seed=bench.seed, device=device.torch_device)
        rows = _Attempt(case, operands, runnable, bench).rows(blank, regimes)
    except torch.OutOfMemoryError as error:
        # Not an arm's fault: inputs, reference or comparison. What an arm itself cannot allocate is its own failure.
        skipped = f"does not fit in memory: {first_line(error)}"
        return MeasuredCase(rows=tuple(replace(row, skipped=skipped) for row in blank))
    except Exception:
        lost = _device_lost(bench)
        if not lost:
            raise
        # A kernel's fault shows at whatever comes next, so nobody can say whose it was: no arm has a time.
        failed = ArmOutcome(status="failed", reason=f"the device was lost in this row: {lost}")
        outcomes = refused | {arm.info.name: failed for arm in runnable}
        return MeasuredCase(
            rows=tuple(replace(row, arms=_in_order(outcomes, bench)) for row in blank), device_lost=lost
        )
    return MeasuredCase(rows=rows, device_lost=_device_lost(bench))


class _Attempt:
    """One case on its way through prepare, check, time and check."""

    def __init__(self, case: Case, operands: Operands, arms: Sequence[Arm], bench: Bench) -> None:
        self._case = case
        self._operands = operands
        self._bench = bench
        self._prepared: dict[str, Prepared] = {}
        self._unprepared: dict[str, ArmOutcome] = {}
        for arm in arms:
            try:
                self._prepared[arm.info.name] = _prepared(arm, case, operands)
            except FOREIGN as error:  # what an arm raises is the reason for its missing time
                reason = f"could not be prepared: {type(error).__name__}: {first_line(error)}"
                self._unprepared[arm.info.name] = ArmOutcome(status="failed", reason=reason)

    def rows(self, blank: Sequence[Row], regimes: Sequence[Regime]) -> tuple[Row, ...]:
        given = fingerprint(self._operands)
        before = self._check(self._prepared)
        right = {name: arm for name, arm in self._prepared.items() if not before[name].failure}
        measured = [self._measure(right, regime) for regime in regimes]
        if fingerprint(self._operands) == given:
            # A poisoned call after hundreds: state that a call leaves behind (tickets, sums, plans) shows here.
            after = self._check(right)
        else:
            after = {name: Verdict(failure=SPOILT, check=None) for name in right}
        return tuple(self._row(row, m, before, after) for row, m in zip(blank, measured, strict=True))

    def _check(self, arms: Mapping[str, Prepared]) -> dict[str, Verdict]:
        return check_arms(self._case, self._operands, arms, seed=self._bench.seed)

    def _measure(self, right: Mapping[str, Prepared], regime: Regime) -> Measured:
        twins = {again: right[name] for name, again in self._bench.twins.items() if name in right}
        session = self._bench.session
        floor_ns = session.device.machine.floor_ns(self._case)
        return paired_groups.measure({**right, **twins}, regime, session, floor_ns=floor_ns, case_id=self._case.case_id)

    def _row(self, blank: Row, measured: Measured, before: Mapping[str, Verdict], after: Mapping[str, Verdict]) -> Row:
        outcomes = blank.arms | self._unprepared
        for name, arm in self._prepared.items():
            again = self._bench.twins.get(name)
            outcomes[name] = _outcome(arm, before[name], measured.failures.get(name, ""), after.get(name))
            if again and name in after:
                outcomes[again] = _outcome(arm, before[name], measured.failures.get(again, ""), after[name])
        if measured.skipped:
            failed = {name: outcome for name, outcome in outcomes.items() if outcome.status != "measured"}
            return replace(blank, skipped=measured.skipped, arms=_in_order(failed, self._bench))
        timed = {name for name, outcome in outcomes.items() if outcome.status == "measured"}
        return replace(
            blank,
            n_groups=measured.n_groups if timed else 0,
            arms=_in_order(outcomes, self._bench),
            samples=measured.samples.only(timed),
            discarded=measured.discarded,
            states=measured.states if timed else (),
            records=measured.records,
            kernels=measured.kernels,
        )


SPOILT = "an arm wrote to the inputs, which all arms share, while the row was timed"


def _prepared(arm: Arm, case: Case, operands: Operands) -> Prepared:
    prepared = arm.prepare(case, operands)
    if not isinstance(prepared, Prepared):
        raise PluginError(f"prepare must return a Prepared, got {type(prepared).__name__}")
    return replace(prepared, note=written(prepared.note))


def _outcome(arm: Prepared, before: Verdict, failure: str, after: Verdict | None) -> ArmOutcome:
    if before.failure:
        return ArmOutcome(status="failed", reason=before.failure, note=arm.note, check=before.check)
    if failure:
        return ArmOutcome(status="failed", reason=failure, note=arm.note, check=before.check)
    if after is not None and after.failure:
        reason = f"right at first, after timing: {after.failure}"
        return ArmOutcome(status="failed", reason=reason, note=arm.note, check=after.check)
    return ArmOutcome(status="measured", note=arm.note, check=before.check)


def _in_order(outcomes: Mapping[str, ArmOutcome], bench: Bench) -> dict[str, ArmOutcome]:
    names = [name for arm in bench.arms for name in (arm.info.name, bench.twins.get(arm.info.name, ""))]
    return {name: outcomes[name] for name in names if name in outcomes}


def _device_lost(bench: Bench) -> str:
    try:
        bench.session.device.synchronize()
    except Exception as error:  # noqa: BLE001 - a device that cannot be waited for is lost, whatever it says
        return first_line(error)
    return ""
