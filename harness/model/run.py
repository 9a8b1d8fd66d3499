"""Run: all that one ``cake-bench run`` recorded: rows, arms, machines, their rates, and why something has no time."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal, TypeVar

from harness.errors import RunFileError
from harness.model.case import Case, matches
from harness.model.machine import Machine
from harness.model.sample import Samples

SCHEMA_VERSION = 1
"""Version of the run file's form."""

METHOD_VERSION = 3
"""Version of how numbers come about. A change starts a new segment of history and is a commit of its own.

2: sustained blocks of 0.4 s, before of 0.2 s; ``cuda_event`` covers 0.2 ms more than the host's enqueue time.
3: in boost three rotations a group, before one, and all of its arms wait equally long for the host; in sustained an arm
waits within its block only where its host is not ahead.
"""

RATE_SAMPLES = 7
"""Fewest samples that a rate is the median of."""

# Becomes the name of a file, on any system.
_RUN_ID = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,99}")
_LAUNCHED = re.compile(r".* x [1-9][0-9]*", re.DOTALL)
_SHA256 = re.compile(r"[0-9a-f]{64}")

_Of = TypeVar("_Of")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmInfo:
    """One arm of a run.

    Attributes
    ----------
    key
        The letter after a latency in tables: ``t``, ``c``, ``d``; empty for arms without one.
    is_cake
        Whether it is one of ours; the others are baselines.
    note
        What a reader must know of it: ``group sizes known on the host``.
    twin_of
        The arm that this one is again, in an A/A pair: the same prepared call under another name.
    """

    name: str
    key: str
    is_cake: bool
    note: str
    twin_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How an arm's output compared with the FP64 reference, and the limits that it had to keep.

    Attributes
    ----------
    rel_l2
        ‖out - ref‖ / ‖ref‖ over all elements.
    worst
        Largest ratio of an element's error to that element's own limit; at most 1 when it passes.
    rel_l2_limit
        Limit of ``rel_l2``.
    """

    rel_l2: float
    rel_l2_limit: float
    worst: float

    @property
    def passed(self) -> bool:
        """Whether it kept both limits."""
        return 0 <= self.rel_l2 <= self.rel_l2_limit and 0 <= self.worst <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOutcome:
    """What became of one arm in one row.

    Attributes
    ----------
    status
        ``measured``: right, and it has samples. ``unsupported``: it said why it cannot do the row. ``failed``: it
        raised, was wrong or could not be timed. Only ``measured`` arms have samples.
    reason
        Why there is no time; empty when measured.
    note
        What it chose for this row: ``plan 3 of 5``.
    check
        The comparison with the reference, where one was made.
    """

    status: Literal["measured", "unsupported", "failed"]
    reason: str = ""
    note: str = ""
    check: Check | None = None

    def __post_init__(self) -> None:
        if (self.status == "measured") != (not self.reason):
            raise RunFileError(
                f"an arm has a reason exactly when it has no time, got {self.status} with {self.reason!r}"
            )
        if self.status == "measured" and not (self.check and self.check.passed):
            raise RunFileError(f"a measured arm must have a check that it passed, got {self.check}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """A paired group that was measured and thrown away, with what it had measured.

    Attributes
    ----------
    attempt
        How often the row had been started before, without an arm that then failed.
    arm
        Whose sample was the reason; empty where it was the machine.
    span_ns
        Arm -> its time in the group; ``None`` where there was none that could be one.
    """

    attempt: int
    group: int
    arm: str
    reason: str
    span_ns: dict[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """What the driver said of the GPU right after a paired group.

    Attributes
    ----------
    throttle
        Names of the reasons that held the clock down, e.g. ``power cap``; empty when none did.
    """

    clock_mhz: int
    power_w: float
    temperature_c: int
    throttle: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case, measured on one machine in one regime.

    Attributes
    ----------
    machine
        Index into the run's machines; a row is never split over two.
    n_groups
        Paired groups that count, over the arms that ran.
    skipped
        Why the whole row was not tried (it does not fit in memory); empty otherwise.
    states
        The GPU's state after each group; empty where no driver tells.
    records
        What became of the tracer's records (seen, attributed, orphans, ...); empty for a timer without records.
    kernels
        Arm -> each set of kernels, memsets and copies that one of its calls launched, as ``name x count``.
    """

    case: Case
    machine: int
    regime: str
    n_groups: int
    arms: dict[str, ArmOutcome]
    samples: Samples = field(default_factory=Samples)
    discarded: tuple[Discarded, ...] = ()
    skipped: str = ""
    states: tuple[GroupState, ...] = ()
    records: dict[str, int | None] = field(default_factory=dict)
    kernels: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        timed = set(self.samples.arm)
        measured = {name for name, outcome in self.arms.items() if outcome.status == "measured"}
        if timed != measured:
            raise self._error(f"arms with samples {sorted(timed)} must be the measured {sorted(measured)}")
        if self.skipped and timed:
            raise self._error(f"a skipped row must have no samples, got {len(self.samples)} and {self.skipped!r}")
        tried = sum(outcome.status != "unsupported" for outcome in self.arms.values())
        if max(self.samples.position, default=-1) >= tried:
            raise self._error(f"position must be below the {tried} arms tried, got {max(self.samples.position)}")
        for entry in (entry for sets in self.kernels.values() for one in sets for entry in one):
            if not _LAUNCHED.fullmatch(entry):
                raise self._error(f"kernels must be written as 'name x count', got {entry!r}")
        for arm in measured:
            groups, places = zip(*self.samples.by_group(arm), strict=True)
            if list(groups) != list(range(self.n_groups)):
                raise self._error(f"{arm} must have one sample a group of {self.n_groups}, got {list(groups)}")
            if len({self.samples.busy_ns[place] is None for place in places}) > 1:
                raise self._error(f"{arm} must have busy_ns in all of its samples or in none")

    def _error(self, text: str) -> RunFileError:
        return RunFileError(f"row {self.case.case_id!r}: {text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How fast a machine does one kind of work: calls of a known amount, timed as rows are in boost.

    Attributes
    ----------
    amount
        Bytes that one call reads, or floating-point operations that it does.
    samples, discarded, states, records, kernels
        As in :class:`Row`.
    """

    amount: int
    samples: Samples
    discarded: tuple[Discarded, ...] = ()
    states: tuple[GroupState, ...] = ()
    records: dict[str, int | None] = field(default_factory=dict)
    kernels: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.amount < 1:
            raise RunFileError(f"amount of a rate must be >= 1, got {self.amount}")
        if len(self.samples) < RATE_SAMPLES:
            raise RunFileError(f"a rate must have at least {RATE_SAMPLES} samples, got {len(self.samples)}")

    @property
    def per_s(self) -> float:
        """The amount over the median span, a second."""
        return 1e9 * self.amount / median(self.samples.span_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a machine of the run can do, measured on it before its rows; the floors of its rows follow.

    Attributes
    ----------
    machine
        Index into the run's machines.
    plain_read
        Memory that is read and not kept; in bytes.
    dense_mm
        One dense BF16 product of square matrices by ``torch.mm``; in floating-point operations.
    """

    machine: int
    plain_read: Rate
    dense_mm: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCount:
    """How many rows a suite has in one operation and row class, before any filter."""

    suite: str
    op: str
    row_class: str
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise RunFileError(f"suite_counts of {self.suite!r}, {self.op}: count must be >= 1, got {self.count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """The other revision of ``cake_kernels`` that a run measured beside its own.

    Attributes
    ----------
    revision
        A commit and where it came from: ``1a2b3c4 (git)``, ``unknown``.
    sources_sha256
        As in :class:`Run`.
    controls
        The :func:`row_key` of every planned row that runs the same program in both revisions.
    """

    revision: str
    sources_sha256: str
    controls: tuple[str, ...]

    def __post_init__(self) -> None:
        _refuse_other_than_sha256("previous.sources_sha256", self.sources_sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """One time that the command ran: from the start, or from a ``--resume``, to the last row that it saved.

    Attributes
    ----------
    started
        UTC, ISO 8601, seconds.
    elapsed_ns
        Host time from the first of its rows to the last, which is in it; rates are measured before it.
    rows
        How many of the run's rows it measured; they follow those of the sitting before.
    """

    started: str
    elapsed_ns: int
    rows: int

    def __post_init__(self) -> None:
        for name in ("elapsed_ns", "rows"):
            if getattr(self, name) < 1:
                raise RunFileError(f"{name} of a sitting must be >= 1, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that one run recorded.

    Attributes
    ----------
    run_id
        Name of the run file without ``.json``.
    started
        UTC, ISO 8601, seconds.
    revision
        Of the measured tree, and where it came from: ``1a2b3c4 (git)``, ``unknown``.
    timer, protocol, regimes
        How times came about; one timer a run.
    heading
        What the timer says its numbers are.
    seed
        Of the inputs.
    planned
        The :func:`row_key` of every row that the run set out to measure, in order.
    suite_counts
        The size of each suite's classes, so that a table can say "n of".
    sources_sha256
        Of ``cake_kernels``: the SHA-256 of the lines ``<SHA-256 of a file>  <its path in the package>``, sorted by
        path, as ``sha256sum`` writes them. Empty where it is not known.
    previous
        The other revision of ours, where one was loaded.
    rates
        One a machine that measured rows, where floors were asked for; else empty.
    sittings
        What the rows took; those before the first of them, in an older file, took nobody knows how long.
    """

    schema_version: int = SCHEMA_VERSION
    method_version: int = METHOD_VERSION
    run_id: str
    started: str
    revision: str
    timer: str
    heading: str
    protocol: str
    regimes: tuple[str, ...]
    groups: int
    seed: int
    arms: tuple[ArmInfo, ...]
    machines: tuple[Machine, ...]
    planned: tuple[str, ...]
    suite_counts: tuple[SuiteCount, ...]
    sources_sha256: str = ""
    previous: Previous | None = None
    rates: tuple[Rates, ...] = ()
    sittings: tuple[Sitting, ...] = ()
    rows: tuple[Row, ...] = ()

    def __post_init__(self) -> None:
        if not _RUN_ID.fullmatch(self.run_id):
            raise RunFileError(
                f"run_id must be 1 to 100 letters, digits, '.', '_', '-' or '+', the first no '.', got {self.run_id!r};"
                " choose one with --run-id"
            )
        if self.groups < 1:
            raise self._error(f"groups must be >= 1, got {self.groups}")
        self._refuse_twice("arm", [arm.name for arm in self.arms])
        self._refuse_twice("planned row", self.planned)
        self._refuse_twice("row", [row_key(row.regime, row.case) for row in self.rows])
        names = {arm.name for arm in self.arms}
        self._refuse_unknown("twin_of", {arm.twin_of for arm in self.arms if arm.twin_of}, names)
        if self.sources_sha256:
            _refuse_other_than_sha256("sources_sha256", self.sources_sha256)
        if self.previous:
            self._refuse_unknown("previous.controls", set(self.previous.controls), set(self.planned))
        self._refuse_twice("machine of rates", [str(rates.machine) for rates in self.rates])
        for rates in self.rates:
            self._refuse_impossible_rates(rates)
        if (timed := sum(sitting.rows for sitting in self.sittings)) > len(self.rows):
            raise self._error(f"sittings must have at most the {len(self.rows)} rows of the run, got {timed}")
        for row in self.rows:
            self._refuse_impossible(row, names)

    def only(self, globs: Sequence[str]) -> Run:
        """Return the run with those planned and measured rows whose name matches one of ``globs``.

        It has no sittings, which are of all rows.
        """

        def keeps(key: str) -> bool:
            _regime, _suite, case_id = key.split("/", 2)
            return any(matches(case_id, glob) for glob in globs)

        previous = self.previous
        if previous:
            previous = replace(previous, controls=tuple(filter(keeps, previous.controls)))
        rows = tuple(row for row in self.rows if keeps(row_key(row.regime, row.case)))
        planned = tuple(filter(keeps, self.planned))
        return replace(self, planned=planned, rows=rows, previous=previous, sittings=())

    def without(self, arms: Collection[str]) -> Run:
        """Return the run with all arms but ``arms``; its rows stay, with their groups where another arm has a time.

        It has no sittings, whose time those took too.

        Raises
        ------
        RunFileError
            It has no such arm, or one that stays is the twin of one that goes.
        """
        self._refuse_unknown("arm to leave out", set(arms), {arm.name for arm in self.arms})
        stay = tuple(arm for arm in self.arms if arm.name not in arms)
        return replace(self, arms=stay, rows=tuple(_without(row, arms) for row in self.rows), sittings=())

    def rates_of(self, machine: int) -> Rates | None:
        """Return the rates of the machine with this index; None where floors were not asked for."""
        return next((rates for rates in self.rates if rates.machine == machine), None)

    def _refuse_impossible_rates(self, rates: Rates) -> None:
        self._refuse_unknown_machine("rates: ", rates.machine)
        machine = self.machines[rates.machine]
        least_ns = {
            "plain_read": machine.least_ns(num_bytes=rates.plain_read.amount),
            "dense_mm": machine.least_ns(flops=rates.dense_mm.amount),
        }
        for name, rate in (("plain_read", rates.plain_read), ("dense_mm", rates.dense_mm)):
            where = f"rates of machine {rates.machine}: {name}: "
            self._refuse_unknown(f"{where}arm", set(rate.samples.arm), {name})
            self._refuse_too_short(where, rate.samples, least_ns[name], "its amount needs at this machine's peak")

    def _refuse_impossible(self, row: Row, names: set[str]) -> None:
        where = f"row {row.case.case_id!r}: "
        self._refuse_unknown_machine(where, row.machine)
        if self.rates and self.rates_of(row.machine) is None:
            raise self._error(f"{where}machine {row.machine} must have rates, as others of the run do, got none")
        self._refuse_unknown(f"{where}regime", {row.regime}, set(self.regimes))
        self._refuse_unknown(f"{where}planned row", {row_key(row.regime, row.case)}, set(self.planned))
        self._refuse_unknown(f"{where}arms", row.arms.keys(), names)
        self._refuse_unknown(f"{where}kernels", row.kernels.keys(), names)
        for thrown in row.discarded:
            self._refuse_unknown(f"{where}discarded", {thrown.arm, *thrown.span_ns} - {""}, names)
        floor_ns = self.machines[row.machine].floor_ns(row.case)
        self._refuse_too_short(where, row.samples, floor_ns, "the row's FLOPs and bytes need on this machine")

    def _refuse_too_short(self, where: str, samples: Samples, least_ns: int, why: str) -> None:
        for index, span in enumerate(samples.span_ns):
            if span < least_ns:
                raise self._error(
                    f"{where}samples.span_ns[{index}] must be >= {least_ns}, the least time that {why}; got {span}"
                )

    def _refuse_unknown_machine(self, where: str, machine: int) -> None:
        if not 0 <= machine < len(self.machines):
            raise self._error(f"{where}machine must be in 0..{len(self.machines) - 1}, got {machine}")

    def _refuse_twice(self, what: str, names: Sequence[str]) -> None:
        if len(set(names)) != len(names):
            raise self._error(f"a {what} stands twice: {sorted({name for name in names if names.count(name) > 1})}")

    def _refuse_unknown(self, what: str, names: Set[str], known: Set[str]) -> None:
        if unknown := sorted(names - known):
            raise self._error(f"{what} must be one of the run's {sorted(known)}, got {unknown[0]!r}")

    def _error(self, text: str) -> RunFileError:
        return RunFileError(f"run {self.run_id}: {text}")


def _without(row: Row, arms: Collection[str]) -> Row:
    """Return the row with all arms but ``arms``; a group thrown away for one of these keeps its reason."""

    def others(of: Mapping[str, _Of]) -> dict[str, _Of]:
        return {name: value for name, value in of.items() if name not in arms}

    thrown = (
        replace(one, arm="" if one.arm in arms else one.arm, span_ns=others(one.span_ns)) for one in row.discarded
    )
    samples = row.samples.without(arms)
    return replace(
        row,
        n_groups=row.n_groups if samples.arm else 0,
        arms=others(row.arms),
        samples=samples,
        discarded=tuple(thrown),
        states=row.states if samples.arm else (),
        kernels=others(row.kernels),
    )


def _refuse_other_than_sha256(what: str, value: str) -> None:
    if not _SHA256.fullmatch(value):
        raise RunFileError(f"{what} must be 64 hex digits, got {value!r}")


def row_key(regime: str, case: Case) -> str:
    """Return what identifies a row within a run."""
    return f"{regime}/{case.suite}/{case.case_id}"
