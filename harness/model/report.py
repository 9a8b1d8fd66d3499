"""Report: everything that a page shows, as numbers and names; a pure function of one or several runs.

Every ratio is baseline / new: above 1, new is faster. ``None`` stands for what is not known; no field holds NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.case import Case
from harness.model.conditions import ClockEnergy, Discards, GpuStates, Launches, RecordCount
from harness.model.machine import Machine
from harness.model.run import ArmInfo, ArmOutcome

SOTA = "sota"
"""Role: in each row the fastest of t, c and d that has a time."""

BEST_KNOWN = "best_known"
"""Role: in each row the fastest of all arms that are not ours."""

CLOCK_APART = 0.01
"""Where the clocks of new and baseline differ by more, time alone gives no verdict: cycles must agree with it."""

Metric = Literal["span", "busy"]

LimitKind = Literal["failed", "unsupported", "skipped", "other-regime", "host-bound", "no-ratio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One machine and the runs that met it.

    Attributes
    ----------
    device
        The model, product and architecture: cards of one model pool, different models never do.
    groups
        The counts of paired groups that its rows have, each once, ascending.
    states
        What its driver said after the groups, one a regime; empty where no driver tells.
    """

    device: str
    machine: Machine
    run_ids: tuple[str, ...]
    groups: tuple[int, ...]
    states: tuple[GpuStates, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One row's speedup against one baseline.

    Attributes
    ----------
    against
        Column: a role (:data:`SOTA`, :data:`BEST_KNOWN`) or an arm's name.
    arm
        The arm behind it in this row.
    median
        Median of the group ratios, then over the cards.
    min, max
        Least and largest group ratio of all cards.
    n
        Group ratios behind it, over all cards.
    busy_median
        The same of busy times, where both arms have them.
    cycles_median
        The same of cycles, where both arms have clocks.
    clock
        SM clock of new / SM clock of the baseline, the median likewise.
    spread
        (max - min) / median of the first six group ratios, the median over the cards; None for a single group.
    noise
        The same where at least five groups stand behind it.
    """

    against: str
    arm: str
    median: float
    min: float
    max: float
    n: int
    busy_median: float | None
    cycles_median: float | None
    clock: float | None
    spread: float | None
    noise: float | None

    @property
    def clocks_apart(self) -> bool:
        """Whether the two arms' clocks differ by more than :data:`CLOCK_APART`."""
        return self.clock is not None and abs(self.clock - 1) > CLOCK_APART

    @property
    def cycles_disagree(self) -> bool:
        """Whether time names a faster arm and cycles do not name the same."""
        return self.cycles_median is not None and self.median != 1 and (self.median - 1) * (self.cycles_median - 1) <= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigure:
    """One arm in one row.

    Attributes
    ----------
    status
        ``measured`` if any card has a time, else ``failed`` if any card failed, else ``unsupported``.
    span_ns, busy_ns, clock_mhz, cycles
        Median over the groups, then over the cards. Cycles are span times the SM clock of that moment.
    joules
        Energy of one call, the flush before it included; the median likewise.
    calls
        Calls behind the figure, over all groups and cards.
    tflops
        The case's FLOPs over ``span_ns``, in TFLOP/s.
    gap
        (span - busy) / span, the median over the groups; of several cards the largest.
    outcomes
        What the runs say of it, one a run: reason, note and check.
    paired
        This arm / new; None for new itself, for a twin, and where the two never ran in one group.
    """

    arm: str
    status: Literal["measured", "unsupported", "failed"]
    outcomes: tuple[ArmOutcome, ...]
    span_ns: float | None = None
    busy_ns: float | None = None
    clock_mhz: float | None = None
    cycles: float | None = None
    joules: float | None = None
    calls: int | None = None
    tflops: float | None = None
    gap: float | None = None
    paired: Ratio | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One case in one regime on one model of device.

    Attributes
    ----------
    n
        Paired groups that count, over all cards.
    cards
        Machines that measured it.
    figures
        One for each arm that the runs say something of, in the report's order of arms.
    sota, best_known
        The arms in these roles.
    ratios
        At most one a column, in the order of the columns.
    aa
        Arm / its twin, one for each A/A pair: in them all that is not 1 is noise.
    host_bound
        Arms (twins apart) whose gap exceeds the limit; such a row is in no geomean.
    discarded
        Groups that were measured and thrown away.
    """

    device: str
    regime: str
    case: Case
    n: int
    cards: int
    figures: tuple[ArmFigure, ...]
    sota: str | None
    best_known: str | None
    ratios: tuple[Ratio, ...]
    aa: tuple[Ratio, ...]
    host_bound: tuple[str, ...]
    discarded: Discards

    def figure(self, arm: str) -> ArmFigure | None:
        """Return what is known of ``arm`` in this row."""
        return next((figure for figure in self.figures if figure.arm == arm), None)

    def ratio(self, against: str) -> Ratio | None:
        """Return the ratio in the column ``against``."""
        return next((ratio for ratio in self.ratios if ratio.against == against), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geomean:
    """Geometric mean of the ratios of one operation and row class.

    Attributes
    ----------
    value, low, high
        The mean, and the least and largest row in it; None without a row.
    n, expected_n
        Rows in it, and rows that the suites have in this class.
    """

    device: str
    regime: str
    op: str
    row_class: str
    new: str
    against: str
    metric: Metric
    value: float | None
    low: float | None
    high: float | None
    n: int
    expected_n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRatio:
    """A row and its ratio in one column."""

    row: ReportRow
    ratio: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How the rows of one device and regime stand in one column; host-bound rows are left out.

    Attributes
    ----------
    rows
        All that have a ratio, in table order.
    gains, regressions
        The up to five rows that are furthest above and below 1.0, the furthest first.
    above, below
        How many rows are above and below 1.0.
    wholly_above, wholly_below
        Rows whose every group ratio is.
    chance
        How many rows would be wholly above (and as many wholly below) if new and baseline were equally fast.
    spread_median, spread_p90, spread_rows
        Of the rows' noise figures, and how many rows have one.
    clock_rows
        Rows in which the clocks of both arms are known.
    clocks_apart
        Those in which they differ by more than :data:`CLOCK_APART`.
    cycles_disagree
        Those of ``clocks_apart`` in which cycles do not name the arm as faster that time names.
    """

    device: str
    regime: str
    against: str
    rows: tuple[RowRatio, ...]
    gains: tuple[RowRatio, ...]
    regressions: tuple[RowRatio, ...]
    above: int
    below: int
    wholly_above: tuple[RowRatio, ...]
    wholly_below: tuple[RowRatio, ...]
    chance: float
    spread_median: float | None
    spread_p90: float | None
    spread_rows: int
    clock_rows: int
    clocks_apart: tuple[RowRatio, ...]
    cycles_disagree: tuple[RowRatio, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AaStanding:
    """How an arm compares with itself over the rows of one device and regime: the noise floor of the run.

    Attributes
    ----------
    arm, twin
        The arm, and the name under which the same prepared call ran once more.
    rows
        Rows that have both; host-bound ones are left out, as from every count.
    value
        Geometric mean of arm / twin.
    within
        Rows at most ``limit`` away from 1.
    wholly_above, wholly_below
        Rows whose every group ratio is above or below 1; chance gives ``chance`` of each.
    p95
        Distance from 1 that 95 % of the rows do not exceed.
    largest
        The row furthest from 1.
    """

    device: str
    regime: str
    arm: str
    twin: str
    rows: int
    value: float
    limit: float
    within: int
    wholly_above: int
    wholly_below: int
    chance: float
    p95: float
    largest: RowRatio


@dataclass(frozen=True, slots=True, kw_only=True)
class RowName:
    """A row without its numbers."""

    device: str
    regime: str
    case: Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Rows in which something has no number, and why.

    Attributes
    ----------
    kind
        ``unsupported``, ``failed``: the arm's; ``skipped``: the whole row; ``other-regime``: left to
        another regime by a rule of this one; ``host-bound``: measured, and out of the geomeans; ``no-ratio``: new or
        every baseline of the column has no time.
    what
        The arm; for ``no-ratio`` the column, for ``other-regime`` the regime; empty for ``skipped``.
    """

    kind: LimitKind
    what: str
    reason: str
    rows: tuple[RowName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Rows that a run planned and has not: it was interrupted, or its time limit came first."""

    run_id: str
    planned: int
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that a page shows.

    Attributes
    ----------
    new
        The arm that the ratios divide by.
    columns
        What it is compared with, in order: roles and names of arms.
    arms
        All arms of the runs.
    heading
        What the timer says its numbers are.
    revision
        Of the measured tree; one for all runs.
    aa
        One a device, regime and A/A pair.
    clock_energy
        One a device, regime, operation and arm, where clock, energy or busy time is known.
    records
        What became of the tracer's records; empty for a timer without.
    launches
        What calls launch, one an arm that a tracer saw.
    limits
        Everything that has no number, in the order of its kinds.
    """

    new: ArmInfo
    columns: tuple[str, ...]
    arms: tuple[ArmInfo, ...]
    timer: str
    heading: str
    protocol: str
    method_version: int
    revision: str
    run_ids: tuple[str, ...]
    seeds: tuple[int, ...]
    environments: tuple[Environment, ...]
    rows: tuple[ReportRow, ...]
    geomeans: tuple[Geomean, ...]
    standings: tuple[Standing, ...]
    aa: tuple[AaStanding, ...]
    clock_energy: tuple[ClockEnergy, ...]
    records: tuple[RecordCount, ...]
    launches: tuple[Launches, ...]
    limits: tuple[Limit, ...]
    missing: tuple[Missing, ...]

    def arm(self, name: str) -> ArmInfo:
        """Return the arm ``name``, which must be one of the report's."""
        return next(arm for arm in self.arms if arm.name == name)

    def limits_of(self, *kinds: str) -> tuple[Limit, ...]:
        """Return the limits of these kinds."""
        return tuple(limit for limit in self.limits if limit.kind in kinds)
