"""The environment line of a machine: what it is and has, how it was measured; what its driver said, what runs took."""

from __future__ import annotations

from harness.model.conditions import GpuStates, Held, Range
from harness.model.machine import Machine
from harness.model.report import Environment, Report, RunCost
from harness.pages.markdown.escape import escape
from harness.pages.markdown.numbers import counted

_TITLES = {"cuda": "CUDA", "driver": "driver", "torch": "torch"}
"""Versions that come first, in this order, and how they are written."""

_SHORT = {"nvidia-cudnn-frontend": "cudnn-frontend", "nvidia-cutlass-dsl": "cutlass-dsl", "quack-kernels": "quack"}

_USUAL = ("power cap", "idle")
"""Reasons for a lower clock that every GPU under load, or after it, has."""

_PROTOCOLS = {"paired_groups": "paired groups in balanced order"}


def environment_line(report: Report, environment: Environment) -> str:
    """Return the line of one machine: device; versions; settings; timer; regimes; groups; revisions; runs."""
    machine = environment.machine
    parts = [
        ", ".join((_device(machine), *_versions(machine))),
        ", ".join(f"{escape(name)} {escape(value)}" for name, value in sorted(machine.settings.items())),
        escape(report.heading),
        _regimes(environment),
        _groups(report, environment.groups),
        f"revision {revision_text(report.revision)}",
        f"previous revision {revision_text(report.previous_revision)}" if report.previous_revision else "",
        f"run {', '.join(escape(run) for run in environment.run_ids)}",
    ]
    return "; ".join(part for part in parts if part)


def state_lines(environment: Environment) -> tuple[str, ...]:
    """Return what the driver said after the groups, a line a regime; unusual reasons for a lower clock stand out."""
    return tuple(_states(states) for states in environment.states)


def cost_lines(environment: Environment) -> tuple[str, ...]:
    """Return what the rows here took, a line a run."""
    return tuple(_cost(of_run) for of_run in environment.costs)


def _states(states: GpuStates) -> str:
    held = "; ".join(_held(held, states.groups) for held in states.held) or "no reason for a lower clock"
    return (
        f"{escape(states.regime)}, after each of {counted(states.groups, 'group')}: {_range(states.power_w)} W,"
        f" {_range(states.temperature_c)} °C; {held}"
    )


def _held(held: Held, groups: int) -> str:
    said = f"{escape(held.reason)} in {held.groups} of {groups}"
    return said if held.reason in _USUAL else f"**{said}**"


def _cost(of_run: RunCost) -> str:
    cost = of_run.cost
    rows = counted(of_run.run_rows, "row")
    return (
        f"run {escape(of_run.run_id)} took {cost.elapsed_ns / 1e9:.0f} s for"
        f" {rows if cost.rows == of_run.run_rows else f'{cost.rows} of its {rows}'}, {100 * cost.share:.0f} % of it in"
        " calls that count"
    )


def _range(found: Range) -> str:
    low, high = f"{found.low:.0f}", f"{found.high:.0f}"
    return low if low == high else f"{low}-{high}"


def _device(machine: Machine) -> str:
    units = "SMs" if machine.device == "cuda" else "cores"
    board = f", board {escape(machine.board)}" if machine.board else ""
    return f"{escape(machine.product)} ({escape(machine.arch)}, {machine.units} {units}{board})"


def _versions(machine: Machine) -> list[str]:
    first = [name for name in _TITLES if name in machine.versions]
    rest = sorted(name for name in machine.versions if name not in _TITLES)
    return [
        f"{_TITLES.get(name, escape(_SHORT.get(name, name)))} {escape(machine.versions[name])}"
        for name in (*first, *rest)
    ]


def _regimes(environment: Environment) -> str:
    names = [escape(regime) for regime in environment.regimes]
    return f"{'regime' if len(names) == 1 else 'regimes'} {', '.join(names)}" if names else ""


def _groups(report: Report, counts: tuple[int, ...]) -> str:
    if not counts:
        return ""
    n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    groups = _PROTOCOLS.get(report.protocol, f"groups by {escape(report.protocol)}")
    return f"one group a row, by {groups}" if counts == (1,) else f"median of {n} {groups}"


def revision_text(revision: str) -> str:
    """Return a revision as Markdown; one that nobody knows stands out."""
    return "*unknown*" if revision == "unknown" else escape(revision)
