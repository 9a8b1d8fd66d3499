"""Two stored runs: each side's ratio to one baseline in its own run, and how far baselines moved as the noise.

Between two runs lie hours, a board or a reboot, which no group within one run can show. So no p is given. What shows
the noise are the ratios of one baseline to another: nothing of ours is in them, and they moved all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from harness.compare.comparison import (
    ComparedRow,
    Comparison,
    Difference,
    Effect,
    Lane,
    Limits,
    Noise,
    Revision,
    RowId,
    ordered,
)
from harness.compare.environment import Measured, differences, reason_of, said
from harness.compare.judge import Evidence, Judgement, judge, judge_one_sided
from harness.compare.rows import compared_row, effect_of, geomeans, host_bound, lane, one_sided_row, ratio_of, row_id
from harness.compare.side import Side, side_of
from harness.errors import NothingMeasured, UnknownName
from harness.model.case import Case
from harness.model.report import PREVIOUS_OF
from harness.model.run import ArmInfo, Row, Run

NOISE_RATIOS = 19
"""Fewest baseline ratios that can show noise: a row that has not changed moves furthest of 20 once in 20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One row of one arm in two runs.

    Attributes
    ----------
    base_row, head_row
        What each run has of it.
    differences
        Between where and how the two were measured; empty where one side has no row.
    one_board
        One board, known by its name, measured both.
    """

    id: RowId
    base_row: Row | None
    head_row: Row | None
    differences: tuple[Difference, ...] = ()
    one_board: bool = False

    @property
    def refused(self) -> tuple[Difference, ...]:
        """What makes the two incomparable."""
        return tuple(difference for difference in self.differences if difference.role == "refused")

    @property
    def comparable(self) -> bool:
        """Whether both runs have the row, and nothing forbids to compare them."""
        return self.base_row is not None and self.head_row is not None and not self.refused

    def sides(self, arm: str) -> tuple[Side, Side]:
        """Return what BASE and HEAD say of ``arm`` in this row."""
        return side_of(self.base_row, arm), side_of(self.head_row, arm)

    def has(self, arm: str) -> bool:
        """Return whether ``arm`` has a time on both sides."""
        return all(side.status == "measured" for side in self.sides(arm))

    def over(self, arm: str, baseline: str) -> tuple[Side, Side]:
        """Return both sides of ``arm`` over those of ``baseline``; :meth:`has` must hold of either."""
        (base, head), (base_line, head_line) = self.sides(arm), self.sides(baseline)
        return base.over(base_line), head.over(head_line)


def compare_stored(
    base: Run,
    head: Run,
    *,
    arms: Sequence[str] = (),
    against: str | None = None,
    allow: Collection[str] = (),
    limits: Limits,
) -> Comparison:
    """Return the comparison of the arms of ours in ``head`` with the same arms in ``base``.

    A row is faster or slower where its interval, widened by the furthest that any ratio of baselines moved between the
    runs, lies wholly beyond the floor and, where the timer reads clocks, that of its cycles excludes 1: under a power
    limit another board moves the times of all arms, and not by the same. If an arm that has not changed moves as
    baselines do, chance alone names one row in K + 1 at most, K the ratios of baselines.

    Parameters
    ----------
    arms
        Compared arms; empty: all of ours that either run has.
    against
        The baseline; None: in each row the first of the runs' baselines that has a time on both sides.
    allow
        Names of :data:`harness.compare.environment.ALLOWABLE` that may differ.

    Raises
    ------
    NothingMeasured
        There is no arm to compare.
    UnknownName
        No run has such an arm.
    """
    infos = {arm.name: arm for run in (base, head) for arm in run.arms}
    compared = _compared_arms(infos, arms)
    if not compared:
        raise NothingMeasured(
            f"neither run has an arm of ours, they have {', '.join(infos)}; name the one to compare by --arm"
        )
    baselines = _baselines(infos, compared)
    if against is not None and against not in baselines:
        raise UnknownName("baseline of --against", against, baselines)
    rulers = baselines if against is None else (against,)
    pairs = [pair for arm in compared for pair in _pairs(base, head, arm, allow)]
    tried = [pair for pair in pairs if any(side.status != "absent" for side in pair.sides(pair.id.arm))]
    comparable = _one_a_row(pair for pair in tried if pair.comparable)
    noise = {found.regime: found for found in _noise(comparable, rulers, baselines)}
    lanes = _lanes(comparable, rulers)
    moved = {lane.regime for lane in lanes if lane.moved}
    rows = ordered(
        [_row(pair, rulers, noise.get(pair.id.regime), limits, lane_moved=pair.id.regime in moved) for pair in tried]
    )
    machines = [run.machines[row.machine] for run in (base, head) for row in run.rows]
    return Comparison(
        form="stored",
        base=Revision(run_id=base.run_id, revision=base.revision, sources_sha256=base.sources_sha256),
        head=Revision(run_id=head.run_id, revision=head.revision, sources_sha256=head.sources_sha256),
        products=tuple(dict.fromkeys(machine.product for machine in machines)),
        timers=tuple(dict.fromkeys((base.heading, head.heading))),
        limits=limits,
        rows=rows,
        geomeans=geomeans(rows),
        differences=_distinct(pairs),
        noise=tuple(noise.values()),
        lanes=lanes,
        matched=sum(pair.base_row is not None and pair.head_row is not None for pair in tried),
        untried=len(pairs) - len(tried),
        base_names=_names(base),
        head_names=_names(head),
    )


def _names(run: Run) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.case.case_id for row in run.rows))


def _compared_arms(infos: Mapping[str, ArmInfo], asked: Sequence[str]) -> tuple[str, ...]:
    ours = tuple(
        name for name, arm in infos.items() if arm.is_cake and not arm.twin_of and name not in PREVIOUS_OF.values()
    )
    for name in asked:
        if name not in infos:
            raise UnknownName("arm of --arm", name, tuple(infos))
    return tuple(dict.fromkeys(asked)) or ours


def _baselines(infos: Mapping[str, ArmInfo], compared: Collection[str]) -> tuple[str, ...]:
    """Return the arms that are neither ours, nor compared, nor twins, in the runs' order."""
    return tuple(name for name, arm in infos.items() if not arm.is_cake and not arm.twin_of and name not in compared)


