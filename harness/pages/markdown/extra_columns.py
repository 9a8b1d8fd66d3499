"""The columns of the per-row table that ``--columns`` adds; this file is their list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.errors import UsageError
from harness.model.figures import ArmFigure, ReportRow, RowFloor
from harness.model.report import SOTA, Report
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.floors import CLOSED
from harness.pages.markdown.numbers import NOTHING, four_digits, joules, percent, speedup, speedup_range, time_unit


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
    "floor": "measured floor, what binds it, new over it, and how much of the way from SOTA to it new closes",
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
    if name == "floor":
        return _floor(report, rows)
    if name == "gap":
        return _per_arm(arms, name, "gap", lambda f: percent(f.gap))
    if name == "joules":
        return _per_arm(arms, name, "energy (J)", lambda f: NOTHING if f.joules is None else joules(f.joules))
    if name == "tflops":
        return _per_arm(arms, name, "TFLOP/s", lambda f: NOTHING if f.tflops is None else four_digits(f.tflops))
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


def _floor(report: Report, rows: Sequence[ReportRow]) -> list[TableColumn]:
    unit = time_unit(row.floor.floor.ns for row in rows if row.floor)
    columns: dict[str, Callable[[RowFloor], str]] = {
        f"floor ({unit.name})": lambda of: unit.format(of.floor.ns),
        "bound by": lambda of: of.floor.binds,
        f"{escape(report.new.name)} / floor": lambda of: NOTHING if of.new is None else speedup(of.new),
        CLOSED: lambda of: _closed(report, of),
    }

    def column(title: str, cell: Callable[[RowFloor], str]) -> TableColumn:
        return TableColumn(
            name=f"floor {title}", header=title, cell=lambda row: NOTHING if row.floor is None else cell(row.floor)
        )

    return [column(title, cell) for title, cell in columns.items()]


def _closed(report: Report, of: RowFloor) -> str:
    return f"{words.column(report, SOTA)} has no time" if of.sota is None else percent(of.closed)


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
