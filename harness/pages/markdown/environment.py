"""The environment line of a machine: what it is, what is on it, how it was measured."""

from __future__ import annotations

from harness.model.machine import Machine
from harness.model.report import Environment, Report
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape

_TITLES = {"cuda": "CUDA", "driver": "driver", "torch": "torch"}
"""Versions that come first, in this order, and how they are written."""

_PROTOCOLS = {"paired_groups": "paired groups in balanced order"}


def environment_line(report: Report, environment: Environment) -> str:
    """Return the line of one machine: device; versions; settings; timer; groups; revision; runs."""
    machine = environment.machine
    parts = [
        ", ".join((_device(machine), *_versions(machine))),
        ", ".join(f"{escape(name)} {escape(value)}" for name, value in sorted(machine.settings.items())),
        words.timer(report.timer),
        _groups(report, environment.groups),
        f"revision {_revision(report.revision)}",
        f"run {', '.join(escape(run) for run in environment.run_ids)}",
    ]
    return "; ".join(part for part in parts if part)


def _device(machine: Machine) -> str:
    units = "SMs" if machine.device == "cuda" else "cores"
    board = f", board {escape(machine.board)}" if machine.board else ""
    return f"{escape(machine.product)} ({escape(machine.arch)}, {machine.units} {units}{board})"


def _versions(machine: Machine) -> list[str]:
    first = [name for name in _TITLES if name in machine.versions]
    rest = sorted(name for name in machine.versions if name not in _TITLES)
    return [f"{_TITLES.get(name, escape(name))} {escape(machine.versions[name])}" for name in (*first, *rest)]


def _groups(report: Report, counts: tuple[int, ...]) -> str:
    if not counts:
        return ""
    n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    groups = _PROTOCOLS.get(report.protocol, f"groups by {escape(report.protocol)}")
    return f"one group a row, by {groups}" if counts == (1,) else f"median of {n} {groups}"


def _revision(revision: str) -> str:
    return "*unknown*" if revision == "unknown" else escape(revision)
