"""The page ``markdown``: the table of rounds for a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from harness.pages.markdown.escape import escape
from harness.pages.markdown.table import table as pipe_table
from harness.pages.rounds.summary import Cell, Table, Tests
from harness.rounds.model import ROLES, Role

NOTHING = "-"
MODE_TITLE = {"pre-sleep": "Pre-sleep", "back-to-back": "Back-to-back"}


def render_page(table: Table) -> str:
    """Return the page, the same bytes for the same table."""
    parts = (
        _title(table),
        _results(table),
        _beside(table),
        _items("Cells without a value in some rounds:", _reasons(table)),
        _items("Rounds that failed:", _failures(table)),
        _items("Measured on:", _machines(table)),
        _meaning(table),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(table: Table) -> str:
    run, plan = table.run, table.run.plan
    arms = f"baseline `{escape(plan.baseline.arm)}`, new `{escape(plan.new.arm)}`"
    processes = "fresh processes every round" if plan.isolate == "process" else "one session of processes"
    protocol = (
        f"{len(run.done)} of {plan.rounds} rounds, load order {plan.order}; {plan.iterations} iterations; {plan.ranks}"
        f" {'rank' if plan.ranks == 1 else 'ranks'}, {processes}; timer {escape(plan.timer)}; seed {plan.seed};"
        f" revision {escape(run.revision)}; method {run.method_version}; run {escape(run.run_id)}"
    )
    return f"## Rounds: {arms}\n\n{protocol}."


def _results(table: Table) -> str:
    headers = {
        "case": "case",
        "mode": "mode",
        "baseline": "baseline (ms)",
        "new": "new (ms)",
        "speedup": "speedup",
        "p": "p",
    }
    return pipe_table(
        headers,
        [
            {
                "case": escape(cell.case.case_id),
                "mode": MODE_TITLE[cell.mode],
                "baseline": _ms(cell.all.baseline_ns),
                "new": _ms(cell.all.new_ns),
                "speedup": _speedup(cell.all.speedup),
                "p": _p(cell.tests.p if cell.tests else None),
            }
            for cell in table.cells
        ],
    )


def _beside(table: Table) -> str:
    headers = {
        "case": "case",
        "mode": "mode",
        "n": "rounds",
        "effect": "Hodges-Lehmann speedup [95 % interval]",
        "superiority": "new faster, of all pairs",
        "holm": "p, Holm",
        "least": "smallest p in reach",
        "paired": "p, signed rank",
        "least_paired": "smallest in reach",
        "baseline": "baseline loaded first: ms, ms, speedup",
        "new": "new loaded first: ms, ms, speedup",
        "lag1": "lag-1 of baseline, new, pairs",
    }
    return pipe_table(headers, [_beside_row(cell) for cell in table.cells])


def _beside_row(cell: Cell) -> dict[str, str]:
    tests, lag1 = cell.tests, cell.autocorrelation
    return {
        "case": escape(cell.case.case_id),
        "mode": MODE_TITLE[cell.mode],
        "n": str(cell.all.n),
        "effect": _effect(tests),
        "superiority": f"{tests.superiority:.2f}" if tests else NOTHING,
        "holm": _p(tests.p_holm if tests else None),
        "least": _p(tests.min_p if tests else None),
        "paired": _p(tests.p_signed_rank if tests else None),
        "least_paired": _p(tests.min_p_signed_rank if tests else None),
        **{role: _by_order(cell, role) for role in ROLES},
        "lag1": ", ".join(NOTHING if r is None else f"{r:.2f}" for r in (lag1.baseline, lag1.new, lag1.ratio)),
    }


def _effect(tests: Tests | None) -> str:
    if tests is None:
        return NOTHING
    found = tests.speedup
    ends = f"{_speedup(found.low)}, {_speedup(found.high)}" if found.bounded else "n/a"
    return f"{_speedup(found.estimate)} [{ends}]"


def _by_order(cell: Cell, first: Role) -> str:
    medians = cell.by_order[first]
    return f"{_ms(medians.baseline_ns)}, {_ms(medians.new_ns)}, {_speedup(medians.speedup)} (n = {medians.n})"


def _reasons(table: Table) -> Iterator[str]:
    for cell in table.cells:
        for reason, rounds in cell.reasons.items():
            yield f"{escape(cell.case.case_id)}, {MODE_TITLE[cell.mode]}, {rounds} x {escape(reason)}"


def _failures(table: Table) -> Iterator[str]:
    for played in table.failures:
        again = "; measured again" if played.index in table.run.done else ""
        yield f"round {played.index}: {escape(played.failure)}{again}"


def _machines(table: Table) -> Iterator[str]:
    for place, machine in enumerate(table.run.machines):
        facts = chain(machine.versions.items(), machine.settings.items())
        said = ", ".join((machine.product, machine.arch, *(f"{name} {value}" for name, value in facts)))
        yield escape(f"{_whose(table, place)}{said}")


def _whose(table: Table, machine: int) -> str:
    """Return the role that alone ran there, as a heading; nothing where both did."""
    here = [report for played in table.run.rounds for report in played.reports if report.machine == machine]
    roles = {timing.role for report in here for timing in report.timings}
    return f"{roles.pop()}: " if len(roles) == 1 else ""


def _items(title: str, items: Iterator[str]) -> str:
    listed = [f"- {item}" for item in items]
    return "\n".join((title, "", *listed)) if listed else ""


def _meaning(table: Table) -> str:
    return (
        "A round's value is the largest over ranks of each rank's median over its iterations; a cell shows the medians"
        " over rounds, and speedup = baseline / new: above 1, new is faster. p is the exact one-sided Mann-Whitney U of"
        f" the rounds' values (alternative: new is faster); Holm adjusts it for the {len(table.cells)} cells of the"
        " table; the signed rank compares the two arms within each round. Both take rounds for independent: where"
        " lag-1 is far from 0 they are too small."
    )


def _ms(ns: float | None) -> str:
    return NOTHING if ns is None else f"{ns / 1e6:.4f}"


def _speedup(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}x"


def _p(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3g}"
