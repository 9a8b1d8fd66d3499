"""The columns of the per-row table that ``--columns`` adds; this file is their list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.errors import UsageError
from harness.model.figures import ArmFigure, ReportRow
from harness.model.report import Report
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.numbers import NOTHING, joules, percent, speedup_range, time_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of the per-row table: unique name, header, and a row's cell."""

    name: str
    header: str
    cell: Callable[[ReportRow], str]


EXTRA_COLUMNS: dict[str, str] = {
    "aa": "A/A: an arm over its twin, the same call; what is not 1.0 is noise",
    "busy": "busy time of each arm: the union of its kernels' intervals",
    "calls": "calls behind each arm's figures",
    "check": "worst error of each arm as a part of its limit; it passes up to 1",
    "class": "row class, whose geomean the row enters",
    "clock": "SM clock of each arm in MHz",
    "cycles": "span x SM clock of each arm",
    "gap": "part of each arm's span in which nothing ran",
    "joules": "energy of a call of each arm in J, the flush before it included",
    "n": "paired groups behind the row",
    "note": "what an arm chose for the row",
    "sizes": "E, M, N, K and the group sizes",
    "spread": "(max - min) / median of the row's ratios, first six groups",
    "suite": "the suite that the row comes from",
    "tflops": "TFLOP/s of each arm: FLOPs of the rows that exist over the span",
}
"""Name -> what it shows."""


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns, each once.

    Raises
    ------
    UsageError
        One is unknown; the message lists the known ones.
    """
    for name in columns:
        if name not in EXTRA_COLUMNS:
            raise UsageError(f"column {name!r} is not known; known: {', '.join(EXTRA_COLUMNS)}")
    return tuple(dict.fromkeys(columns))


def extra_columns(
    report: Report, rows: Sequence[ReportRow], arms: Sequence[str], names: Sequence[str]
) -> list[TableColumn]:
    """Return the columns called ``names``, in that order; some are one a timed arm (``arms``)."""
    return [column for name in names for column in _extra(report, rows, arms, name)]


def _extra(report: Report, rows: Sequence[ReportRow], arms: Sequence[str], name: str) -> list[TableColumn]:
    if name == "aa":
        return [_aa(arm.name, arm.twin_of) for arm in report.arms if arm.twin_of]
    if name == "busy":
        unit = time_unit(f.busy_ns for row in rows for f in row.figures)
        return _per_arm(arms, name, f"busy ({unit.name})", lambda f: unit.format(f.busy_ns))
    if name == "calls":
        return _per_arm(arms, name, "calls", lambda f: _rounded(f.calls))
    if name == "check":
        return _per_arm(arms, name, "worst error / limit", _worst)
    if name == "clock":
        return _per_arm(arms, name, "clock (MHz)", lambda f: _rounded(f.clock_mhz))
    if name == "cycles":
        return _per_arm(arms, name, "cycles", lambda f: _rounded(f.cycles))
    if name == "gap":
        return _per_arm(arms, name, "gap", lambda f: percent(f.gap))
    if name == "joules":
        return _per_arm(arms, name, "energy (J)", lambda f: NOTHING if f.joules is None else joules(f.joules))
    if name == "tflops":
        return _per_arm(arms, name, "TFLOP/s", lambda f: NOTHING if f.tflops is None else _four_digits(f.tflops))
    if name == "spread":
        return [_spread(report, against) for against in report.columns]
    one: dict[str, Callable[[ReportRow], str]] = {
        "class": lambda row: escape(row.case.shape.row_class),
        "n": lambda row: str(row.n),
        "note": _notes,
        "sizes": _sizes,
        "suite": lambda row: escape(row.case.suite),
    }
    return [TableColumn(name=name, header="group sizes" if name == "sizes" else name, cell=one[name])]


def _per_arm(arms: Sequence[str], name: str, title: str, cell: Callable[[ArmFigure], str]) -> list[TableColumn]:
    def column(arm: str) -> TableColumn:
        def of_row(row: ReportRow) -> str:
            figure = row.figure(arm)
            return NOTHING if figure is None else cell(figure)

        return TableColumn(name=f"{name} {arm}", header=f"{escape(arm)} {title}", cell=of_row)

    return [column(arm) for arm in arms]


def _aa(twin: str, arm: str) -> TableColumn:
    def of_row(row: ReportRow) -> str:
        ratio = next((ratio for ratio in row.aa if ratio.against == twin), None)
        return NOTHING if ratio is None else speedup_range(ratio)

    return TableColumn(name=f"aa {twin}", header=f"A/A {escape(arm)}", cell=of_row)


def _spread(report: Report, against: str) -> TableColumn:
    def of_row(row: ReportRow) -> str:
        ratio = row.ratio(against)
        if ratio is None:
            return NOTHING
        return "n/a" if ratio.spread is None else percent(ratio.spread)

    return TableColumn(name=f"spread {against}", header=f"spread of {words.direction(report, against)}", cell=of_row)


def _worst(figure: ArmFigure) -> str:
    checks = [outcome.check.worst for outcome in figure.outcomes if outcome.check is not None]
    return f"{max(checks):.2g}" if checks else NOTHING


def _notes(row: ReportRow) -> str:
    notes = [
        f"{escape(figure.arm)}: {escape(note)}"
        for figure in row.figures
        for note in dict.fromkeys(outcome.note for outcome in figure.outcomes if outcome.note)
    ]
    return "; ".join(notes) or NOTHING


def _sizes(row: ReportRow) -> str:
    """Return the sizes in order, equal neighbours as ``size × count``."""
    shape = row.case.shape
    runs = ((size, len(list(same))) for size, same in groupby(shape.group_sizes))
    sizes = ", ".join(f"{size} × {count}" if count > 1 else str(size) for size, count in runs)
    return f"E {shape.E}, M {shape.M}, N {shape.N}, K {shape.K}: {sizes}"


def _rounded(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0f}"


def _four_digits(value: float) -> str:
    """Return four significant digits without an exponent: 525.2, 3.142, 0.01234."""
    if value >= 1000:
        return f"{value:.0f}"
    decimals = next((d for d, bound in ((1, 100), (2, 10), (3, 1), (4, 0.1), (5, 0.01)) if value >= bound), 6)
    return f"{value:.{decimals}f}"
