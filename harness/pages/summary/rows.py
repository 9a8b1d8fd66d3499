"""PooledRow -> ReportRow: medians, roles, ratios of one row.

Of several cards each gives its own median; the row's number is the median of those. Two runs on one card count as
more groups of that card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from harness.model.conditions import Discards
from harness.model.figures import ArmFigure, Ratio, ReportRow
from harness.model.report import BEST_KNOWN, PREVIOUS, PREVIOUS_OF, SOTA
from harness.model.run import ArmInfo, ArmOutcome, Row
from harness.pages.summary.discards import discards
from harness.pages.summary.pool import PooledRow
from harness.pages.summary.roles import best_known, sota
from harness.stats.median import median
from harness.stats.ratio import ratios
from harness.stats.spread import spread

HOST_BOUND_GAP = 0.10
"""A row is host-bound where an arm's (span - busy) / span exceeds this."""

Number = TypeVar("Number", int, float)

Cards = Mapping[int, Sequence[float]]
"""Index of a card -> its values in the order of the groups."""


def report_row(pooled: PooledRow, arms: tuple[ArmInfo, ...], new: ArmInfo, columns: tuple[str, ...]) -> ReportRow:
    """Return the numbers of one row that was tried at least once."""
    figures = tuple(
        _figure(pooled, arm, new.name, outcomes) for arm in arms if (outcomes := _outcomes(pooled, arm.name))
    )
    roles = {
        SOTA: sota(figures, new),
        BEST_KNOWN: best_known(figures, arms, new),
        PREVIOUS: PREVIOUS_OF.get(new.name),
    }
    paired = {figure.arm: figure.paired for figure in figures}
    twins = {arm.name: arm.twin_of for arm in arms if arm.twin_of}
    against_itself = ((twin, _ratio(pooled, arm, twin)) for twin, arm in twins.items())
    behind = ((column, paired.get(roles.get(column, column) or "")) for column in columns)
    return ReportRow(
        device=pooled.device,
        regime=pooled.regime,
        case=pooled.case,
        n=sum(m.row.n_groups for m in pooled.measurements),
        cards=len({m.place for m in pooled.measurements}),
        figures=figures,
        sota=roles[SOTA],
        best_known=roles[BEST_KNOWN],
        ratios=tuple(replace(ratio, against=column) for column, ratio in behind if ratio is not None),
        aa=tuple(replace(ratio, against=twin) for twin, ratio in against_itself if ratio is not None),
        host_bound=tuple(f.arm for f in figures if f.arm not in twins and f.gap is not None and f.gap > HOST_BOUND_GAP),
        discarded=sum((discards(m.row.discarded) for m in pooled.measurements), Discards()),
        control=pooled.control,
    )


def _outcomes(pooled: PooledRow, arm: str) -> tuple[ArmOutcome, ...]:
    return tuple(m.row.arms[arm] for m in pooled.measurements if arm in m.row.arms)


def _figure(pooled: PooledRow, info: ArmInfo, new: str, outcomes: tuple[ArmOutcome, ...]) -> ArmFigure:
    arm = info.name
    statuses = {outcome.status for outcome in outcomes}
    span = over_cards(_by_card(pooled, lambda row: _spans(row, arm)))
    if span is None:
        return ArmFigure(arm=arm, status="failed" if "failed" in statuses else "unsupported", outcomes=outcomes)
    gaps = _by_card(pooled, lambda row: _gaps(row, arm))
    return ArmFigure(
        arm=arm,
        status="measured",
        outcomes=outcomes,
        span_ns=span,
        busy_ns=over_cards(_by_card(pooled, lambda row: _busy(row, arm))),
        clock_mhz=over_cards(_by_card(pooled, lambda row: _clocks(row, arm))),
        cycles=over_cards(_by_card(pooled, lambda row: _cycles(row, arm))),
        joules=over_cards(_by_card(pooled, lambda row: _joules(row, arm))),
        calls=sum(row.samples.calls[i] for row in _rows(pooled) for _, i in row.samples.by_group(arm)),
        tflops=pooled.case.flops / span / 1e3,  # FLOP/ns is GFLOP/s
        gap=max((median(values) for values in gaps.values()), default=None),
        paired=_ratio(pooled, arm, new) if arm != new and not info.twin_of else None,
    )


def _ratio(pooled: PooledRow, arm: str, new: str) -> Ratio | None:
    """Return arm / new, both of one paired group."""
    by_card = _by_card(pooled, lambda row: _paired(_spans(row, arm), _spans(row, new)))
    middle = over_cards(by_card)
    if middle is None:
        return None
    every = [ratio for values in by_card.values() for ratio in values]
    return Ratio(
        against=arm,
        arm=arm,
        median=middle,
        min=min(every),
        max=max(every),
        n=len(every),
        busy_median=over_cards(_by_card(pooled, lambda row: _paired(_busy(row, arm), _busy(row, new)))),
        cycles_median=over_cards(_by_card(pooled, lambda row: _paired(_cycles(row, arm), _cycles(row, new)))),
        clock=over_cards(_by_card(pooled, lambda row: _paired(_clocks(row, new), _clocks(row, arm)))),
        spread=_middle(spread(values) for values in by_card.values()),
        groups=tuple(tuple(values) for values in by_card.values()),
    )


def over_cards(by_card: Cards) -> float | None:
    """Return the median over the cards of each card's median; None without a value."""
    return _middle(median(values) for values in by_card.values())


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _by_card(pooled: PooledRow, values_of: Callable[[Row], Sequence[float]]) -> Cards:
    """Return each card's values, those of its runs one after the other; cards without a value are left out."""
    found: dict[int, list[float]] = {}
    for measurement in pooled.measurements:
        if values := values_of(measurement.row):
            found.setdefault(measurement.place, []).extend(values)
    return found


def _rows(pooled: PooledRow) -> list[Row]:
    return [measurement.row for measurement in pooled.measurements]


def _paired(baseline: Sequence[float], new: Sequence[float]) -> tuple[float, ...]:
    """Return the ratios of a run's row; none where either arm has no time in it."""
    return ratios(baseline, new) if baseline and new else ()


def _spans(row: Row, arm: str) -> tuple[int, ...]:
    return tuple(row.samples.span_ns[i] for _, i in row.samples.by_group(arm))


def _busy(row: Row, arm: str) -> tuple[int, ...]:
    return _known(row.samples.busy_ns[i] for _, i in row.samples.by_group(arm))


def _clocks(row: Row, arm: str) -> tuple[int, ...]:
    return _known(row.samples.clock_mhz[i] for _, i in row.samples.by_group(arm))


def _joules(row: Row, arm: str) -> tuple[float, ...]:
    return _known(row.samples.joules[i] for _, i in row.samples.by_group(arm))


def _gaps(row: Row, arm: str) -> tuple[float, ...]:
    busy_ns = _busy(row, arm)
    return tuple((s - b) / s for s, b in zip(_spans(row, arm), busy_ns, strict=True)) if busy_ns else ()


def _cycles(row: Row, arm: str) -> tuple[float, ...]:
    clocks_mhz = _clocks(row, arm)
    return tuple(s * mhz / 1e3 for s, mhz in zip(_spans(row, arm), clocks_mhz, strict=True)) if clocks_mhz else ()


def _known(values: Iterable[Number | None]) -> tuple[Number, ...]:
    """Return the values where all are known, else none: a median over some groups would pair with nothing."""
    listed = list(values)
    known = tuple(value for value in listed if value is not None)
    return known if len(known) == len(listed) else ()
