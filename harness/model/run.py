"""Run: everything that one ``cake-bench run`` recorded; its rows, arms, machines, and why something has no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from harness.errors import RunFileError
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.sample import Samples

SCHEMA_VERSION = 1
"""Version of the run file's form."""

METHOD_VERSION = 1
"""Version of how numbers come about. A change starts a new segment of history and is a commit of its own."""


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
            raise RunFileError(
                f"row {self.case.case_id!r}: arms with samples {sorted(timed)} must be the measured {sorted(measured)}"
            )
        for arm in measured:
            groups = [group for group, _ in self.samples.by_group(arm)]
            if groups != list(range(self.n_groups)):
                raise RunFileError(
                    f"row {self.case.case_id!r}: {arm} must have one sample a group of {self.n_groups}, got {groups}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCount:
    """How many rows a suite has in one operation and row class, before any filter."""

    suite: str
    op: str
    row_class: str
    count: int


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
    rows: tuple[Row, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if not 0 <= row.machine < len(self.machines):
                raise RunFileError(
                    f"row {row.case.case_id!r}: machine must be in 0..{len(self.machines) - 1}, got {row.machine}"
                )
            self._refuse_impossible(row)
        done = [row_key(row.regime, row.case) for row in self.rows]
        if len(set(done)) != len(done):
            raise RunFileError(
                f"run {self.run_id}: a row stands twice: {sorted({k for k in done if done.count(k) > 1})}"
            )

    def _refuse_impossible(self, row: Row) -> None:
        floor_ns = self.machines[row.machine].floor_ns(row.case)
        for index, span in enumerate(row.samples.span_ns):
            if span < floor_ns:
                raise RunFileError(
                    f"row {row.case.case_id!r}: samples.span_ns[{index}] must be >= {floor_ns}, the least time that the"
                    f" row's FLOPs and bytes need on this machine; got {span}"
                )


def row_key(regime: str, case: Case) -> str:
    """Return what identifies a row within a run."""
    return f"{regime}/{case.suite}/{case.case_id}"
