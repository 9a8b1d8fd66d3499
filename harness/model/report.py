"""Report: everything that a page shows, as numbers and names; a pure function of one or several runs.

Every ratio is baseline / new: above 1, new is faster. ``None`` stands for what is not known; no field holds NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.case import Case
from harness.model.conditions import ClockEnergy, GpuStates, Launches, RecordCount
from harness.model.cost import Cost
from harness.model.figures import Ratio, ReportRow
from harness.model.machine import Machine
from harness.model.measured_floor import closed_share
from harness.model.run import ArmInfo, Rates

SOTA = "sota"
"""Role: in each row the fastest of t, c and d that has a time."""

SOTA_ARMS = ("torch_grouped_mm", "cublas_loop", "cudnn")
"""t, c and d; of two equally fast ones the earlier is SOTA."""

BEST_KNOWN = "best_known"
"""Role: in each row the fastest of all arms that are not ours."""

PREVIOUS = "previous"
"""Role: new in another revision of ours, loaded beside this one."""

PREVIOUS_OF = {"cake_nondet": "previous_nondet", "cake_det": "previous_det"}
"""New -> the arm that is *previous*: the same variant."""

STEP_BASELINE = "cublas_loop_autograd"
"""a: what a trainer writes by hand. SOTA has no loop for a step, so that this arm has a column of its own there."""

Metric = Literal["span", "busy"]

LimitKind = Literal["failed", "unsupported", "skipped", "other-regime", "host-bound", "no-ratio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRates:
    """What one machine could do in one run."""

    run_id: str
    rates: Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """What one run took on one machine.

    Attributes
    ----------
    run_rows
        Rows of the run; more than the cost is of where it has rows of another machine, or from before sittings were
        kept.
    """

    run_id: str
    cost: Cost
    run_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One machine and the runs that met it.

    Attributes
    ----------
    device
        The model, product and architecture: cards of one model pool, different models never do.
    groups
        The counts of paired groups that its rows have, each once, ascending.
    regimes
        Those in which it has a time, in the order of pages.
    states
        What its driver said after the groups, one a regime; empty where no driver tells.
    rates
        One a run that measured them.
    costs
        One a run that kept what its rows here took.
    """

    device: str
    machine: Machine
    run_ids: tuple[str, ...]
    groups: tuple[int, ...]
    regimes: tuple[str, ...]
    states: tuple[GpuStates, ...]
    rates: tuple[RunRates, ...]
    costs: tuple[RunCost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Geomean:
    """Geometric mean of the ratios of one suite's operation and row class.

    Attributes
    ----------
    value, low, high
        The mean, and the least and largest row in it; None without a row.
    n, expected_n
        Rows in it, and rows that the suite has in this class.
    spread
        Median of its rows' spreads; None where no row has the groups that a spread needs, and for busy times.
    """

    device: str
    regime: str
    suite: str
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
    spread: float | None

    @property
    def effect(self) -> float | None:
        """How much faster the faster side is: 0.25 for a mean of 1.25 as for one of 0.8."""
        return None if self.value is None else max(self.value, 1 / self.value) - 1

    @property
    def within_spread(self) -> bool:
        """Whether the rows' groups scatter by more than the whole effect."""
        return self.effect is not None and self.spread is not None and self.spread > self.effect


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRatio:
    """A row and its ratio in one column."""

    row: ReportRow
    ratio: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How the rows of one device and regime stand in one column, but host-bound ones, and controls in *previous*.

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
    chance_high
        How high the highest row would be then, by the rows' own noise; the lowest would be at 1 / ``chance_high``. None
        where fewer than two rows have the groups that it takes.
    spread_median, spread_p90, spread_rows
        Of the spreads that stand for noise, and how many rows have one.
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
    chance_high: float | None
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
class FloorStanding:
    """How far the rows of one suite's operation are from their measured floors.

    Attributes
    ----------
    rows
        Rows that have a floor.
    n
        Rows in the means: those with a time of new and of SOTA that are not host-bound.
    new, sota
        Geometric means of latency / floor; None without a row.
    new_below, sota_below
        How many of ``rows`` are below their floor.
    """

    device: str
    regime: str
    suite: str
    op: str
    rows: int
    n: int
    new: float | None
    sota: float | None
    new_below: int
    sota_below: int

    @property
    def closed(self) -> float | None:
        """(S - N) / (S - 1) of the two means; None without a row, or where SOTA's is at most 1."""
        return None if self.new is None or self.sota is None else closed_share(self.new, self.sota)


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
    previous_revision
        Of the other kernels of ours that were loaded beside it; empty where none were.
    notes
        What a reader must know before any number: ``sota``, where that column is not SOTA; ``revision``, where runs
        pool whose trees nobody can name; ``left_out``, arms that ran and are not here.
    floors
        One a device, regime, suite and operation that has rows with a floor.
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
    previous_revision: str
    notes: dict[str, str]
    run_ids: tuple[str, ...]
    seeds: tuple[int, ...]
    environments: tuple[Environment, ...]
    rows: tuple[ReportRow, ...]
    geomeans: tuple[Geomean, ...]
    standings: tuple[Standing, ...]
    floors: tuple[FloorStanding, ...]
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
