"""``cake-bench rounds``: two arms by fresh processes every round; ``run`` measures, ``report`` makes the table."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import cast

import click

from harness.errors import UsageError
from harness.pages.rounds.summary import exit_code, summarise
from harness.rounds import file

FORMATS = ("markdown", "json", "csv")


class Verbs(click.Group):
    """Imports ``run``, and torch with it, only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return both."""
        return ["report", "run"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name."""
        if cmd_name == "run":
            return cast("click.Command", importlib.import_module("harness.cli._rounds_run").run)
        return super().get_command(ctx, cmd_name)


@click.group(cls=Verbs)
def command() -> None:
    """Compare two arms by rounds: everything is loaded anew every round, half of the rounds the baseline first.

    docs/rounds.md has the protocol; each verb has a --help of its own.

    \b
    Examples:
      cake-bench rounds run --suite smoke --op fwd --baseline cublas_loop --new torch_grouped_mm
      cake-bench rounds report reports/r1.json

    \b
    Exit codes:
      0    measured, rendered
      2    usage, or a file that is no file of rounds
      3    nothing measured
      5    a round failed, or an arm failed its check
      130  Ctrl-C, SIGTERM or SIGHUP; the rounds that are done are saved
    """


@command.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="markdown", show_default=True, help="For readers, or data."
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file instead of stdout."
)
def report(path: Path, form: str, output: Path | None) -> int:
    """Render a file of rounds as a table, with neither GPU nor torch; the same bytes every time.

    \b
    Example:
      cake-bench rounds report --format csv -o r1.csv reports/r1.json

    \b
    Exit codes:
      0    rendered
      2    usage, or a file that is no file of rounds
      3    nothing measured
      5    a round failed and was not made good, or an arm failed its check
    """
    if output is not None and output.exists() and path.exists() and output.samefile(path):
        raise UsageError(f"--output {output} is the file of rounds; choose another name")
    table = summarise(file.load(path))
    text: str = importlib.import_module(f"harness.pages.rounds.{form}").render_page(table)
    if output is None:
        click.echo(text, nl=False)
    else:
        _write(output, text)
    return exit_code(table)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
