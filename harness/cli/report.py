"""``cake-bench report``: run files -> a table, with neither GPU nor torch; the same bytes every time."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import click

from harness import plugins, runfile
from harness.cli._gate import exit_code, fail_below
from harness.errors import UsageError
from harness.model.run import Run
from harness.pages.summary import summarise, without


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format",
    "form",
    type=click.Choice(plugins.names("pages")),
    default="pr",
    show_default=True,
    help="Markdown for a pull request, or data.",
)
@click.option(
    "--new", metavar="ARM", help="The arm whose speedup is shown. Default: cake_nondet, cake_det, or the run's first."
)
@click.option("--against", multiple=True, metavar="ARM", help="Also compare with this arm; may be given again.")
@click.option(
    "--without",
    "left_out",
    multiple=True,
    metavar="ARM",
    help="Leave out this arm, as if it had not run; the page names it. May be given again.",
)
@click.option(
    "--case",
    "globs",
    multiple=True,
    metavar="GLOB",
    help="Only rows whose name matches, e.g. '*E4*'; may be given again.",
)
@click.option("--columns", metavar="COL[,COL]", help="Further columns of the per-row table; docs/report.md lists them.")
@click.option("--what", default="", metavar="TEXT", help="What changed: a sentence under the title of the Markdown.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file instead of stdout."
)
@fail_below
def command(
    runs: tuple[Path, ...],
    form: str,
    new: str | None,
    against: tuple[str, ...],
    left_out: tuple[str, ...],
    globs: tuple[str, ...],
    columns: str | None,
    what: str,
    output: Path | None,
    fail_below: float | None,
) -> int:
    """Render run files as a table; several runs pool their machines.

    \b
    Examples:
      cake-bench report reports/first.json
      cake-bench report --format csv -o first.csv reports/first.json
      cake-bench report --case '*E4*' --against torch_grouped_mm reports/first.json
      cake-bench report --new cake_det --against cublas_loop --columns tflops,clock card-a.json card-b.json

    \b
    Exit codes:
      0    rendered
      1    a geomean of SOTA / new is below --fail-below
      2    usage, or a file that is no run file
      3    nothing measured
      5    an arm failed its check, or a row failed
    """
    if output is not None and output.exists() and any(output.samefile(path) for path in runs if path.exists()):
        raise UsageError(f"--output {output} is one of the run files; choose another name")
    loaded = _only([runfile.load(path) for path in runs], globs)
    report = summarise(loaded, new=new, against=against, left_out=left_out)
    text = importlib.import_module(f"harness.pages.{form}").render_page(report, columns=_split(columns), what=what)
    if output is None:
        click.echo(text, nl=False)
    else:
        _write(output, text)
    return exit_code(without(loaded, left_out), report, fail_below)


def _only(runs: Sequence[Run], globs: Sequence[str]) -> list[Run]:
    """Return the runs with the rows that ``globs`` choose; a run without such a row is left out."""
    if not globs:
        return list(runs)
    for glob in globs:
        if not any(run.only([glob]).planned for run in runs):
            raise UsageError(
                f"--case {glob!r} matches no row of the runs; they name rows as {runs[0].planned[0]!r} does"
            )
    return [kept for run in runs if (kept := run.only(globs)).planned]


def _split(columns: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in columns.split(",")) if columns else ()


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
