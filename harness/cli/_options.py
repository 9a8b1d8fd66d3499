"""Options that mean the same in every command, and what they select."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from harness import arms as arm_files
from harness import cases as case_rules
from harness import shapes as shape_files
from harness.arms import Arm
from harness.arms._previous import PreviousArm
from harness.errors import UnknownName, UsageError
from harness.model.case import OPS, Case
from harness.model.run import SuiteCount
from harness.paths import data

# The contract's letters in the order in which tables name them.
_KEYS = "tcdgaq"
REFERENCE_ARM = "reference"

LONGEST_S = 8760 * 3600
"""A year: a longer limit is a slip of the pen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the options that choose rows and arms were given."""

    suites: tuple[str, ...]
    adhoc: tuple[str, ...]
    globs: tuple[str, ...]
    ops: str | None
    arms: str | None
    shapes_file: Path | None

    def refuse_other_than(self, taken: Collection[str], who: str) -> None:
        """Raise if an option outside ``taken`` was given: ``who`` would ignore it."""
        for field in fields(self):
            if getattr(self, field.name) and field.name not in taken:
                raise UsageError(f"{FLAGS[field.name]} does not apply to {who}; leave it out")


FLAGS = {
    "suites": "--suite",
    "adhoc": "--shape",
    "globs": "--case",
    "ops": "--op",
    "arms": "--arm",
    "shapes_file": "--shapes",
}


def selection(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that choose rows and arms; the command gets them as one ``chosen``."""

    @wraps(command)
    def with_selection(**values: Any) -> int:
        chosen = Selection(**{field.name: values.pop(field.name) for field in fields(Selection)})
        return command(chosen=chosen, **values)

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
            help="Only these arms, in this order; all: every arm. Default: all but reference. In both, those of another"
            " revision only with --previous.",
        ),
        click.option(
            "--shapes",
            "shapes_file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Another shapes.yaml. Default: the one that comes with cake-bench.",
        ),
    )
    wrapped: Callable[..., int] = with_selection
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def read_shapes(path: Path | None) -> shape_files.Shapes:
    """Return the shapes of ``path``, or those that come with the harness."""
    return shape_files.load(path or data("shapes.yaml"))


def select_cases(shapes: shape_files.Shapes, chosen: Selection) -> tuple[tuple[Case, ...], tuple[SuiteCount, ...]]:
    """Return the chosen cases, in the order of the suites, and the sizes of the suites before filters.

    Raises
    ------
    UsageError
        Neither a suite nor a shape was given, a name is unknown, or a filter matches nothing.
    """
    if not chosen.suites and not chosen.adhoc:
        known = ", ".join(case_rules.suites(shapes))
        raise UsageError(
            f"nothing to do: give --suite NAME (known: {known}) or --shape SPEC; see cake-bench run --help"
        )
    ops = split_ops(chosen.ops)
    suites = tuple(dict.fromkeys(chosen.suites))
    cases = [case for suite in suites for case in case_rules.cases(shapes, suite)]
    cases += [case for spec in chosen.adhoc for case in case_rules.adhoc(spec, ops or None)]
    counts = tuple(count for suite in suites for count in case_rules.suite_counts(shapes, suite))
    return case_rules.select(tuple(cases), case_globs=chosen.globs, ops=ops), counts


def split_ops(ops: str | None) -> tuple[str, ...]:
    """Return the operations of a comma-separated list; none given means all."""
    names = tuple(name.strip() for name in ops.split(",")) if ops else ()
    for name in names:
        if name not in OPS:
            raise UnknownName("operation", name, OPS)
    return names


def select_arms(names: str | None, *, previous: bool = False) -> tuple[Arm, ...]:
    """Return the arms of a comma-separated list in that order; by default all but the reference, ours first.

    ``all`` is every arm: the reference computes in FP32 and takes most of a large suite's time. Those of another
    revision are in both only where there is one: ``previous``.
    """
    if names is None or names == "all":
        every = [arm_files.load(name) for name in arm_files.names() if names or name != REFERENCE_ARM]
        here = (arm for arm in every if previous or not isinstance(arm, PreviousArm))
        return tuple(sorted(here, key=_table_order))
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
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", value)
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    if not 0 < seconds <= LONGEST_S:
        raise click.BadParameter(f"{value!r} must be a positive duration such as 90s, 9m or 1.5h, at most 8760h")
    return round(seconds * 1e9)
