"""From two sides to a row of a comparison: what both forms of it have in common."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare.comparison import ComparedRow, Effect, Geomean, Lane, Limits, RowId
from harness.compare.judge import FEWEST_GROUPS, HOST_BOUND_GAP, Evidence, Judgement, judge_one_sided
from harness.compare.side import Side
from harness.model.case import OPS, Case
from harness.stats import geomean, geomean_over_rows, hodges_lehmann_ratio
from harness.stats.median import median

GEOMEAN_SEED = 0
"""Of the bootstrap over rows, so that a comparison of the same files gives the same interval."""

LANE_MOVED = 0.01
"""What runs the same program on both sides and is further than this from 1 says that something else has changed."""


def row_id(regime: str, case: Case, arm: str) -> RowId:
    """Return what names a row."""
    return RowId(regime=regime, suite=case.suite, op=case.op, name=case.name, arm=arm)


def row_id_of_key(key: str, arm: str) -> RowId:
    """Return the same of a planned row's key, ``boost/moe-training/ckpt ES down E8 M131072 bal``."""
    regime, suite, case_id = key.split("/", 2)
    op = max((op for op in OPS if case_id.startswith(f"{op} ")), key=len)
    return RowId(regime=regime, suite=suite, op=op, name=case_id.removeprefix(f"{op} "), arm=arm)


def effect_of(base: Sequence[float], head: Sequence[float], limits: Limits) -> Effect | None:
    """Return the Hodges-Lehmann ratio of what groups cost, with its interval; None where groups are too few."""
    if min(len(base), len(head)) < FEWEST_GROUPS:
        return None
    interval = hodges_lehmann_ratio(base, head, confidence=limits.confidence)
    return Effect(ratio=interval.estimate, low=interval.low, high=interval.high)


def ratio_of(base: Sequence[float], head: Sequence[float]) -> float | None:
    """Return the ratio of the medians; None where a side is not known."""
    return median(base) / median(head) if base and head else None


def host_bound(base: Side, head: Side) -> bool:
    """Return whether a side's time is the host's."""
    return max(base.gap, head.gap) > HOST_BOUND_GAP


def lane(regime: str, what: str, ratios: Sequence[float]) -> Lane:
    """Return how far ``what`` moved."""
    value = geomean(ratios)
    return Lane(regime=regime, what=what, value=value, rows=len(ratios), moved=max(value, 1 / value) > 1 + LANE_MOVED)


def one_sided_row(of: RowId, base: Side, head: Side) -> ComparedRow:
    """Return the row that lacks a time on a side."""
    judgement = judge_one_sided(base, head)
    if judgement is None:
        raise ValueError(f"{of.case_id}: both sides have a time")
    parts = [f"{name}: {side.why}" for name, side in (("BASE", base), ("HEAD", head)) if side.why]
    return ComparedRow(
        id=of,
        verdict=judgement.verdict,
        reason=judgement.reason,
        detail="; ".join(parts),
        n_base=len(base.span_ns),
        n_head=len(head.span_ns),
        base_ns=base.middle_ns,
        head_ns=head.middle_ns,
        base_mhz=base.clock_mhz,
        head_mhz=head.clock_mhz,
    )


def compared_row(
    of: RowId,
    judgement: Judgement,
    evidence: Evidence,
    base: Side,
    head: Side,
    *,
    detail: str = "",
    against: str = "",
    control: bool = False,
) -> ComparedRow:
    """Return the row that has a time on both sides."""
    return ComparedRow(
        id=of,
        verdict=judgement.verdict,
        reason=judgement.reason,
        detail=detail,
        against=against,
        effect=evidence.effect,
        cycles=evidence.cycles,
        busy=evidence.busy,
        n_base=len(base.span_ns),
        n_head=len(head.span_ns),
        base_ns=base.middle_ns,
        head_ns=head.middle_ns,
        base_mhz=base.clock_mhz,
        head_mhz=head.clock_mhz,
        control=control,
    )


def geomeans(rows: Sequence[ComparedRow]) -> tuple[Geomean, ...]:
    """Return one a regime, arm and operation that has a ratio; controls and host-bound rows are in none."""
    found: dict[tuple[str, str, str], list[ComparedRow]] = {}
    for row in rows:
        if not row.control:
            found.setdefault((row.id.regime, row.id.arm, row.id.op), []).append(row)
    means = []
    for (regime, arm, op), of_op in found.items():
        ratios = {
            f"{row.id.suite}/{row.id.case_id}": row.effect.ratio
            for row in of_op
            if row.effect and row.reason != "host-bound"
        }
        if not ratios:
            continue
        mean = geomean_over_rows(ratios, seed=GEOMEAN_SEED)
        sound = [ratios[name] for name in mean.rows]
        interval = mean.interval
        bounded = interval if interval and interval.bounded else None
        means.append(
            Geomean(
                regime=regime,
                arm=arm,
                op=op,
                value=interval.estimate if interval else None,
                low=min(sound, default=None),
                high=max(sound, default=None),
                n=len(sound),
                expected_n=len(of_op),
                # Later digits of a bootstrap depend on the machine.
                interval_low=round(bounded.low, 6) if bounded else None,
                interval_high=round(bounded.high, 6) if bounded else None,
                seed=GEOMEAN_SEED,
                failures=tuple(f"{failure.row}: {failure.reason}" for failure in mean.failures),
            )
        )
    return tuple(sorted(means, key=lambda m: (m.regime != "sustained", m.regime, m.arm, OPS.index(m.op))))
