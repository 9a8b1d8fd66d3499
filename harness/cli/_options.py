"""Options that mean the same in every command, and what they select."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from harness import arms as arm_files
from harness import cases as case_rules
from harness import shapes as shape_files
from harness.arms import Arm
from harness.errors import UnknownName, UsageError
from harness.model.case import OPS, Case
from harness.model.run import SuiteCount
from harness.paths import data

Command = TypeVar("Command", bound=Callable[..., Any])

# The contract's letters in the order in which tables name them.
_KEYS = "tcdgaq"
REFERENCE_ARM = "reference"


def selection(command: Command) -> Command:
    """Add the options that choose rows and arms."""
    options = (
        click.option(
            "--suite", "suites", multiple=True, metavar="NAME", help="Suite of shapes.yaml; may be given again."
        ),
        click.option(
            "--shape",
            "adhoc",
            multiple=True,
            metavar="SPEC",
            help="A shape of your own: E=8,M=65536,N=4096,K=7168,dist=lognormal:0.35; may be given again.",
        ),
        click.option(
            "--case", "globs", multiple=True, metavar="GLOB", help="Only rows whose name matches, e.g. '*E4*skew*'."
        ),
        click.option("--op", "ops", metavar="OP[,OP]", help=f"Only these operations of {', '.join(OPS)}."),
        click.option(
            "--arm",
            "arms",
            metavar="ARM[,ARM]",
            help="Only these arms, in this order; all: every arm. Default: all but reference.",
        ),
        click.option(
            "--shapes",
            "shapes_file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Another shapes.yaml. Default: the one that comes with cake-bench.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_shapes(path: Path | None) -> shape_files.Shapes:
    """Return the shapes of ``path``, or those that come with the harness."""
    return shape_files.load(path or data("shapes.yaml"))


def select_cases(
    shapes: shape_files.Shapes, suites: tuple[str, ...], adhoc: tuple[str, ...], globs: tuple[str, ...], ops: str | None
) -> tuple[tuple[Case, ...], tuple[SuiteCount, ...]]:
    """Return the chosen cases, in the order of the suites, and the sizes of the suites before filters.

    Raises
    ------
    UsageError
        Neither a suite nor a shape was given, a name is unknown, or a filter matches nothing.
    """
    if not suites and not adhoc:
        known = ", ".join(case_rules.suites(shapes))
        raise UsageError(
            f"nothing to do: give --suite NAME (known: {known}) or --shape SPEC; see cake-bench run --help"
        )
    chosen_ops = split_ops(ops)
    cases = [case for suite in dict.fromkeys(suites) for case in case_rules.cases(shapes, suite)]
    cases += [case for spec in adhoc for case in case_rules.adhoc(spec, chosen_ops or None)]
    counts = tuple(count for suite in dict.fromkeys(suites) for count in case_rules.suite_counts(shapes, suite))
    return case_rules.select(tuple(cases), case_globs=globs, ops=chosen_ops), counts


def split_ops(ops: str | None) -> tuple[str, ...]:
    """Return the operations of a comma-separated list; none given means all."""
    names = tuple(name.strip() for name in ops.split(",")) if ops else ()
    for name in names:
        if name not in OPS:
            raise UnknownName("operation", name, OPS)
    return names


def select_arms(names: str | None) -> tuple[Arm, ...]:
    """Return the arms of a comma-separated list in that order; by default all but the reference, ours first.

    ``all`` is every arm: the reference computes in FP32 and takes most of a large suite's time.
    """
    if names is None or names == "all":
        every = [arm_files.load(name) for name in arm_files.names() if names or name != REFERENCE_ARM]
        return tuple(sorted(every, key=_table_order))
    asked = [name.strip() for name in names.split(",")]
    twice = sorted({name for name in asked if asked.count(name) > 1})
    if twice:
        raise UsageError(f"--arm names {', '.join(twice)} twice; name each arm once")
    return tuple(arm_files.load(name) for name in asked)


def _table_order(arm: Arm) -> tuple[bool, str, int, str]:
    info = arm.info
    place = _KEYS.find(info.key) if info.key else len(_KEYS)
    ours = {"cake_nondet": "0", "cake_det": "1"}.get(info.name, "2") if info.is_cake else ""
    return (not info.is_cake, ours, place if place >= 0 else len(_KEYS), info.name)


def duration_ns(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:  # noqa: ARG001 - click's
    """Return a duration such as ``90s``, ``9m`` or ``1.5h`` (seconds where no unit is given) in nanoseconds."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", value)
    if not match or float(match[1]) <= 0:
        raise click.BadParameter(f"{value!r} must be a positive duration such as 90s, 9m or 1.5h")
    return round(float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] * 1e9)
