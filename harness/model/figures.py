"""Figures: what one row of a report says, as numbers: each arm's latency, the ratios, who is host-bound.

Every ratio is baseline / new: above 1, new is faster. ``None`` stands for what is not known; no field holds NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.case import Case
from harness.model.conditions import Discards
from harness.model.measured_floor import MeasuredFloor, closed_share
from harness.model.run import ArmOutcome

CLOCK_APART = 0.01
"""Where the clocks of new and baseline differ by more, time alone gives no verdict: cycles must agree with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One row's speedup against one baseline.

    Attributes
    ----------
    against
        Column: a role (``sota``, ``best_known``, ``previous``) or an arm's name.
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
    groups
        The group ratios, one tuple a card.
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
    groups: tuple[tuple[float, ...], ...]

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
class RowFloor:
    """How far new and SOTA are from the row's measured floor.

    Attributes
    ----------
    floor
        Its two times, the median over the cards.
    new, sota
        Latency over the floor; None without a time. Below 1, the arm was faster than the floor says anything can be: a
        rate was measured too low.
    """

    floor: MeasuredFloor
    new: float | None
    sota: float | None

    @property
    def closed(self) -> float | None:
        """(SOTA - new) / (SOTA - floor); None where one has no time, or SOTA is not above the floor."""
        return None if self.new is None or self.sota is None else closed_share(self.new, self.sota)

    @property
    def new_is_below(self) -> bool:
        """Whether new is below the floor."""
        return self.new is not None and self.new < 1

    @property
    def sota_is_below(self) -> bool:
        """Whether SOTA is below the floor."""
        return self.sota is not None and self.sota < 1


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
    control
        Both revisions of ours run the same program; such a row is in no geomean and no count of *previous*.
    floor
        Where every run that has a time in it measured its machine's rates, and the row does any work.
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
    control: bool
    floor: RowFloor | None = None

    def figure(self, arm: str) -> ArmFigure | None:
        """Return what is known of ``arm`` in this row."""
        return next((figure for figure in self.figures if figure.arm == arm), None)

    def ratio(self, against: str) -> Ratio | None:
        """Return the ratio in the column ``against``."""
        return next((ratio for ratio in self.ratios if ratio.against == against), None)
