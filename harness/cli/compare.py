"""``cake-bench compare``: two revisions held against each other: load or measure, compare, print, choose the code."""

from __future__ import annotations

import importlib
import math
import secrets
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from enum import IntEnum
from pathlib import Path

import click

from harness import plugins, runfile
from harness.compare.comparison import Comparison, Limits
from harness.compare.environment import ALLOWABLE
from harness.compare.interleaved import compare_interleaved
from harness.compare.stored import compare_stored
from harness.errors import NothingMeasured, UnknownName, UsageError
from harness.model.run import Run
from harness.stats.mann_whitney import MOST_VALUES

FEWEST_GROUPS = 12
"""Groups a side that ``--measure`` takes at least: one changed row of hundreds is then in reach."""

MOST_GROUPS = MOST_VALUES // 2
"""Groups a side that the exact test takes at most."""


class CompareCode(IntEnum):
    """What the command returns; if several hold: 2, 1, 5, 4, 3."""

    OK = 0
    SLOWER = 1
    FAILED = 5
    NOT_COMPARABLE = 4


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="BASE [HEAD]")
@click.option(
    "--measure",
    is_flag=True,
    help="BASE is a revision or a folder, as for run --previous: measure it beside this one now, in 12 groups or more;"
    " what follows -- are options of run.",
)
@click.option("--arm", "arms", multiple=True, metavar="ARM", help="Only this arm; may be given again. Default: ours.")
@click.option(
    "--against",
    metavar="ARM",
    help="The baseline of two stored runs. Default: in each row the first with a time in both.",
)
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(ALLOWABLE),
    help="Compare although this differs; may be given again.",
)
@click.option(
    "--floor",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.01,
    show_default=True,
    help="What an effect must be known to exceed: 0.01 is 1 %.",
)
@click.option(
    "--q",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Largest false-discovery rate, of effects beyond the floor.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("markdown", "json", "csv")),
    default="markdown",
    show_default=True,
    help="Markdown for readers, or data.",
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file instead of stdout."
)
def command(
    runs: tuple[str, ...],
    measure: bool,
    arms: tuple[str, ...],
    against: str | None,
    allow: tuple[str, ...],
    floor: float,
    q: float,
    form: str,
    output: Path | None,
) -> int:
    """Say which rows of HEAD are faster or slower than those of BASE, and how sure that is.

    One run file that holds both sides, as run --previous writes it, gives an exact test. Of two run files each side's
    ratio to one baseline is compared, and nothing is concluded that is smaller than what moved between the runs.

    \b
    Examples:
      cake-bench compare reports/both.json
      cake-bench compare reports/monday.json reports/tuesday.json --allow driver
      cake-bench compare --measure HEAD~1 -- --suite moe-training --op dW --only-affected

    \b
    Exit codes:
      0    compared, nothing slower
      1    a row is slower
      2    usage, or an internal error
      3    nothing compared: no baseline, or no row with a conclusion
      4    the environments are not comparable
      5    a row failed or is missing
      130  Ctrl-C
    """
    for option, value in (("--floor", floor), ("--q", q)):
        if not math.isfinite(value):
            raise UsageError(f"{option} must be a number, got {value}")
    limits = Limits(floor=floor, q=q)
    if output is not None and not output.parent.is_dir():
        raise UsageError(f"--output {output}: the folder must exist; make it first")
    if measure:
        _refuse_stored_options(against, allow)
    files = [_measured(runs[0], runs[1:])] if measure else [Path(name) for name in runs]
    if output is not None and output.exists() and any(output.samefile(path) for path in files if path.exists()):
        raise UsageError(f"--output {output} is one of the run files; choose another name")
    comparison = _compared(files, arms=arms, against=against, allow=allow, limits=limits)
    text = importlib.import_module(f"harness.pages.compare.{form}").render_page(comparison)
    if output is None:
        click.echo(text, nl=False)
    else:
        _write(output, text)
    return exit_code(comparison)


