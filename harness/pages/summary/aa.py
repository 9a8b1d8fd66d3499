"""A/A: an arm against itself, measured as if it were two; all that differs is noise."""

from __future__ import annotations

from harness.model.figures import ReportRow
from harness.model.report import AaStanding, RowRatio
from harness.model.run import ArmInfo
from harness.stats.chance import rows_by_chance
from harness.stats.geomean import geomean
from harness.stats.percentile import percentile

LIMIT = 0.01
"""Of a row's distance from 1, in every regime but boost."""

LIMIT_BOOST = 0.005


def aa_standings(rows: tuple[ReportRow, ...], arms: tuple[ArmInfo, ...]) -> tuple[AaStanding, ...]:
    """Return one a device, regime and A/A pair that a row has."""
    places = dict.fromkeys((row.device, row.regime) for row in rows)
    twins = [arm for arm in arms if arm.twin_of]
    every = ((place, twin, _pairs(rows, place, twin)) for place in places for twin in twins)
    return tuple(_standing(place, twin, pairs) for place, twin, pairs in every if pairs)


def _pairs(rows: tuple[ReportRow, ...], place: tuple[str, str], twin: ArmInfo) -> list[RowRatio]:
    return [
        RowRatio(row=row, ratio=ratio)
        for row in rows
        if (row.device, row.regime) == place and not row.host_bound
        for ratio in row.aa
        if ratio.against == twin.name
    ]


def _standing(place: tuple[str, str], twin: ArmInfo, pairs: list[RowRatio]) -> AaStanding:
    device, regime = place
    limit = LIMIT_BOOST if regime == "boost" else LIMIT
    return AaStanding(
        device=device,
        regime=regime,
        arm=twin.twin_of,
        twin=twin.name,
        rows=len(pairs),
        value=geomean([pair.ratio.median for pair in pairs]),
        limit=limit,
        within=sum(_distance(pair) <= limit for pair in pairs),
        wholly_above=sum(pair.ratio.min > 1 for pair in pairs),
        wholly_below=sum(pair.ratio.max < 1 for pair in pairs),
        chance=rows_by_chance(pair.ratio.n for pair in pairs),
        p95=percentile([_distance(pair) for pair in pairs], 95),
        largest=max(pairs, key=lambda pair: (_distance(pair), pair.row.case.case_id)),
    )


def _distance(pair: RowRatio) -> float:
    return abs(pair.ratio.median - 1)
