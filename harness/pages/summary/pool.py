"""Putting several runs together: what may pool, on which machines, and which measurements belong to one row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.errors import UnknownName, UsageError
from harness.model.case import Case
from harness.model.cost import cost, with_rows
from harness.model.machine import Machine
from harness.model.measured_floor import MeasuredFloor, measured_floor
from harness.model.report import PREVIOUS_OF, Environment, RunCost, RunRates
from harness.model.run import ArmInfo, Row, Run, row_key
from harness.model.sample import Samples
from harness.pages.summary.states import gpu_states

REGIMES = ("sustained", "boost")
"""Those whose numbers are results, in the order of pages: sustained is the headline. Others are studies."""

SAME_VERSIONS = ("torch", "cuda", "driver", "cudnn")
SAME_SETTINGS = ("power limit", "ECC", "MIG")
"""What machines of pooled runs have in common beside their model: a median over two stacks would belong to neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run's row, the index of its machine in the report's environments, and its floor where rates were measured."""

    place: int
    row: Row
    floor: MeasuredFloor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledRow:
    """One case in one regime on one model of device: what every run says of it. Skipped attempts stand apart.

    Attributes
    ----------
    control
        Every run that has it and compared two revisions of ours found the same program in both.
    """

    device: str
    regime: str
    case: Case
    measurements: tuple[Measurement, ...]
    skipped: tuple[str, ...]
    control: bool

    @property
    def timed(self) -> frozenset[str]:
        """Arms with a time in this row."""
        return frozenset(arm for measurement in self.measurements for arm in measurement.row.samples.arm)


def check_poolable(runs: Sequence[Run]) -> None:
    """Refuse runs whose numbers cannot stand in one table.

    Raises
    ------
    UsageError
        No run; a run without arms; one run twice, or a copy of it; another timer, method version, protocol or
        revision; other sources of ``cake_kernels``, of this revision or of the previous one; on one model of device
        another version of torch, CUDA, driver or cuDNN, another power limit, ECC or MIG state.
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
    _refuse_other_sources(runs)
    _refuse_other_stacks(runs)
    _refuse_copies(runs)


def without(runs: Sequence[Run], arms: Sequence[str]) -> list[Run]:
    """Return the runs without ``arms``; a run that has no other goes, and a previous revision without arms.

    Raises
    ------
    UnknownName
        An arm that no run has.
    UsageError
        An arm whose twin stays; all arms.
    """
    if not arms:
        return list(runs)
    infos = merge_arms(runs)
    known = tuple(info.name for info in infos)
    for name in arms:
        if name not in known:
            raise UnknownName("arm", name, known)
        twins = [info.name for info in infos if info.twin_of == name and info.name not in arms]
        if twins:
            raise UsageError(f"arm {name!r} cannot be left out while {twins[0]!r}, the same arm again, stays")
    if set(known) <= set(arms):
        raise UsageError(f"a report needs an arm, and all are left out: {', '.join(known)}")
    return [kept for run in runs if (kept := _without(run, set(arms))).arms]


def _without(run: Run, arms: set[str]) -> Run:
    ran = {info.name for info in run.arms}
    if not ran & arms:
        return run
    previous = run.previous if (ran - arms).intersection(PREVIOUS_OF.values()) else None
    return replace(run.without(ran & arms), previous=previous)


def _refuse_other_sources(runs: Sequence[Run]) -> None:
    """Refuse two runs whose kernels differ, where both say what they measured: a revision's name may not tell."""
    ours = [(run, run.sources_sha256) for run in runs if run.sources_sha256]
    others = [(run, run.previous.sources_sha256) for run in runs if run.previous]
    for what, found in (("cake_kernels", ours), ("the previous cake_kernels", others)):
        for run, digest in found[1:]:
            known, first = found[0]
            if digest != first:
                raise UsageError(
                    f"runs {known.run_id!r} and {run.run_id!r} cannot pool: the sources of {what} must be the same, got"
                    f" SHA-256 {first[:12]} and {digest[:12]}; report them one by one"
                )


def _refuse_other_stacks(runs: Sequence[Run]) -> None:
    """Refuse two runs on one model of device with other software or settings, and one board of two models."""
    first: dict[str, tuple[Run, dict[str, str | None]]] = {}
    for run in runs:
        for machine in _used(run):
            for same in (_device(machine), *((f"board {machine.board}",) if machine.board else ())):
                known, stack = first.setdefault(same, (run, _stack(machine)))
                what = next((name for name, value in _stack(machine).items() if value != stack[name]), None)
                if what is not None and known is not run:
                    raise UsageError(
                        f"runs {known.run_id!r} and {run.run_id!r} cannot pool: {what} of {same} must be the same, got"
                        f" {stack[what]!r} and {_stack(machine)[what]!r}; report them one by one"
                    )


