"""The page ``json``: a report for programs, as strict JSON (no NaN); null is what is not known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from harness.model.report import AaStanding, ArmFigure, Environment, Geomean, Limit, Ratio, Report, ReportRow, Standing
from harness.pages import refuse_columns

Object = dict[str, object]


def render_page(report: Report, *, columns: Sequence[str] = ()) -> str:
    """Return the report as JSON, keys in a fixed order, UTF-8, one value a line.

    Names of rows and of ratios are the roles ``sota`` and ``best_known``, and arms. Times are nanoseconds.
    """
    refuse_columns("json", columns)
    page: Object = {
        "new": report.new.name,
        "against": report.columns,
        "timer": report.timer,
        "heading": report.heading,
        "protocol": report.protocol,
        "method_version": report.method_version,
        "revision": report.revision,
        "runs": report.run_ids,
        "seeds": report.seeds,
        "arms": [asdict(arm) for arm in report.arms],
        "machines": [_environment(environment) for environment in report.environments],
        "rows": [_row(row) for row in report.rows],
        "geomeans": [_geomean(geomean) for geomean in report.geomeans],
        "standings": [_standing(standing) for standing in report.standings],
        "aa": [_aa(aa) for aa in report.aa],
        "clock_energy": [asdict(entry) for entry in report.clock_energy],
        "records": {entry.name: entry.count for entry in report.records},
        "launches": [asdict(entry) for entry in report.launches],
        "limits": [_limit(limit) for limit in report.limits],
        "missing": [asdict(missing) for missing in report.missing],
    }
    return json.dumps(page, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _environment(environment: Environment) -> Object:
    machine = asdict(environment.machine)
    kind = machine.pop("device")
    return {
        "device": environment.device,
        "kind": kind,
        "runs": environment.run_ids,
        "groups": environment.groups,
        "states": [asdict(states) for states in environment.states],
        **machine,
    }


def _row(row: ReportRow) -> Object:
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
        "discarded": asdict(row.discarded),
        "arms": {figure.arm: _figure(figure) for figure in row.figures},
        "ratios": {ratio.against: _ratio(ratio) for ratio in row.ratios},
        "aa": {ratio.against: _ratio(ratio) for ratio in row.aa},
    }


def _figure(figure: ArmFigure) -> Object:
    return {
        "span_ns": figure.span_ns,
        "busy_ns": figure.busy_ns,
        "clock_mhz": figure.clock_mhz,
        "joules": figure.joules,
        "cycles": figure.cycles,
        "calls": figure.calls,
        "gap": figure.gap,
        "tflops": figure.tflops,
        "status": figure.status,
        "reasons": list(dict.fromkeys(outcome.reason for outcome in figure.outcomes if outcome.reason)),
    }


def _ratio(ratio: Ratio) -> Object:
    return {
        "median": ratio.median,
        "min": ratio.min,
        "max": ratio.max,
        "n": ratio.n,
        "busy_median": ratio.busy_median,
        "arm": ratio.arm,
        "cycles_median": ratio.cycles_median,
        "clock": ratio.clock,
        "spread": ratio.spread,
    }


def _geomean(geomean: Geomean) -> Object:
    return {
        "op": geomean.op,
        "row_class": geomean.row_class,
        "regime": geomean.regime,
        "new": geomean.new,
        "against": geomean.against,
        "metric": geomean.metric,
        "value": geomean.value,
        "low": geomean.low,
        "high": geomean.high,
        "n": geomean.n,
        "expected_n": geomean.expected_n,
        "device": geomean.device,
    }


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
        "spread_median": standing.spread_median,
        "spread_p90": standing.spread_p90,
        "clocks_apart": len(standing.clocks_apart),
        "cycles_disagree": len(standing.cycles_disagree),
    }


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


def _limit(limit: Limit) -> Object:
    rows = [
        {"device": row.device, "regime": row.regime, "op": row.case.op, "case": row.case.name} for row in limit.rows
    ]
    return {"kind": limit.kind, "what": limit.what, "reason": limit.reason, "rows": rows}
