"""Putting several runs together: what may pool, on which machines, and which measurements belong to one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.errors import UsageError
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.report import Environment
from harness.model.run import ArmInfo, Row, Run
from harness.pages.summary.states import gpu_states

REGIMES = ("sustained", "boost")
"""In the order of pages: sustained is the headline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run's row, and the index of its machine in the report's environments."""

    place: int
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledRow:
    """One case in one regime on one model of device: what every run says of it. Skipped attempts stand apart."""

    device: str
    regime: str
    case: Case
    measurements: tuple[Measurement, ...]
    skipped: tuple[str, ...]

    @property
    def timed(self) -> frozenset[str]:
        """Arms with a time in this row."""
        return frozenset(arm for measurement in self.measurements for arm in measurement.row.samples.arm)


def check_poolable(runs: Sequence[Run]) -> None:
    """Refuse runs whose numbers cannot stand in one table.

    Raises
    ------
    UsageError
        No run; a run without arms; one run twice; another timer, method version, protocol or revision. Two revisions
        are two kernels, and a median over both would belong to neither.
    """
    if not runs:
        raise UsageError("a report needs at least one run, got none")
    for run in runs:
        if all(arm.twin_of for arm in run.arms):
            raise UsageError(f"run {run.run_id!r} must name at least one arm, got none; measure again")
    first = runs[0]
    for index, run in enumerate(runs[1:], start=1):
        if run.run_id in {earlier.run_id for earlier in runs[:index]}:
            raise UsageError(f"run {run.run_id!r} is given twice; give each run once")
        for what in ("timer", "method_version", "protocol", "revision"):
            one, other = getattr(first, what), getattr(run, what)
            if one != other:
                raise UsageError(
                    f"runs {first.run_id!r} and {run.run_id!r} cannot pool: {what.replace('_', ' ')} must be the same,"
                    f" got {one!r} and {other!r}; report them one by one"
                )


def environments(runs: Sequence[Run]) -> tuple[Environment, ...]:
    """Return the machines that have rows, each once, with the runs that met it; a run without rows shows all of its."""
    found: list[tuple[Machine, list[str]]] = []
    for run in runs:
        used = {row.machine for row in run.rows} or set(range(len(run.machines)))
        for index in sorted(used):
            machine = run.machines[index]
            ids = next((ids for known, ids in found if known == machine), None)
            if ids is None:
                found.append((machine, ids := []))
            if run.run_id not in ids:
                ids.append(run.run_id)
    return tuple(
        Environment(
            device=f"{machine.product} ({machine.arch})",
            machine=machine,
            run_ids=tuple(ids),
            groups=tuple(sorted({row.n_groups for row in _rows(runs, machine) if row.samples.arm})),
            states=gpu_states(sorted(_rows(runs, machine), key=lambda row: _rank(row.regime))),
        )
        for machine, ids in found
    )


def _rows(runs: Sequence[Run], machine: Machine) -> list[Row]:
    return [row for run in runs for row in run.rows if run.machines[row.machine] == machine]


def merge_arms(runs: Sequence[Run]) -> tuple[ArmInfo, ...]:
    """Return every arm once, in the order in which the runs name them; notes that differ are joined.

    Raises
    ------
    UsageError
        Two runs give one name to different arms: another key letter, ours in one and a baseline in the other, or the
        twin of another arm.
    """
    merged: dict[str, ArmInfo] = {}
    for run in runs:
        for arm in run.arms:
            known = merged.setdefault(arm.name, arm)
            if (known.key, known.is_cake, known.twin_of) != (arm.key, arm.is_cake, arm.twin_of):
                raise UsageError(
                    f"arm {arm.name!r} of run {run.run_id!r} is another than in the runs before it: key, is_cake and"
                    f" twin_of must be {known.key!r}, {known.is_cake}, {known.twin_of!r}, got {arm.key!r},"
                    f" {arm.is_cake}, {arm.twin_of!r}; report them one by one"
                )
            if arm.note not in known.note:
                merged[arm.name] = replace(known, note=f"{known.note}; {arm.note}")
    return tuple(merged.values())


def pool(runs: Sequence[Run], places: tuple[Environment, ...]) -> tuple[PooledRow, ...]:
    """Return the rows of all runs: by device, then regime (the headline first), then in the order of the runs.

    Raises
    ------
    UsageError
        Two runs give one name to different cases: other group sizes, say.
    """
    cases: dict[tuple[str, str], Case] = {}
    found: dict[tuple[str, str, Case], list[Measurement]] = {}
    for run in runs:
        for row in run.rows:
            known = cases.setdefault((row.case.suite, row.case.case_id), row.case)
            if known != row.case:
                raise UsageError(
                    f"case {row.case.case_id!r} of suite {row.case.suite!r} differs between the runs (sizes or source):"
                    f" one name must be one case; report run {run.run_id!r} alone"
                )
            place = next(i for i, e in enumerate(places) if e.machine == run.machines[row.machine])
            key = (places[place].device, row.regime, row.case)
            found.setdefault(key, []).append(Measurement(place=place, row=row))
    devices = list(dict.fromkeys(place.device for place in places))
    ordered = sorted(found.items(), key=lambda item: (devices.index(item[0][0]), _rank(item[0][1])))
    return tuple(_pooled(device, regime, case, tried) for (device, regime, case), tried in ordered)


def _rank(regime: str) -> int:
    return REGIMES.index(regime) if regime in REGIMES else len(REGIMES)


def _pooled(device: str, regime: str, case: Case, tried: list[Measurement]) -> PooledRow:
    return PooledRow(
        device=device,
        regime=regime,
        case=case,
        measurements=tuple(m for m in tried if not m.row.skipped),
        skipped=tuple(dict.fromkeys(m.row.skipped for m in tried if m.row.skipped)),
    )