def _pairs(base: Run, head: Run, arm: str, allow: Collection[str]) -> Iterator[Pair]:
    """Yield the rows of either run in the order of HEAD: by case, then by regime.

    Regimes that only one side has of a case stand beside each other, so that their difference is said.
    """
    sides = [_by_case(run) for run in (base, head)]
    for key in dict.fromkeys((*sides[1], *sides[0])):
        ours, theirs = sides[0].get(key, {}), sides[1].get(key, {})
        both = [regime for regime in theirs if regime in ours]
        only = [[regime for regime in side if regime not in both] for side in (ours, theirs)]
        for one, other in (*zip(both, both, strict=True), *zip_longest(*only)):
            yield _pair(base, ours.get(one), head, theirs.get(other), arm, allow)


def _by_case(run: Run) -> dict[tuple[str, str], dict[str, Row]]:
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in run.rows:
        found.setdefault((row.case.suite, row.case.case_id), {})[row.regime] = row
    return found


def _pair(base: Run, base_row: Row | None, head: Run, head_row: Row | None, arm: str, allow: Collection[str]) -> Pair:
    known = head_row or base_row
    assert known is not None  # a key comes from a row
    of = row_id(known.regime, known.case, arm)
    if base_row is None or head_row is None:
        return Pair(id=of, base_row=base_row, head_row=head_row)
    ours = Measured(run=base, machine=base.machines[base_row.machine], regime=base_row.regime)
    theirs = Measured(run=head, machine=head.machines[head_row.machine], regime=head_row.regime)
    return Pair(
        id=of,
        base_row=base_row,
        head_row=head_row,
        differences=(*differences(ours, theirs, allow=allow), *_other_case(base_row.case, head_row.case)),
        one_board=ours.machine.board is not None and ours.machine.board == theirs.machine.board,
    )


def _other_case(base: Case, head: Case) -> tuple[Difference, ...]:
    """Return that one name means two cases, if it does: no option allows that."""
    one, other = base.shape, head.shape
    if (one.N, one.K, one.group_sizes) == (other.N, other.K, other.group_sizes):
        return ()
    said = (f"N {shape.N} K {shape.K} sizes {', '.join(map(str, shape.group_sizes[:8]))}" for shape in (one, other))
    return (Difference(field="sizes", base=next(said), head=next(said), role="refused"),)


def _one_a_row(pairs: Iterable[Pair]) -> list[Pair]:
    """Return one pair a row, whichever arm of ours it is of: what baselines say counts once."""
    return list({replace(pair.id, arm=""): pair for pair in pairs}.values())


