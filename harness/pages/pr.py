"""The page ``pr``: a report in Markdown for a pull request or a README.

What is faster and how sure comes first, then what failed or is missing, then the machines and every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.model.report import PREVIOUS_OF, Report
from harness.pages.markdown import words
from harness.pages.markdown.aa import aa_meaning, aa_table, noise_floor
from harness.pages.markdown.changed import what_changed
from harness.pages.markdown.clock_table import clock_table, energy_note
from harness.pages.markdown.coverage import coverage_lines, excluded_lines, failure_lines
from harness.pages.markdown.environment import cost_lines, environment_line, state_lines
from harness.pages.markdown.escape import escape
from harness.pages.markdown.extra_columns import check_columns
from harness.pages.markdown.floors import floor_rates, floor_table, without_floor
from harness.pages.markdown.geomean_table import geomean_table
from harness.pages.markdown.headline import first_column, headlines
from harness.pages.markdown.items import Item, bullets
from harness.pages.markdown.numbers import NOTHING, counted
from harness.pages.markdown.records import record_lines
from harness.pages.markdown.row_table import row_table
from harness.pages.markdown.shapes import operations_and_shapes
from harness.pages.markdown.side_by_side import side_by_side
from harness.pages.markdown.standing import standing_paragraphs
from harness.pages.markdown.table import table
from harness.pages.markdown.terms import terms
from harness.render import render

TEMPLATE = "pr.md.j2"

FOLD_BYTES = 60_000
"""A longer page (UTF-8) folds its per-row tables."""

COMMENT_CHARACTERS = 65_536
"""GitHub takes no longer comment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeSection:
    """The per-row table of one regime; ``title`` is empty where the device has only one."""

    title: str
    count: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSection:
    """One model of device: an environment line a machine with what its driver said, a table a regime."""

    title: str
    environments: str
    regimes: tuple[RegimeSection, ...]


def render_page(report: Report, *, columns: Sequence[str] = (), what: str = "") -> str:
    """Return the page; ``columns`` are extra columns of the per-row tables, ``what`` stands under the title.

    Raises
    ------
    UsageError
        A column is unknown.
    """
    context = {**_context(report, check_columns(columns)), "what": escape(what)}
    page = render(TEMPLATE, {**context, "folded": False, "too_long": False})
    if len(page.encode()) <= FOLD_BYTES:
        return page
    page = render(TEMPLATE, {**context, "folded": True, "too_long": False})
    if len(page) <= COMMENT_CHARACTERS:
        return page
    return render(TEMPLATE, {**context, "folded": True, "too_long": True})


def _context(report: Report, columns: Sequence[str]) -> dict[str, object]:
    return {
        "new": escape(report.new.name),
        "first": words.column(report, first_column(report)),
        "headlines": headlines(report),
        "noise_floor": noise_floor(report),
        "measured": _measured(report),
        "shapes": operations_and_shapes(report),
        "scripted": report.timer == "scripted",
        "fold_bytes": f"{FOLD_BYTES:,}",
        "comment_characters": f"{COMMENT_CHARACTERS:,}",
        "failures": bullets(failure_lines(report)),
        "changed": what_changed(report),
        "geomeans": geomean_table(report),
        "standings": standing_paragraphs(report),
        "floors": floor_table(report),
        "floor_rates": floor_rates(report),
        "without_floor": without_floor(report),
        "aa": aa_table(report),
        "aa_meaning": aa_meaning(report),
        "clocks": clock_table(report),
        "energy_note": energy_note(report),
        "records": record_lines(report),
        "limits": bullets((*coverage_lines(report), *excluded_lines(report))),
        "arms": _arms(report),
        "side_by_side": side_by_side(report),
        "devices": _devices(report, columns),
        "terms": terms(report),
    }


def _measured(report: Report) -> str:
    """Return what was measured: rows, suites, arms, machines, inputs."""
    cases = list(dict.fromkeys(row.case for row in report.rows))
    suites = ", ".join(escape(suite) for suite in dict.fromkeys(case.suite for case in cases))
    rows = (
        f"{counted(len(cases), 'row')} ({words.by_op(cases)}) of {suites}{_in_regimes(report)}" if cases else "no row"
    )
    arms = sum(not arm.twin_of for arm in report.arms)
    seeds = ", ".join(str(seed) for seed in report.seeds)
    return (
        f"Measured: {rows}; {counted(arms, 'arm')} on {counted(len(report.environments), 'machine')};"
        f" {escape(report.heading)}; inputs from seed {seeds}; method version {report.method_version}."
    )


def _in_regimes(report: Report) -> str:
    """Return how many rows each regime has, where there are several."""
    regimes = Counter({row.regime: 0 for row in report.rows})
    regimes.update(regime for regime, _ in {(row.regime, row.case) for row in report.rows})
    if len(regimes) == 1:
        return ""
    if len(set(regimes.values())) == 1:
        return f", each in {', '.join(map(escape, regimes))}"
    return ", " + ", ".join(f"{n} in {escape(regime)}" for regime, n in regimes.items())


def _arms(report: Report) -> str:
    """Return the arms that have a time; why another has none stands under the coverage limits. Empty without one."""
    headers = {"arm": "arm", "key": "key", "role": "role", "rows": "rows with a time", "note": "note"}
    rows = []
    for arm in report.arms:
        role = "new" if arm.name == report.new.name else ("ours" if arm.is_cake else "baseline")
        role = "previous" if arm.name == PREVIOUS_OF.get(report.new.name) else role
        role = "A/A twin" if arm.twin_of else role
        figures = [figure for row in report.rows if (figure := row.figure(arm.name)) is not None]
        timed = sum(figure.status == "measured" for figure in figures)
        if not timed:
            continue
        rows.append(
            {
                "arm": escape(arm.name),
                "key": escape(arm.key) or NOTHING,
                "role": role,
                "rows": f"{timed} of {len(report.rows)}",
                "note": escape(arm.note) or NOTHING,
            }
        )
    return table(headers, rows) if rows else ""


def _devices(report: Report, columns: Sequence[str]) -> tuple[DeviceSection, ...]:
    return tuple(
        DeviceSection(
            title=escape(device),
            environments=bullets(
                Item(line=environment_line(report, e), below=(*state_lines(e), *cost_lines(e)))
                for e in report.environments
                if e.device == device
            ),
            regimes=_regimes(report, device, columns),
        )
        for device in dict.fromkeys(environment.device for environment in report.environments)
    )


def _regimes(report: Report, device: str, columns: Sequence[str]) -> tuple[RegimeSection, ...]:
    regimes = list(dict.fromkeys(row.regime for row in report.rows if row.device == device))
    sections = []
    for regime in regimes:
        rows = [row for row in report.rows if (row.device, row.regime) == (device, regime)]
        title = escape(regime) if len(regimes) > 1 else ""
        sections.append(
            RegimeSection(title=title, count=counted(len(rows), "row"), table=row_table(report, rows, columns=columns))
        )
    return tuple(sections)