def _refuse_copies(runs: Sequence[Run]) -> None:
    """Refuse a row that two runs have with the same samples: to the nanosecond, no second measurement gives them."""
    found: dict[tuple[str, Samples], Run] = {}
    for run in runs:
        for row in run.rows:
            key = (row_key(row.regime, row.case), row.samples)
            if row.samples.arm and (known := found.setdefault(key, run)) is not run:
                raise UsageError(
                    f"runs {known.run_id!r} and {run.run_id!r} hold the same samples of {key[0]!r}, so one is a copy of"
                    " the other; give one of them"
                )


def _stack(machine: Machine) -> dict[str, str | None]:
    versions = {f"{name} version": machine.versions.get(name) for name in SAME_VERSIONS}
    return {"product": _device(machine), **versions, **{name: machine.settings.get(name) for name in SAME_SETTINGS}}


def _device(machine: Machine) -> str:
    return f"{machine.product} ({machine.arch})"


def _used(run: Run) -> list[Machine]:
    """Return the machines that have rows; of a run without rows all."""
    indices = {row.machine for row in run.rows} or set(range(len(run.machines)))
    return [run.machines[index] for index in sorted(indices)]


def _card(machine: Machine) -> str | Machine:
    """Return what makes a machine the same as another: its board, and where none is known everything."""
    return machine if machine.board is None else machine.board


def environments(runs: Sequence[Run]) -> tuple[Environment, ...]:
    """Return the machines that have rows, each once, with the runs that met it; a run without rows shows all of its."""
    met = [(run, machine) for run in runs for machine in _used(run)]
    cards: list[list[tuple[Run, Machine]]] = []
    for run, machine in met:
        card = next((card for card in cards if _card(card[0][1]) == _card(machine)), None)
        if card is None:
            cards.append(card := [])
        card.append((run, machine))
    return tuple(_environment(card) for card in cards)


def _environment(met: Sequence[tuple[Run, Machine]]) -> Environment:
    """Return one card with all the runs that met it."""
    machines = [machine for _, machine in met]
    here = [(run, [row for row in run.rows if run.machines[row.machine] == machine]) for run, machine in met]
    rows = sorted((row for _, of_run in here for row in of_run), key=lambda row: _rank(row.regime))
    timed = [row for row in rows if row.samples.arm]
    return Environment(
        device=_device(machines[0]),
        machine=replace(
            machines[0],
            versions=_joined([machine.versions for machine in machines]),
            settings=_joined([machine.settings for machine in machines]),
        ),
        run_ids=tuple(dict.fromkeys(run.run_id for run, _ in met)),
        groups=tuple(sorted({row.n_groups for row in timed})),
        regimes=tuple(dict.fromkeys(row.regime for row in timed)),
        states=gpu_states(rows),
        rates=tuple(
            RunRates(run_id=run.run_id, rates=rates)
            for run, machine in met
            if (rates := run.rates_of(run.machines.index(machine)))
        ),
        costs=_costs({run.run_id: run for run, _ in met}.values(), _card(machines[0])),
    )


def _costs(runs: Iterable[Run], card: str | Machine) -> tuple[RunCost, ...]:
    """Return what each run took on one card: a sitting is on one machine."""
    costs = []
    for run in runs:
        here = [(sitting, rows) for sitting, rows in with_rows(run) if _card(run.machines[rows[0].machine]) == card]
        if here:
            costs.append(RunCost(run_id=run.run_id, cost=cost(here), run_rows=len(run.rows)))
    return tuple(costs)


def _joined(found: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return every value of a name: a library may have changed between two runs on one board."""
    names = dict.fromkeys(name for one in found for name in one)
    return {name: " and ".join(dict.fromkeys(one[name] for one in found if name in one)) for name in names}


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
            card = _card(run.machines[row.machine])
            place = next(i for i, e in enumerate(places) if _card(e.machine) == card)
            key = (places[place].device, row.regime, row.case)
            rates = run.rates_of(row.machine)
            floor = measured_floor(row.case, rates) if rates else None
            found.setdefault(key, []).append(Measurement(place=place, row=row, floor=floor))
    devices = list(dict.fromkeys(place.device for place in places))
    controls = _controls(runs)
    ordered = sorted(found.items(), key=lambda item: (devices.index(item[0][0]), _rank(item[0][1])))
    return tuple(
        _pooled(device, regime, case, tried, control=row_key(regime, case) in controls)
        for (device, regime, case), tried in ordered
    )


def _controls(runs: Sequence[Run]) -> set[str]:
    """Return the rows that are controls wherever a run compared two revisions."""
    compared = [(run, set(run.previous.controls)) for run in runs if run.previous]
    affected = {key for run, controls in compared for key in run.planned if key not in controls}
    return {key for _, controls in compared for key in controls} - affected


def _rank(regime: str) -> int:
    return REGIMES.index(regime) if regime in REGIMES else len(REGIMES)


def _pooled(device: str, regime: str, case: Case, tried: list[Measurement], *, control: bool) -> PooledRow:
    return PooledRow(
        device=device,
        regime=regime,
        case=case,
        measurements=tuple(m for m in tried if not m.row.skipped),
        skipped=tuple(dict.fromkeys(m.row.skipped for m in tried if m.row.skipped)),
        control=control,
    )
