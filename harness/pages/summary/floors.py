"""Measured floors: how far new and SOTA are from what the row's bytes and FLOPs take on its machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.model.case import OPS
from harness.model.figures import ReportRow, RowFloor
from harness.model.measured_floor import MeasuredFloor
from harness.model.report import FloorStanding
from harness.model.run import ArmInfo
from harness.pages.summary.pool import PooledRow
from harness.pages.summary.rows import over_cards
from harness.stats.geomean import geomean


@dataclass(frozen=True, slots=True, kw_only=True)
class Floored:
    """A row's floor, and whether the row is in no geomean."""

    floor: RowFloor
    host_bound: bool


def with_floor(row: ReportRow, pooled: PooledRow, new: ArmInfo) -> ReportRow:
    """Return ``row`` with its floor: the median over the cards, none where a run that has a time measured no rates."""
    floor = _pooled_floor(pooled)
    if floor is None or floor.ns == 0:
        return row
    return replace(row, floor=RowFloor(floor=floor, new=_over(floor, row, new.name), sota=_over(floor, row, row.sota)))


def floor_standings(rows: tuple[ReportRow, ...]) -> tuple[FloorStanding, ...]:
    """Return one a device, regime, suite and operation that has rows with a floor; suites are never merged."""
    found: dict[tuple[str, str, str, str], list[Floored]] = {}
    for row in rows:
        if row.floor is not None:
            key = (row.device, row.regime, row.case.suite, row.case.op)
            found.setdefault(key, []).append(Floored(floor=row.floor, host_bound=bool(row.host_bound)))
    places = list(dict.fromkeys((row.device, row.regime) for row in rows))
    ordered = sorted(found, key=lambda key: (places.index(key[:2]), key[2], OPS.index(key[3])))
    return tuple(_standing(*key, found[key]) for key in ordered)


def _standing(device: str, regime: str, suite: str, op: str, rows: list[Floored]) -> FloorStanding:
    pairs = [
        (of.floor.new, of.floor.sota)
        for of in rows
        if not of.host_bound and of.floor.new is not None and of.floor.sota is not None
    ]
    return FloorStanding(
        device=device,
        regime=regime,
        suite=suite,
        op=op,
        rows=len(rows),
        n=len(pairs),
        new=geomean([new for new, _ in pairs]) if pairs else None,
        sota=geomean([sota for _, sota in pairs]) if pairs else None,
        new_below=sum(of.floor.new_is_below for of in rows),
        sota_below=sum(of.floor.sota_is_below for of in rows),
    )


def _pooled_floor(pooled: PooledRow) -> MeasuredFloor | None:
    by_card: dict[int, list[MeasuredFloor]] = {}
    for measurement in pooled.measurements:
        if not measurement.row.samples.arm:
            continue
        if measurement.floor is None:
            return None
        by_card.setdefault(measurement.place, []).append(measurement.floor)
    bytes_ns = over_cards({place: [floor.bytes_ns for floor in floors] for place, floors in by_card.items()})
    flops_ns = over_cards({place: [floor.flops_ns for floor in floors] for place, floors in by_card.items()})
    return None if bytes_ns is None or flops_ns is None else MeasuredFloor(bytes_ns=bytes_ns, flops_ns=flops_ns)


def _over(floor: MeasuredFloor, row: ReportRow, arm: str | None) -> float | None:
    figure = row.figure(arm) if arm else None
    return None if figure is None or figure.span_ns is None else figure.span_ns / floor.ns
