"""The table "Clock and energy": under which clock each arm ran, what a call cost, how busy the device was."""

from __future__ import annotations

from collections.abc import Callable

from harness.model.conditions import ClockEnergy
from harness.model.report import Report
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.numbers import NOTHING, joules, percent, speedup
from harness.pages.markdown.table import table

Cell = Callable[[ClockEnergy], str | None]


def clock_table(report: Report) -> str:
    """Return the table with the columns of which something is known; empty where nothing is."""
    entries = report.clock_energy
    several = len({entry.device for entry in entries}) > 1
    columns: dict[str, Cell] = {
        "device": lambda entry: escape(entry.device) if several else None,
        "regime": lambda entry: escape(entry.regime),
        "operation": lambda entry: entry.op,
        "arm": lambda entry: escape(words.with_key(report, entry.arm)),
        "rows": lambda entry: str(entry.rows),
        "clock (MHz), lowest-highest row": _clock,
        "energy of a call (J)": lambda entry: None if entry.joules is None else joules(entry.joules),
        f"energy, arm / {escape(report.new.name)}": lambda entry: _maybe(entry.joules_ratio),
        "energy / span (W)": lambda entry: None if entry.watts is None else f"{entry.watts:.0f}",
        "busy / span": lambda entry: None if entry.busy_share is None else percent(entry.busy_share),
    }
    rows = [{title: cell(entry) for title, cell in columns.items()} for entry in entries]
    known = [title for title in columns if any(row[title] is not None for row in rows)]
    return (
        table({title: title for title in known}, [{t: row[t] or NOTHING for t in known} for row in rows])
        if rows
        else ""
    )


def energy_note(report: Report) -> str:
    """Return what the energy holds; empty where none is known."""
    if all(entry.joules is None for entry in report.clock_energy):
        return ""
    return (
        "Energy is the board's counter over a whole block divided by its calls, the flush before each call and the"
        " block's first third included. The counter moves about ten times a second, so that a block's energy can hold"
        " a piece of its neighbour's: over 0.4 s one reading is good to about 10 %, over 0.2 s to 40 %, and"
        " energy / span is no power reading. Energy ratios are arm / new: above 1, new takes less."
    )


def _clock(entry: ClockEnergy) -> str | None:
    if entry.clock_mhz is None or entry.clock_range is None:
        return None
    low, high = f"{entry.clock_range.low:.0f}", f"{entry.clock_range.high:.0f}"
    return low if low == high else f"{entry.clock_mhz:.0f} ({low}-{high})"


def _maybe(ratio: float | None) -> str | None:
    return None if ratio is None else speedup(ratio)
