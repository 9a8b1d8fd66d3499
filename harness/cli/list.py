"""``cake-bench list``: suites, cases, arms with why they cannot run, timers, programs."""

from __future__ import annotations

from dataclasses import replace

import click

from harness import arms as arm_files
from harness import cases as case_rules
from harness import devices, timers
from harness.arms import refusal
from harness.cli._options import Selection, read_shapes, select_arms, select_cases, selection, split_ops
from harness.errors import ExitCode
from harness.machine import read_machine
from harness.model.case import Case
from harness.model.machine import Machine
from harness.profile import ncu_line
from harness.shapes import Shapes

ROWS = ("suites", "adhoc", "globs", "ops", "shapes_file")
TAKES: dict[str, tuple[str, ...]] = {
    "suites": ("shapes_file",),
    "cases": ROWS,
    "arms": (*ROWS, "arms"),
    "timers": (),
    "programs": (),
    "profile": (*ROWS, "arms"),
}
"""What can be listed, and the options that each takes."""

OVERVIEW = ("suites", "arms", "timers", "programs")


@click.command()
@click.argument("what", type=click.Choice(tuple(TAKES)), required=False)
@selection
def command(what: str | None, chosen: Selection) -> int:
    """List suites, cases, arms, timers, programs, or the Nsight Compute line of each row and arm.

    Without an argument: all but the cases and the lines.

    \b
    Examples:
      cake-bench list
      cake-bench list cases --suite moe-training --op dW
      cake-bench list arms --suite smoke
      cake-bench list profile --suite smoke --op dW --case '*M777 bal' --arm cublas_loop
    """
    if what:
        chosen.refuse_other_than(TAKES[what], f"list {what}")
    shapes = read_shapes(chosen.shapes_file)
    machine = read_machine("cuda" if devices.names()[0] == "cuda" else "cpu")
    for name in (what,) if what else OVERVIEW:
        if not what:
            click.echo(f"{name}:")
        for line in _lines(name, shapes, machine, chosen):
            click.echo(line if what else f"  {line}")
    return ExitCode.OK


def _lines(what: str, shapes: Shapes, machine: Machine, chosen: Selection) -> list[str]:
    if what == "suites":
        return [_suite_line(shapes, suite) for suite in case_rules.suites(shapes)]
    if what == "cases":
        every = replace(chosen, suites=chosen.suites or case_rules.suites(shapes))
        return [
            f"{c.suite}: {c.case_id} (E={c.shape.E} M={c.shape.M} N={c.shape.N} K={c.shape.K}, {c.shape.distribution})"
            for c in select_cases(shapes, every)[0]
        ]
    if what == "profile":
        cases, _ = select_cases(shapes, chosen)
        found = [(case, _rows_of(case, chosen)) for case in cases]
        return [ncu_line(case, arm.info.name, rows) for case, rows in found for arm in select_arms(chosen.arms)]
    if what == "arms":
        return _arm_lines(shapes, machine, chosen)
    if what == "timers":
        return [f"{name}: {timers.why_not(name, machine.device) or 'can be used here'}" for name in timers.names()]
    return _program_lines()


def _rows_of(case: Case, chosen: Selection) -> list[str]:
    """Return the options that give the case's suite, with its file, or the shape that it was given as."""
    if case.suite == case_rules.ADHOC:
        ops = split_ops(chosen.ops) or None
        spec = next(spec for spec in chosen.adhoc if case in case_rules.adhoc(spec, ops))
        return ["--shape", spec]
    return [*(["--shapes", str(chosen.shapes_file)] if chosen.shapes_file else []), "--suite", case.suite]


def _suite_line(shapes: Shapes, suite: str) -> str:
    counts = case_rules.suite_counts(shapes, suite)
    by_op = {op: sum(c.count for c in counts if c.op == op) for op in dict.fromkeys(c.op for c in counts)}
    return f"{suite}: {sum(by_op.values())} rows (" + ", ".join(f"{op} {n}" for op, n in by_op.items()) + ")"


def _arm_lines(shapes: Shapes, machine: Machine, chosen: Selection) -> list[str]:
    """One line an arm; with rows chosen, each distinct reason with the number of rows that it holds for."""
    cases, _ = select_cases(shapes, replace(chosen, suites=chosen.suites or ("smoke",)))
    suites = "+".join(dict.fromkeys(case.suite for case in cases))
    lines = []
    for arm in select_arms(chosen.arms or ",".join(arm_files.names())):
        key = f" ({arm.info.key})" if arm.info.key else ""
        refused = [refusal(arm, case, machine) for case in cases]
        reasons = [outcome and outcome.reason for outcome in refused]
        counts = {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}
        said = "; ".join(
            f"{'can do' if reason is None else 'cannot do'} {n} of {len(cases)} rows of {suites}"
            + (f": {reason}" if reason else "")
            for reason, n in counts.items()
        )
        lines.append(f"{arm.info.name}{key}: {said}")
    return lines


def _program_lines() -> list[str]:
    from cake_kernels import registry

    found = [f"{p.op} {p.variant} {p.arch} {p.out_dtype}: {p.stem}" for p in registry.programs()]
    return found or ["none yet: cake_kernels has its contract and its reference, and no device program"]
