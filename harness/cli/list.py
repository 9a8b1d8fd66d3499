"""``cake-bench list``: suites, cases, arms with why they cannot run, timers, programs."""

from __future__ import annotations

from pathlib import Path

import click

from harness import arms as arm_files
from harness import cases as case_rules
from harness import devices, timers
from harness.cli._options import read_shapes, select_arms, select_cases, selection
from harness.errors import ExitCode
from harness.machine import read_machine
from harness.model.machine import Machine
from harness.profile import ncu_line
from harness.shapes import Shapes

WHAT = ("suites", "cases", "arms", "timers", "programs", "profile")
NEED_ROWS = ("cases", "profile")


@click.command()
@click.argument("what", type=click.Choice(WHAT), required=False)
@selection
def command(
    what: str | None,
    suites: tuple[str, ...],
    adhoc: tuple[str, ...],
    globs: tuple[str, ...],
    ops: str | None,
    arms: str | None,
    shapes_file: Path | None,
) -> int:
    """List suites, cases, arms, timers, programs, or the Nsight Compute line of each row and arm.

    Without an argument: all but the cases and the lines.

    \b
    Examples:
      cake-bench list
      cake-bench list cases --suite moe-training --op dW
      cake-bench list arms --suite smoke
      cake-bench list profile --suite smoke --op dW --case '*M777 bal' --arm cublas_loop
    """
    shapes = read_shapes(shapes_file)
    machine = read_machine("cuda" if devices.names()[0] == "cuda" else "cpu")
    chosen = (what,) if what else tuple(name for name in WHAT if name not in NEED_ROWS)
    for name in chosen:
        if not what:
            click.echo(f"{name}:")
        for line in _lines(name, shapes, machine, suites, adhoc, globs, ops, arms):
            click.echo(line if what else f"  {line}")
    return ExitCode.OK


def _lines(
    what: str,
    shapes: Shapes,
    machine: Machine,
    suites: tuple[str, ...],
    adhoc: tuple[str, ...],
    globs: tuple[str, ...],
    ops: str | None,
    arms: str | None,
) -> list[str]:
    if what == "suites":
        return [_suite_line(shapes, suite) for suite in case_rules.suites(shapes)]
    if what == "cases":
        cases, _ = select_cases(shapes, suites or case_rules.suites(shapes), adhoc, globs, ops)
        return [
            f"{c.suite}: {c.case_id} (E={c.shape.E} M={c.shape.M} N={c.shape.N} K={c.shape.K}, {c.shape.distribution})"
            for c in cases
        ]
    if what == "profile":
        cases, _ = select_cases(shapes, suites, adhoc, globs, ops)
        return [ncu_line(case, arm.info.name) for case in cases for arm in select_arms(arms)]
    if what == "arms":
        return _arm_lines(shapes, machine, suites, adhoc, globs, ops, arms)
    if what == "timers":
        return [f"{name}: {timers.why_not(name, machine) or 'can be used here'}" for name in timers.names()]
    return _program_lines()


def _suite_line(shapes: Shapes, suite: str) -> str:
    counts = case_rules.suite_counts(shapes, suite)
    by_op = {op: sum(c.count for c in counts if c.op == op) for op in dict.fromkeys(c.op for c in counts)}
    return f"{suite}: {sum(by_op.values())} rows (" + ", ".join(f"{op} {n}" for op, n in by_op.items()) + ")"


def _arm_lines(
    shapes: Shapes,
    machine: Machine,
    suites: tuple[str, ...],
    adhoc: tuple[str, ...],
    globs: tuple[str, ...],
    ops: str | None,
    arms: str | None,
) -> list[str]:
    """One line an arm; with rows chosen, each distinct reason with the number of rows that it holds for."""
    cases, _ = select_cases(shapes, suites or ("smoke",), adhoc, globs, ops)
    lines = []
    for arm in select_arms(arms or ",".join(arm_files.names())):
        key = f" ({arm.info.key})" if arm.info.key else ""
        reasons = [arm.why_not(case, machine) for case in cases]
        counts = {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}
        said = "; ".join(
            f"{'can do' if reason is None else 'cannot do'} {n} of {len(cases)} rows"
            + (f": {reason}" if reason else "")
            for reason, n in counts.items()
        )
        lines.append(f"{arm.info.name}{key}: {said}")
    return lines


def _program_lines() -> list[str]:
    from cake_kernels import registry

    found = [f"{p.op} {p.variant} {p.arch} {p.out_dtype}: {p.stem}" for p in registry.programs()]
    return found or ["none yet: cake_kernels has its contract and its reference, and no device program"]
