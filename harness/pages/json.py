"""The page ``json``: a report for programs, as strict JSON (no NaN); null is what is not known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from harness.model.figures import ArmFigure, Ratio, ReportRow, RowFloor
from harness.model.report import (
    AaStanding,
    Environment,
    FloorStanding,
    Limit,
    Report,
    RowRatio,
    RunCost,
    RunRates,
    Standing,
)
from harness.model.run import Rate
from harness.pages import refuse_columns
from harness.pages.summary.paired import PairedTests, paired_fields, tests_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Object = dict[str, object]


def render_page(report: Report, *, columns: Sequence[str] = (), what: str = "") -> str:  # noqa: ARG001 - for readers
    """Return the report as JSON, keys in a fixed order, UTF-8, one value a line.

    Names of rows and of ratios are the roles ``sota`` and ``best_known``, and arms. Times are nanoseconds.
    """
    refuse_columns("json", columns)
    paired = tests_of(report)
    page: Object = {
        "new": report.new.name,
        "against": report.columns,
        "timer": report.timer,
        "heading": report.heading,
        "protocol": report.protocol,
        "method_version": report.method_version,
        "revision": report.revision,
        "previous_revision": report.previous_revision or None,
        "notes": report.notes,
        "runs": report.run_ids,
        "seeds": report.seeds,
        "arms": [asdict(arm) for arm in report.arms],
        "machines": [_environment(environment) for environment in report.environments],
        "rows": [_row(index, row, paired) for index, row in enumerate(report.rows)],
        "geomeans": [_fields(geomean) for geomean in report.geomeans],
        "standings": [_standing(standing) for standing in report.standings],
        "floors": [_floor_standing(floor) for floor in report.floors],
        "aa": [_aa(aa) for aa in report.aa],
        "clock_energy": [asdict(entry) for entry in report.clock_energy],
        "records": {entry.name: entry.count for entry in report.records},
        "launches": [asdict(entry) for entry in report.launches],
        "limits": [_limit(limit) for limit in report.limits],
        "missing": [asdict(missing) for missing in report.missing],
    }
    return json.dumps(page, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _fields(entry: DataclassInstance, *without: str) -> Object:
    """Return the fields of a dataclass by name, but those named."""
    return {field.name: getattr(entry, field.name) for field in fields(entry) if field.name not in without}


def _environment(environment: Environment) -> Object:
    return {
        "device": environment.device,
        "kind": environment.machine.device,
        "runs": environment.run_ids,
        "groups": environment.groups,
        "regimes": environment.regimes,
        "states": [asdict(states) for states in environment.states],
        "rates": [_rates(rates) for rates in environment.rates],
        "costs": [_cost(cost) for cost in environment.costs],
        **_fields(environment.machine, "device"),
    }


def _rates(of_run: RunRates) -> Object:
    return {
        "run": of_run.run_id,
        "plain_read": _rate(of_run.rates.plain_read),
        "dense_mm": _rate(of_run.rates.dense_mm),
    }


def _cost(of_run: RunCost) -> Object:
    return {
        "run": of_run.run_id,
        "run_rows": of_run.run_rows,
        **_fields(of_run.cost),
        "share": of_run.cost.share,
    }


def _rate(rate: Rate) -> Object:
    return {"per_s": rate.per_s, "amount": rate.amount, "span_ns": rate.samples.span_ns}


def _row(index: int, row: ReportRow, paired: PairedTests) -> Object:
    return {
        "case": row.case.name,
        "op": row.case.op,
        "row_class": row.case.shape.row_class,
        "regime": row.regime,
        "n": row.n,
        "device": row.device,
        "suite": row.case.suite,
        "cards": row.cards,
        "sota": row.sota,
        "best_known": row.best_known,
        "host_bound": row.host_bound,
        "control": row.control,
        "discarded": asdict(row.discarded),
        "arms": {figure.arm: _figure(figure) for figure in row.figures},
        "ratios": {
            ratio.against: {**_ratio(ratio), **paired_fields(paired.get((index, ratio.against)))}
            for ratio in row.ratios
        },
        "aa": {ratio.against: _ratio(ratio) for ratio in row.aa},
        "floor": None if row.floor is None else _floor(row.floor),
    }


def _floor(of: RowFloor) -> Object:
    return {
        "ns": of.floor.ns,
        "binds": of.floor.binds,
        **_fields(of.floor),
        **_fields(of, "floor"),
        "closed": of.closed,
        "new_is_below": of.new_is_below,
        "sota_is_below": of.sota_is_below,
    }


def _figure(figure: ArmFigure) -> Object:
    reasons = list(dict.fromkeys(outcome.reason for outcome in figure.outcomes if outcome.reason))
    return {**_fields(figure, "arm", "outcomes", "paired"), "reasons": reasons}


def _ratio(ratio: Ratio) -> Object:
    return _fields(ratio, "against", "groups")


def _standing(standing: Standing) -> Object:
    return {
        "device": standing.device,
        "regime": standing.regime,
        "against": standing.against,
        "rows": len(standing.rows),
        "above": standing.above,
        "below": standing.below,
        "wholly_above": len(standing.wholly_above),
        "wholly_below": len(standing.wholly_below),
        "by_chance": standing.chance,
        "highest": _median(standing.gains),
        "lowest": _median(standing.regressions),
        "highest_by_chance": standing.chance_high,
        "spread_median": standing.spread_median,
        "spread_p90": standing.spread_p90,
        "clocks_apart": len(standing.clocks_apart),
        "cycles_disagree": len(standing.cycles_disagree),
    }


def _median(entries: tuple[RowRatio, ...]) -> float | None:
    return entries[0].ratio.median if entries else None


def _aa(aa: AaStanding) -> Object:
    largest = {"op": aa.largest.row.case.op, "case": aa.largest.row.case.name, "median": aa.largest.ratio.median}
    return {
        "device": aa.device,
        "regime": aa.regime,
        "arm": aa.arm,
        "twin": aa.twin,
        "rows": aa.rows,
        "value": aa.value,
        "limit": aa.limit,
        "within": aa.within,
        "wholly_above": aa.wholly_above,
        "wholly_below": aa.wholly_below,
        "by_chance": aa.chance,
        "p95": aa.p95,
        "largest": largest,
    }


def _floor_standing(floor: FloorStanding) -> Object:
    return {**_fields(floor), "closed": floor.closed}


def _limit(limit: Limit) -> Object:
    rows = [
        {"device": row.device, "regime": row.regime, "op": row.case.op, "case": row.case.name} for row in limit.rows
    ]
    return {"kind": limit.kind, "what": limit.what, "reason": limit.reason, "rows": rows}