def _compared(
    files: Sequence[Path], *, arms: Sequence[str], against: str | None, allow: Sequence[str], limits: Limits
) -> Comparison:
    if len(files) > 2:
        raise UsageError(
            f"compare takes one run file, or BASE and HEAD, got {len(files)}; cake-bench report pools more"
        )
    loaded = [runfile.load(path) for path in files]
    if loaded[0] != loaded[-1]:
        return _of_two(files, loaded, compare_stored(*loaded, arms=arms, against=against, allow=allow, limits=limits))
    _refuse_stored_options(against, allow)
    for name in arms:
        if name not in (known := tuple(info.name for info in loaded[0].arms)):
            raise UnknownName("arm", name, known)
    return compare_interleaved(loaded[0], arms=frozenset(arms), limits=limits)


def _of_two(files: Sequence[Path], loaded: Sequence[Run], comparison: Comparison) -> Comparison:
    """Return ``comparison`` with the files named, where the two runs have one name.

    Raises
    ------
    UsageError
        They began in the same second too: what both files have was measured once.
    """
    base, head = loaded
    if base.run_id != head.run_id:
        return comparison
    if base.started == head.started:
        raise UsageError(
            f"both files are run {base.run_id} of {base.started}, and differ: one is a later state of the other; give"
            " two runs"
        )
    return replace(
        comparison,
        base=replace(comparison.base, file=str(files[0])),
        head=replace(comparison.head, file=str(files[1])),
    )


def _refuse_stored_options(against: str | None, allow: Sequence[str]) -> None:
    for option, given in (("--against", against), ("--allow", allow)):
        if given:
            raise UsageError(f"{option} is for two stored runs: one run has both sides in one place; leave it out")


def exit_code(comparison: Comparison) -> CompareCode:
    """Return the exit code; of several that hold the contract's order decides: 1, 5, 4, 3.

    Raises
    ------
    NothingMeasured
        Two stored runs have no row of one name, or no row has a conclusion: what was not compared is not fine.
    """
    counts = comparison.counts
    if not comparison.matched and comparison.form == "stored":
        raise NothingMeasured("nothing compared: no row has a time under one name on both sides")
    if counts["slower"]:
        return CompareCode.SLOWER
    if counts["failed"] or counts["missing"]:
        return CompareCode.FAILED
    if counts["not comparable"]:
        return CompareCode.NOT_COMPARABLE
    if not comparison.concluded:
        raise NothingMeasured("nothing compared: no row could be called faster, slower or the same")
    return CompareCode.OK


def _measured(base: str, words: Sequence[str]) -> Path:
    """Run ``cake-bench run`` with ``base`` beside this revision, and return its run file.

    Raises
    ------
    UsageError
        ``words`` ask for fewer groups, or for something that measures nothing.
    """
    run = importlib.import_module("harness.cli.run")
    ours = [name for name in plugins.names("arms") if name.startswith(("cake_", "previous_"))]
    default = [
        *("--previous", base, "--groups", str(FEWEST_GROUPS), "--arm", ",".join(ours)),
        *(() if "--resume" in words else ("--run-id", f"compare-{secrets.token_hex(4)}")),
    ]
    context = run.command.make_context("run", [*default, *words])
    given = context.params
    if given["previous"] != base:
        raise UsageError(
            f"--previous must be left out with compare --measure, which has it from BASE, {base}, got"
            f" {given['previous']}"
        )
    for option in ("dry_run", "profile", "fail_below"):
        if given[option]:
            raise UsageError(f"--{option.replace('_', '-')} does not go with compare --measure; leave it out")
    if not FEWEST_GROUPS <= given["groups"] <= MOST_GROUPS:
        raise UsageError(
            f"--groups must be {FEWEST_GROUPS} to {MOST_GROUPS} for compare --measure, got {given['groups']}: fewer"
            " cannot tell one changed row of hundreds from noise, and for more the exact test takes seconds a row"
        )
    with context, redirect_stdout(sys.stderr):
        run.command.invoke(context)
    resumed: Path | None = given["resume"]
    return resumed or (given["out"] or run.DEFAULT_FOLDER) / f"{given['run_id']}.json"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
