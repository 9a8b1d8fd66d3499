"""One run that holds both sides: the arms ``cake_*`` and ``previous_*`` of the same paired groups.

Drift of clock and heat meets both sides alike, so that an exact test of the two samples means what it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from math import comb

from harness.compare.comparison import ComparedRow, Comparison, Lane, Limits, Revision, RowId, ordered
from harness.compare.judge import FEWEST_GROUPS, Evidence, judge, judge_one_sided
from harness.compare.rows import (
    compared_row,
    effect_of,
    geomeans,
    host_bound,
    lane,
    one_sided_row,
    ratio_of,
    row_id,
    row_id_of_key,
)
from harness.compare.side import Side, side_of
from harness.errors import NothingMeasured
from harness.model.figures import CLOCK_APART
from harness.model.report import PREVIOUS_OF
from harness.model.run import Run, row_key
from harness.stats import PairedTest, benjamini_hochberg, mann_whitney_u, minimum_effect, paired_tests, ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One row with both sides."""

    id: RowId
    base: Side
    head: Side
    control: bool

    @property
    def has_both(self) -> bool:
        """Whether both sides have a time."""
        return self.base.status == self.head.status == "measured"

    @property
    def groups(self) -> int:
        """Groups that both sides have a time in."""
        return min(len(self.base.span_ns), len(self.head.span_ns))

    @property
    def testable(self) -> bool:
        """Whether the row belongs to the false-discovery family: decided before any time is looked at."""
        enough = self.groups >= FEWEST_GROUPS
        return self.has_both and enough and not self.control and not host_bound(self.base, self.head)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What the exact tests say of a row beside all the others."""

    p: float
    q: float
    q_in_reach: float
    superiority: float
    paired: PairedTest


def compare_interleaved(run: Run, *, arms: Set[str] = frozenset(), limits: Limits) -> Comparison:
    """Return the comparison of the previous revision (BASE) with the measured one (HEAD) within ``run``.

    A row's test is whether the ratio lies beyond the floor: the exact minimum-effect test of the two samples of spans.
    To ask only whether there is any difference would name a row on one night in twenty on which there is none, and more
    where others have a small one: these would be discoveries, and allow the noisy rows false ones. Groups in which both
    sides move together (drift) make it less likely to find something, never more.

    Parameters
    ----------
    arms
        Only these arms of ours; empty: all.

    Raises
    ------
    NothingMeasured
        The run does not hold both sides.
    """
    sides = [(ours, theirs) for ours, theirs in PREVIOUS_OF.items() if _holds(run, ours, theirs, arms)]
    if not sides or run.previous is None:
        asked = f" for {', '.join(sorted(arms))}" if arms else ""
        raise NothingMeasured(
            f"run {run.run_id} holds no two revisions: it must have an arm of ours and its previous_ one{asked},"
            f" got {', '.join(arm.name for arm in run.arms)};"
            " measure with cake-bench compare --measure REV, or give two runs"
        )
    pairs = [pair for ours, theirs in sides for pair in _pairs(run, ours, theirs)]
    tried = [pair for pair in pairs if not pair.base.status == pair.head.status == "absent"]
    tests = _tests([pair for pair in tried if pair.testable], limits)
    lanes = _lanes(tried, limits)
    moved = {lane.regime for lane in lanes if lane.moved}
    rows = [_row(pair, tests.get(pair.id), limits, lane_moved=pair.id.regime in moved) for pair in tried]
    lost = [row_id_of_key(key, ours) for ours, _ in sides for key in _lost(run)]
    rows += [one_sided_row(of, _NOT_MEASURED, _NOT_MEASURED) for of in lost]
    fewest = min((pair.groups for pair in tried if pair.testable), default=None)
    every = ordered(rows)
    return Comparison(
        form="interleaved",
        base=Revision(run_id=run.run_id, revision=run.previous.revision, sources_sha256=run.previous.sources_sha256),
        head=Revision(run_id=run.run_id, revision=run.revision, sources_sha256=run.sources_sha256),
        products=tuple(dict.fromkeys(run.machines[row.machine].product for row in run.rows)),
        timers=(run.heading,),
        limits=limits,
        rows=every,
        geomeans=geomeans(every),
        lanes=lanes,
        tested=len(tests),
        fewest_groups=fewest,
        lone_q=min(1.0, len(tests) * smallest_p(fewest)) if fewest else None,
        enough_groups=enough_groups(len(tests), limits.q) if fewest else None,
        matched=sum(pair.base.status != "absent" and pair.head.status != "absent" for pair in tried),
        untried=len(pairs) - len(tried),
        base_names=tuple(pair.id.case_id for pair in tried if pair.base.status != "absent"),
        head_names=tuple(pair.id.case_id for pair in tried if pair.head.status != "absent"),
    )


def smallest_p(groups: int) -> float:
    """Return the smallest two-sided p of the exact test with ``groups`` a side: 2 / C(2n, n), at most 1."""
    return min(1.0, 2 / comb(2 * groups, groups))


def enough_groups(rows: int, q: float) -> int:
    """Return the fewest groups a side with which one changed row among ``rows`` can reach ``q``."""
    return next(n for n in range(FEWEST_GROUPS, 1000) if rows * smallest_p(n) <= q)


_NOT_MEASURED = Side(status="absent", why="planned, and not measured; go on with cake-bench run --resume")


def _holds(run: Run, ours: str, theirs: str, arms: Set[str]) -> bool:
    return {ours, theirs} <= {arm.name for arm in run.arms} and (not arms or ours in arms)


def _pairs(run: Run, ours: str, theirs: str) -> Iterator[Pair]:
    controls = set(run.previous.controls) if run.previous else set()
    for row in run.rows:
        yield Pair(
            id=row_id(row.regime, row.case, ours),
            base=side_of(row, theirs),
            head=side_of(row, ours),
            control=row_key(row.regime, row.case) in controls,
        )


def _lost(run: Run) -> list[str]:
    """Return the planned rows that the run does not have."""
    done = {row_key(row.regime, row.case) for row in run.rows}
    return [key for key in run.planned if key not in done]


def _tests(pairs: Sequence[Pair], limits: Limits) -> dict[RowId, Tested]:
    """Return the tests of all rows of the family."""
    found = [minimum_effect(pair.head.span_ns, pair.base.span_ns, limits.floor) for pair in pairs]
    p_values = [test.p_value for test in found]
    q_values = benjamini_hochberg(p_values)
    paired = paired_tests([ratios(pair.base.span_ns, pair.head.span_ns) for pair in pairs])
    return {
        pair.id: Tested(
            p=test.p_value,
            q=q,
            superiority=mann_whitney_u(pair.head.span_ns, pair.base.span_ns).superiority,
            q_in_reach=benjamini_hochberg([*p_values[:place], test.min_p_value, *p_values[place + 1 :]])[place],
            paired=paired[place],
        )
        for place, (pair, test, q) in enumerate(zip(pairs, found, q_values, strict=True))
    }


def _lanes(pairs: Sequence[Pair], limits: Limits) -> tuple[Lane, ...]:
    """Return for each regime how far the controls moved."""
    found: dict[str, list[float]] = {}
    for pair in pairs:
        if pair.control and pair.has_both and not host_bound(pair.base, pair.head):
            effect = effect_of(pair.base.span_ns, pair.head.span_ns, limits)
            if effect:
                found.setdefault(pair.id.regime, []).append(effect.ratio)
    return tuple(lane(regime, "controls, which run the same program on both sides", r) for regime, r in found.items())


def _confirmed_in_cycles(pair: Pair, limits: Limits) -> bool:
    """Return whether cycles differ too, be it not by the floor; asked where the clocks differ by more than 1 %.

    Where the whole difference is the clock's, their ratio is 1 but for noise, and would name either side.
    """
    base, head = pair.base.clock_mhz, pair.head.clock_mhz
    if base is None or head is None or max(base, head) <= (1 + CLOCK_APART) * min(base, head):
        return True
    in_cycles = effect_of(pair.base.cycles, pair.head.cycles, limits)
    return in_cycles is not None and in_cycles.excludes_one


def _row(pair: Pair, tested: Tested | None, limits: Limits, *, lane_moved: bool) -> ComparedRow:
    if judge_one_sided(pair.base, pair.head):
        return one_sided_row(pair.id, pair.base, pair.head)
    effect = effect_of(pair.base.span_ns, pair.head.span_ns, limits)
    evidence = Evidence(
        effect=effect,
        confirmed=tested is not None and tested.q <= limits.q,
        in_reach=tested is None or tested.q_in_reach <= limits.q,
        cycles=ratio_of(pair.base.cycles, pair.head.cycles),
        cycles_confirmed=_confirmed_in_cycles(pair, limits),
        busy=ratio_of(pair.base.busy_ns, pair.head.busy_ns),
        host_bound=host_bound(pair.base, pair.head),
        lane_moved=lane_moved,
    )
    row = compared_row(pair.id, judge(evidence, limits), evidence, pair.base, pair.head, control=pair.control)
    if tested is None:
        return row
    return replace(
        row,
        p=tested.p,
        q=tested.q,
        q_in_reach=tested.q_in_reach,
        superiority=tested.superiority,
        paired=tested.paired,
    )
