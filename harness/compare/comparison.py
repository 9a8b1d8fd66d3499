"""Comparison: what ``cake-bench compare`` says, as numbers and words; one entry a row and arm.

Every ratio is BASE / HEAD of what a call costs: above 1, HEAD is faster. ``None`` stands for what is not known.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from harness.stats import PairedTest

Verdict = Literal["slower", "failed", "missing", "not comparable", "faster", "unclear", "new", "same"]
Reason = Literal[
    "effect",
    "below-floor",
    "spread",
    "clock",
    "few-groups",
    "cannot-reach",
    "host-bound",
    "lane-moved",
    "environment",
    "method",
    "wrong-result",
    "oom",
    "no-baseline",
]

VERDICTS: tuple[Verdict, ...] = (
    "slower",
    "failed",
    "missing",
    "not comparable",
    "faster",
    "unclear",
    "new",
    "same",
)
"""In the order of pages: what somebody must look at comes first."""

CONCLUSIVE: tuple[Verdict, ...] = ("slower", "faster", "same")
"""Verdicts that a comparison has come to; without one of them nothing was compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a verdict is held against.

    Attributes
    ----------
    floor
        What an effect must exceed to count, and be known to: 0.01 is a ratio above 1.01 or below 1 / 1.01.
    q
        Largest false-discovery rate at which a row is called faster or slower: of effects beyond the floor.
    confidence
        Of the interval of each row's ratio.
    """

    floor: float = 0.01
    q: float = 0.05
    confidence: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A row's ratio BASE / HEAD with its interval, which is 0 to infinity where groups are too few to bound it."""

    ratio: float
    low: float
    high: float

    @property
    def bounded(self) -> bool:
        """Whether the interval says something."""
        return self.low > 0 and math.isfinite(self.high)

    @property
    def excludes_one(self) -> bool:
        """Whether the interval lies wholly on one side of 1."""
        return not self.low <= 1 <= self.high

    def within(self, floor: float) -> bool:
        """Whether the whole interval lies within 1 / (1 + floor) and 1 + floor."""
        return 1 / (1 + floor) <= self.low and self.high <= 1 + floor

    def beyond(self, floor: float) -> bool:
        """Whether the whole interval lies above 1 + floor, or below 1 / (1 + floor)."""
        return self.low > 1 + floor or self.high < 1 / (1 + floor)

    def widened(self, factor: float) -> Effect:
        """Return it with both ends ``factor`` (at least 1) times further away."""
        return Effect(ratio=self.ratio, low=self.low / factor, high=self.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One fact that differs between the two sides.

    Attributes
    ----------
    field
        Its name, which ``--allow`` takes.
    role
        ``refused``: such rows are not comparable. ``allowed``: they would be, but for ``--allow``. ``shown``: it does
        not matter.
    """

    field: str
    base: str
    head: str
    role: Literal["refused", "allowed", "shown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowId:
    """What names a row on both sides, and the arm of ours that is compared in it."""

    regime: str
    suite: str
    op: str
    name: str
    arm: str

    @property
    def case_id(self) -> str:
        """Operation and name, as in a run file."""
        return f"{self.op} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """One row and arm with its verdict.

    Attributes
    ----------
    detail
        Why, in words; may be empty.
    against
        The baseline arm whose time divides ours on both sides; empty where both sides ran interleaved.
    effect, cycles, busy
        Ratio of times with its interval, of cycles, of busy times.
    p, q, q_in_reach
        Exact p of a ratio within the floor, the Benjamini-Hochberg q over the rows tested, and the smallest q that this
        row could have reached beside the others; None where no test was made.
    superiority
        How often a group of HEAD is faster than one of BASE, over all pairs of groups; None likewise.
    paired
        The same groups pair by pair, without a floor; None likewise. No verdict depends on it.
    n_base, n_head
        Groups behind each side.
    base_ns, head_ns, base_mhz, head_mhz
        Each side's median span and clock.
    control
        Both sides run the same program.
    """

    id: RowId
    verdict: Verdict
    reason: Reason
    detail: str = ""
    against: str = ""
    effect: Effect | None = None
    cycles: float | None = None
    busy: float | None = None
    p: float | None = None
    q: float | None = None
    q_in_reach: float | None = None
    superiority: float | None = None
    paired: PairedTest | None = None
    n_base: int = 0
    n_head: int = 0
    base_ns: float | None = None
    head_ns: float | None = None
    base_mhz: float | None = None
    head_mhz: float | None = None
    control: bool = False

    @property
    def size(self) -> float:
        """How far the ratio is from 1, either way."""
        return abs(math.log(self.effect.ratio)) if self.effect else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Geomean:
    """Geomean of the ratios of one regime, arm and operation, over the rows that both sides have.

    Attributes
    ----------
    value, low, high
        None where no row has a ratio that is one. The latter two are the lowest and the highest row.
    n, expected_n
        Rows in it, and rows that either side has.
    interval_low, interval_high, seed
        95 % interval by a bootstrap over the rows, from that seed; None where there are too few rows for one.
    failures
        Rows whose ratio is zero, infinite or not a number, and is in none of these, in words.
    """

    regime: str
    arm: str
    op: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    expected_n: int
    interval_low: float | None
    interval_high: float | None
    seed: int
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How far ratios of baselines moved between two runs: nothing of ours is in them.

    Attributes
    ----------
    ratios
        How many there are.
    largest, largest_cycles
        The furthest, as a part: 0.021 is a ratio of 1.021 or 1 / 1.021. The latter of cycles; None where not known.
    """

    regime: str
    ratios: int
    largest: float
    largest_cycles: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What should not have moved, and how far it did: controls, or a baseline on the board of both runs.

    Attributes
    ----------
    value
        Geomean of BASE / HEAD over ``rows``.
    """

    regime: str
    what: str
    value: float
    rows: int
    moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One side: the run, the revision measured, the SHA-256 of its sources (empty where unknown).

    Attributes
    ----------
    file
        The run file as it was given, where both sides' runs have one name; else empty.
    """

    run_id: str
    revision: str
    sources_sha256: str
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All rows, those that matter first, and what they were judged by.

    Attributes
    ----------
    form
        ``interleaved``: both sides ran in the same paired groups. ``stored``: two runs.
    products
        Models of device.
    timers
        What each timer says its numbers are.
    tested
        Rows in the false-discovery family.
    fewest_groups
        Groups a side of the tested row that has the fewest; None where no row was tested.
    lone_q
        The smallest q that such a row could reach if it alone had changed.
    enough_groups
        Groups a side with which it could reach the limit.
    matched
        Rows that both sides name; 0: the two have nothing in common.
    untried
        Rows that neither side can do.
    base_names, head_names
        Rows that each side names, as a run file does.
    """

    form: Literal["interleaved", "stored"]
    base: Revision
    head: Revision
    products: tuple[str, ...]
    timers: tuple[str, ...]
    limits: Limits
    rows: tuple[ComparedRow, ...]
    geomeans: tuple[Geomean, ...] = ()
    differences: tuple[Difference, ...] = ()
    noise: tuple[Noise, ...] = ()
    lanes: tuple[Lane, ...] = ()
    tested: int = 0
    fewest_groups: int | None = None
    lone_q: float | None = None
    enough_groups: int | None = None
    matched: int = 0
    untried: int = 0
    base_names: tuple[str, ...] = ()
    head_names: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Verdict, int]:
        """Rows by verdict, in the order of :data:`VERDICTS`, controls apart."""
        found = Counter(row.verdict for row in self.rows if not row.control)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def concluded(self) -> int:
        """Rows with a verdict that says faster, slower or same, controls apart."""
        return sum(self.counts[verdict] for verdict in CONCLUSIVE)


def ordered(rows: list[ComparedRow]) -> tuple[ComparedRow, ...]:
    """Return the rows: by verdict, what matters first, then by the size of the effect, then by name."""
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                VERDICTS.index(row.verdict),
                row.control,
                -row.size,
                row.id.regime != "sustained",
                row.id.regime,
                row.id.suite,
                row.id.case_id,
                row.id.arm,
            ),
        )
    )
