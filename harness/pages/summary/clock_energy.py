"""Clock, energy and busy share of each arm over the rows of an operation."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model.case import OPS
from harness.model.conditions import ClockEnergy
from harness.model.figures import ArmFigure, ReportRow
from harness.model.run import ArmInfo
from harness.pages.summary.states import value_range
from harness.stats.geomean import geomean
from harness.stats.median import median

Key = tuple[str, str, str]


def clock_energy(rows: tuple[ReportRow, ...], arms: tuple[ArmInfo, ...], new: ArmInfo) -> tuple[ClockEnergy, ...]:
    """Return one a device, regime, operation and arm of which something is known; twins have none."""
    found: dict[Key, list[ReportRow]] = {}
    for row in rows:
        found.setdefault((row.device, row.regime, row.case.op), []).append(row)
    places = list(dict.fromkeys((row.device, row.regime) for row in rows))
    ordered = sorted(found.items(), key=lambda item: (places.index(item[0][:2]), OPS.index(item[0][2])))
    ranked = sorted((arm.name for arm in arms if not arm.twin_of), key=lambda name: name != new.name)
    every = (_of_arm(key, here, name, new.name) for key, here in ordered for name in ranked)
    return tuple(entry for entry in every if entry is not None)


def _of_arm(key: Key, rows: Sequence[ReportRow], arm: str, new: str) -> ClockEnergy | None:
    figures = [figure for row in rows if (figure := row.figure(arm)) is not None and figure.span_ns is not None]
    clocks = [f.clock_mhz for f in figures if f.clock_mhz is not None]
    joules = [f.joules for f in figures if f.joules is not None]
    shares = [1 - f.gap for f in figures if f.gap is not None]
    if not (clocks or joules or shares):
        return None
    device, regime, op = key
    return ClockEnergy(
        device=device,
        regime=regime,
        op=op,
        arm=arm,
        rows=len(figures),
        clock_mhz=median(clocks) if clocks else None,
        clock_range=value_range(clocks) if clocks else None,
        joules=median(joules) if joules else None,
        joules_ratio=_joules_ratio(rows, arm, new),
        watts=median(watts) if (watts := [w for f in figures if (w := _watts(f)) is not None]) else None,
        busy_share=median(shares) if shares else None,
    )


def _joules_ratio(rows: Sequence[ReportRow], arm: str, new: str) -> float | None:
    pairs = ((row.figure(arm), row.figure(new)) for row in rows if arm != new)
    found = [(a.joules, b.joules) for a, b in pairs if a is not None and b is not None]
    values = [a / b for a, b in found if a and b]
    return geomean(values) if values else None


def _watts(figure: ArmFigure) -> float | None:
    if figure.joules is None or figure.span_ns is None:
        return None
    return figure.joules / (figure.span_ns * 1e-9)
