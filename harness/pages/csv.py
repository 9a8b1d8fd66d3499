"""The page ``csv``: one line a row and arm, for pandas: figures, roles, ratios, reasons; skipped rows have a line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from harness.model.case import Case
from harness.model.conditions import Discards
from harness.model.figures import ArmFigure, ReportRow, RowFloor
from harness.model.report import Report
from harness.pages import refuse_columns

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: dict[str, str] = {
    "device": "string",
    "timer": "string",
    "regime": "string",
    "suite": "string",
    "op": "string",
    "case": "string",
    "row_class": "string",
    "out_dtype": "string",
    "E": "Int64",
    "M": "Int64",
    "N": "Int64",
    "K": "Int64",
    "n": "Int64",
    "cards": "Int64",
    "arm": "string",
    "key": "string",
    "status": "string",
    "reason": "string",
    "span_ns": "Float64",
    "busy_ns": "Float64",
    "clock_mhz": "Float64",
    "cycles": "Float64",
    "joules": "Float64",
    "calls": "Int64",
    "tflops": "Float64",
    "is_new": "boolean",
    "is_sota": "boolean",
    "is_best_known": "boolean",
    "host_bound": "boolean",
    "ratio_median": "Float64",
    "ratio_min": "Float64",
    "ratio_max": "Float64",
    "ratio_busy_median": "Float64",
    "ratio_cycles_median": "Float64",
    "ratio_spread": "Float64",
    "floor_ns": "Float64",
    "floor_binds": "string",
    "over_floor": "Float64",
    "below_floor": "boolean",
    "floor_closed": "Float64",
    "twin_of": "string",
    "aa_median": "Float64",
    "aa_min": "Float64",
    "aa_max": "Float64",
    "discarded_invalid": "Int64",
    "discarded_dry": "Int64",
    "discarded_throttled": "Int64",
    "discarded_clock": "Int64",
    "discarded_restarted": "Int64",
}
"""Column -> pandas type. ``ratio_*`` are the paired ratios of this line's arm / new, empty on the lines of new and of a
twin; ``aa_*``, on a twin's line, those of its arm / the twin; ``floor_*`` and ``discarded_*`` are the row's,
``over_floor`` is this line's latency / floor."""


def render_page(report: Report, *, columns: Sequence[str] = (), what: str = "") -> str:  # noqa: ARG001 - for readers
    """Return the table as CSV: all but numbers quoted, lines end with a line feed, empty where unknown.

    ``csv.reader(file, quoting=csv.QUOTE_NONNUMERIC)`` reads it back: ``True`` and ``False`` are text.
    ``pandas.read_csv(path, keep_default_na=False, na_values="")`` brings names such as ``NA`` back as they are.
    """
    refuse_columns("csv", columns)
    truths = {column: "string" for column, kind in COLUMNS.items() if kind == "boolean"}
    # all text quoted: before Python 3.13 a lone carriage return is not
    return to_frame(report).astype(truths).to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)


def to_frame(report: Report) -> pd.DataFrame:
    """Return the same as a pandas table, with nullable types."""
    import pandas as pd  # half a second that only this page pays

    lines = [*_measured(report), *_skipped(report)]
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype(COLUMNS)


def _measured(report: Report) -> Iterator[dict[str, object]]:
    for row in report.rows:
        for figure in row.figures:
            yield {
                **_of_case(report, row.device, row.regime, row.case),
                "n": row.n,
                "cards": row.cards,
                **_of_figure(report, row, figure),
                **_of_discards(row.discarded),
            }


def _of_case(report: Report, device: str, regime: str, case: Case) -> dict[str, object]:
    shape = case.shape
    return {
        "device": device,
        "timer": report.timer,
        "regime": regime,
        "suite": case.suite,
        "op": case.op,
        "case": case.name,
        "row_class": shape.row_class,
        "out_dtype": case.out_dtype,
        "E": shape.E,
        "M": shape.M,
        "N": shape.N,
        "K": shape.K,
    }


def _of_figure(report: Report, row: ReportRow, figure: ArmFigure) -> dict[str, object]:
    paired, info = figure.paired, report.arm(figure.arm)
    aa = next((ratio for ratio in row.aa if ratio.against == figure.arm), None)
    return {
        "arm": figure.arm,
        "key": info.key,
        "status": figure.status,
        "reason": "; ".join(dict.fromkeys(outcome.reason for outcome in figure.outcomes if outcome.reason)),
        "span_ns": figure.span_ns,
        "busy_ns": figure.busy_ns,
        "clock_mhz": figure.clock_mhz,
        "cycles": figure.cycles,
        "joules": figure.joules,
        "calls": figure.calls,
        "tflops": figure.tflops,
        "is_new": figure.arm == report.new.name,
        "is_sota": figure.arm == row.sota,
        "is_best_known": figure.arm == row.best_known,
        "host_bound": figure.arm in row.host_bound,
        "ratio_median": paired.median if paired else None,
        "ratio_min": paired.min if paired else None,
        "ratio_max": paired.max if paired else None,
        "ratio_busy_median": paired.busy_median if paired else None,
        "ratio_cycles_median": paired.cycles_median if paired else None,
        "ratio_spread": paired.spread if paired else None,
        **_of_floor(row.floor, figure.span_ns),
        "twin_of": info.twin_of,
        "aa_median": aa.median if aa else None,
        "aa_min": aa.min if aa else None,
        "aa_max": aa.max if aa else None,
    }


def _of_floor(of: RowFloor | None, span_ns: float | None) -> dict[str, object]:
    over = span_ns / of.floor.ns if of and span_ns is not None else None
    return {
        "floor_ns": of.floor.ns if of else None,
        "floor_binds": of.floor.binds if of else None,
        "over_floor": over,
        "below_floor": None if over is None else over < 1,
        "floor_closed": of.closed if of else None,
    }


def _of_discards(discarded: Discards) -> dict[str, object]:
    return {f"discarded_{reason}": count for reason, count in asdict(discarded).items()}


def _skipped(report: Report) -> Iterator[dict[str, object]]:
    for limit in report.limits_of("skipped", "other-regime"):
        for row in limit.rows:
            of_case = _of_case(report, row.device, row.regime, row.case)
            yield {**of_case, "status": "skipped", "reason": limit.reason}