def _ruler(pair: Pair, rulers: Sequence[str]) -> str | None:
    """Return the first baseline with a time on both sides."""
    return next((name for name in rulers if pair.has(name)), None)


def _noise(pairs: Sequence[Pair], rulers: Sequence[str], baselines: Sequence[str]) -> Iterator[Noise]:
    """Yield for each regime how far the other baselines moved against the one that rows are measured by."""
    found: dict[str, list[tuple[Side, Side]]] = {}
    for pair in pairs:
        ruler = _ruler(pair, rulers)
        others = [name for name in baselines if name != ruler and pair.has(name)]
        for name in others if ruler else ():
            found.setdefault(pair.id.regime, []).append(pair.over(name, ruler or ""))
    for regime, sides in found.items():
        cycles = [ratio_of(base.cycles, head.cycles) for base, head in sides]
        yield Noise(
            regime=regime,
            ratios=len(sides),
            largest=_furthest([ratio_of(base.span_ns, head.span_ns) for base, head in sides]),
            largest_cycles=None if None in cycles else _furthest(cycles),
        )


def _furthest(ratios: Sequence[float | None]) -> float:
    return max(max(ratio, 1 / ratio) for ratio in ratios if ratio is not None) - 1


def _lanes(pairs: Sequence[Pair], rulers: Sequence[str]) -> tuple[Lane, ...]:
    """Return for each regime how far the baseline's own time moved, over the rows that one board measured twice."""
    found: dict[str, list[float]] = {}
    for pair in pairs:
        ruler = _ruler(pair, rulers) if pair.one_board else None
        if ruler:
            base, head = pair.sides(ruler)
            moved = ratio_of(base.span_ns, head.span_ns)
            assert moved is not None  # both sides have a time
            found.setdefault(pair.id.regime, []).append(moved)
    return tuple(lane(regime, "the baseline's own time on one board", moves) for regime, moves in found.items())


def _row(pair: Pair, rulers: Sequence[str], noise: Noise | None, limits: Limits, *, lane_moved: bool) -> ComparedRow:
    base, head = pair.sides(pair.id.arm)
    if judge_one_sided(base, head):
        return one_sided_row(pair.id, base, head)
    if pair.refused:
        judgement = Judgement(verdict="not comparable", reason=reason_of(pair.refused))
        return compared_row(pair.id, judgement, NO_EVIDENCE, base, head, detail=said(pair.refused))
    ruler = _ruler(pair, rulers)
    if ruler is None:
        judgement = Judgement(verdict="not comparable", reason="no-baseline")
        detail = f"no baseline of {', '.join(rulers) or 'none'} has a time on both sides"
        return compared_row(pair.id, judgement, NO_EVIDENCE, base, head, detail=detail)
    one, other = pair.over(pair.id.arm, ruler)
    ratios = noise.ratios if noise else 0
    known = ratios >= NOISE_RATIOS
    effect = _widened(effect_of(one.span_ns, other.span_ns, limits), noise.largest if noise else None)
    in_cycles = _widened(effect_of(one.cycles, other.cycles, limits), noise.largest_cycles if noise else None)
    evidence = Evidence(
        effect=effect,
        confirmed=known and effect is not None and effect.beyond(limits.floor),
        in_reach=effect is None or effect.bounded,
        cycles=in_cycles.ratio if in_cycles else None,
        cycles_confirmed=in_cycles is None or in_cycles.excludes_one,
        busy=ratio_of(one.busy_ns, other.busy_ns),
        host_bound=host_bound(base, head) or host_bound(*pair.sides(ruler)),
        lane_moved=lane_moved,
        noise_known=known,
    )
    detail = "" if known else f"{ratios} ratios of baselines show the noise between the runs, {NOISE_RATIOS} must"
    return compared_row(pair.id, judge(evidence, limits), evidence, base, head, detail=detail, against=ruler)


NO_EVIDENCE = Evidence(effect=None)


def _widened(effect: Effect | None, noise: float | None) -> Effect | None:
    return effect.widened(1 + noise) if effect and noise else effect


def _distinct(pairs: Sequence[Pair]) -> tuple[Difference, ...]:
    """Return the differences of all rows, each once; sizes belong to their row."""
    return tuple(dict.fromkeys(d for pair in pairs for d in pair.differences if d.field != "sizes"))
