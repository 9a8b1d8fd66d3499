"""How a report's numbers came about: the GPU's states, clocks and energy, discarded groups, the tracer's records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Least and largest of what was seen."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """In how many groups the driver named ``reason`` for a lower clock."""

    reason: str
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStates:
    """What the driver said of one machine right after its accepted groups, in one regime.

    Attributes
    ----------
    groups
        Accepted groups with a state.
    held
        Reasons that held the clock down, the most frequent first.
    """

    regime: str
    groups: int
    temperature_c: Range
    power_w: Range
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockEnergy:
    """Clock, energy and busy share of one arm over the rows of one operation; None for what no row has.

    Attributes
    ----------
    rows
        Rows in which the arm has a time.
    clock_mhz
        Median over the rows, and in ``clock_range`` the least and largest row.
    joules
        Median over the rows of the energy of one call, what the harness does between two calls included.
    joules_ratio
        Geometric mean over the rows of this arm's energy / new's: above 1, new takes less. None for new itself.
    watts
        Median over the rows of energy / span; above the board's power, for the reason that ``joules`` gives.
    busy_share
        Median over the rows of busy / span.
    """

    device: str
    regime: str
    op: str
    arm: str
    rows: int
    clock_mhz: float | None
    clock_range: Range | None
    joules: float | None
    joules_ratio: float | None
    watts: float | None
    busy_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Discards:
    """How many groups of a row were measured and thrown away, by reason.

    Attributes
    ----------
    invalid
        An arm had no time that can be one: a record was lost or could not be believed, or it was too short to be true.
    dry
        By events: the device was idle before a call was enqueued, so that the host would have been timed.
    throttled
        Something else than the power cap held the clock down.
    clock
        An arm's clock was off the same arm's in the other groups.
    restarted
        The group itself was good, but its row started again without an arm that failed.
    """

    invalid: int = 0
    dry: int = 0
    throttled: int = 0
    clock: int = 0
    restarted: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.invalid + self.dry + self.throttled + self.clock + self.restarted

    def __add__(self, other: Discards) -> Discards:
        return Discards(
            invalid=self.invalid + other.invalid,
            dry=self.dry + other.dry,
            throttled=self.throttled + other.throttled,
            clock=self.clock + other.clock,
            restarted=self.restarted + other.restarted,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCount:
    """How many of the tracer's records became ``name``, over all rows; None where one row could not say."""

    name: str
    count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """What one call of an arm launches, over all rows of single products or of one kind of step.

    Attributes
    ----------
    op
        ``ckpt`` or ``ckpt ES``; empty for the products, which launch alike.
    kernels, memsets, copies
        Least and largest count of a call.
    per_group
        Whether every call launches one kernel for each non-empty group of its row; of a step never.
    varying
        Rows in which calls of the arm launched different sets: the same work should launch the same.
    names
        The kernels, each once, as the tracer names them.
    """

    arm: str
    op: str
    rows: int
    kernels: Range
    memsets: Range
    copies: Range
    per_group: bool
    varying: int
    names: tuple[str, ...]
