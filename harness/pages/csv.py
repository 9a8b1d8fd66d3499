"""The page ``csv``: one line a row and arm, for pandas; nothing of a row is left out, skipped rows have a line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.model.case import Case
from harness.model.report import ArmFigure, Report, ReportRow
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
    "tflops": "Float64",
    "is_new": "boolean",
    "is_sota": "boolean",
    "is_best_known": "boolean",
    "host_bound": "boolean",
    "ratio_median": "Float64",
    "ratio_min": "Float64",
    "ratio_max": "Float64",
    "ratio_busy_median": "Float64",
    "ratio_spread": "Float64",
}
"""Column -> pandas type. ``ratio_*`` are the paired ratios of this line's arm / new, empty on the line of new."""


def render_page(report: Report, *, columns: Sequence[str] = ()) -> str:
    """Return the table as CSV: text quoted, lines end with a line feed, empty where unknown.

    ``pandas.read_csv(path, keep_default_na=False, na_values="")`` brings names such as ``NA`` back as they are.
    """
    refuse_columns("csv", columns)
    # all text quoted: before Python 3.13 a lone carriage return is not
    return to_frame(report).to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)


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
    paired = figure.paired
    return {
        "arm": figure.arm,
        "key": report.arm(figure.arm).key,
        "status": figure.status,
        "reason": "; ".join(dict.fromkeys(outcome.reason for outcome in figure.outcomes if outcome.reason)),
        "span_ns": figure.span_ns,
        "busy_ns": figure.busy_ns,
        "clock_mhz": figure.clock_mhz,
        "cycles": figure.cycles,
        "joules": figure.joules,
        "tflops": figure.tflops,
        "is_new": figure.arm == report.new.name,
        "is_sota": figure.arm == row.sota,
        "is_best_known": figure.arm == row.best_known,
        "host_bound": figure.arm in row.host_bound,
        "ratio_median": paired.median if paired else None,
        "ratio_min": paired.min if paired else None,
        "ratio_max": paired.max if paired else None,
        "ratio_busy_median": paired.busy_median if paired else None,
        "ratio_spread": paired.spread if paired else None,
    }


def _skipped(report: Report) -> Iterator[dict[str, object]]:
    for limit in report.limits_of("skipped"):
        for row in limit.rows:
            of_case = _of_case(report, row.device, row.regime, row.case)
            yield {**of_case, "status": "skipped", "reason": limit.reason}
