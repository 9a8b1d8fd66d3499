"""The rule: from what is known of a row to its verdict and reason code. The only place that has it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.compare.comparison import Effect, Limits, Reason, Verdict
from harness.compare.side import Side

FEWEST_GROUPS = 3
"""One or two groups a side say nothing of noise, so that no test is made of them."""

HOST_BOUND_GAP = 0.10
"""A row is host-bound where a side's (span - busy) / span exceeds this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict and its reason code."""

    verdict: Verdict
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a row that has a time on both sides.

    Attributes
    ----------
    effect
        Ratio BASE / HEAD with its interval; None where groups are too few.
    confirmed
        That the ratio lies beyond the floor is not noise: q is within its limit, or the interval, the spread between
        runs in it, lies wholly beyond.
    in_reach
        It could have been confirmed with so many groups and rows.
    cycles, busy
        The same ratio of cycles and of busy times.
    cycles_confirmed
        The ratio of cycles is not noise either; True where that is not asked for, or there are no cycles.
    noise_known
        Without it nothing can be concluded, not even that the sides are the same.
    """

    effect: Effect | None
    confirmed: bool = False
    in_reach: bool = True
    cycles: float | None = None
    cycles_confirmed: bool = True
    busy: float | None = None
    host_bound: bool = False
    lane_moved: bool = False
    noise_known: bool = True


def judge(evidence: Evidence, limits: Limits) -> Judgement:
    """Return the verdict of a row that has a time on both sides.

    Swapping the sides swaps faster and slower, and changes nothing else. A ratio that is not 1, but is not known to lie
    beyond the floor either, is unclear: for reason ``below-floor`` where it lies within, else ``spread``.
    """
    effect = evidence.effect
    if evidence.host_bound:
        return Judgement(verdict="unclear", reason="host-bound")
    if effect is None:
        return Judgement(verdict="unclear", reason="few-groups")
    if evidence.lane_moved:
        return Judgement(verdict="unclear", reason="lane-moved")
    if not evidence.noise_known:
        return Judgement(verdict="unclear", reason="spread")
    if effect.within(limits.floor):
        return Judgement(verdict="same", reason="below-floor")
    if not evidence.confirmed and not evidence.in_reach:
        return Judgement(verdict="unclear", reason="cannot-reach")
    small = 1 / (1 + limits.floor) <= effect.ratio <= 1 + limits.floor
    if small and (evidence.confirmed or effect.excludes_one):
        return Judgement(verdict="unclear", reason="below-floor")
    if not evidence.confirmed:
        return Judgement(verdict="unclear", reason="spread")
    if _contradicts(evidence.cycles, effect.ratio) or not evidence.cycles_confirmed:
        return Judgement(verdict="unclear", reason="clock")
    if _contradicts(evidence.busy, effect.ratio):
        return Judgement(verdict="unclear", reason="host-bound")
    return Judgement(verdict="faster" if effect.ratio > 1 else "slower", reason="effect")


def judge_one_sided(base: Side, head: Side) -> Judgement | None:
    """Return the verdict of a row that lacks a time on a side; None where both have one.

    A row that BASE cannot do, or does wrong, is new: there is nothing to hold HEAD against.
    """
    if head.status == "failed" or (head.status == "absent" and head.out_of_memory):
        return Judgement(verdict="failed", reason="oom" if head.out_of_memory else "wrong-result")
    if head.status == "absent":
        return Judgement(verdict="missing", reason="no-baseline")
    if base.status != "measured":
        return Judgement(verdict="new", reason="no-baseline")
    return None


def _contradicts(other: float | None, ratio: float) -> bool:
    """Return whether another measure of the same row names the other side, or none, as faster."""
    return other is not None and (other - 1) * (ratio - 1) <= 0
