"""The command line: one command a file. Here the commands are found, and errors become exit codes."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TextIO, cast

import click

from harness.errors import FOREIGN, ExitCode, HarnessError, NothingMeasured


class Commands(click.Group):
    """Lists ``harness/cli/<command>.py`` by name and imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands' names from their files."""
        return sorted(p.stem.replace("_", "-") for p in Path(__file__).parent.glob("[a-z]*.py"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import ``cmd_name``'s file and return its ``command``."""
        if cmd_name not in self.list_commands(ctx):
            return None
        with _interrupt_afterwards():
            module = importlib.import_module(f"harness.cli.{cmd_name.replace('-', '_')}")
        return cast("click.Command", module.command)


def _version() -> str:
    try:
        return version("cake-kernels")
    except PackageNotFoundError:
        return "not installed (run from a checkout)"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="cake-bench")
def cake_bench() -> None:
    """Measure Mixture-of-Experts kernels: check every arm, time it in paired groups, print a table.

    \b
    Example:
      cake-bench run --suite smoke
      cake-bench report reports/*.json

    \b
    Exit codes:
      0    done
      1    a geomean of SOTA / new is below --fail-below, a check of doctor fails,
           compare finds something slower, audit a contradiction
      2    usage, or an internal error
      3    nothing measured, nothing compared
      4    compare: the environments are not comparable
      5    an arm failed its check, or a row failed
      130  Ctrl-C; what was measured is saved
    """


def main(arguments: list[str] | None = None) -> int:
    """Run ``cake-bench`` with ``arguments`` (default: the process's) and return its exit code."""
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    finally:
        for stream in (sys.stdout, sys.stderr):
            _let_go(stream)


def _run(arguments: list[str]) -> int:
    try:
        # Not click's own main: it ends the process with 1 when the reader of a pipe has left.
        with cake_bench.make_context("cake-bench", [*arguments]) as context:
            return int(cake_bench.invoke(context) or ExitCode.OK)
    except click.exceptions.Exit as done:
        return done.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _say("interrupted", ExitCode.INTERRUPTED)
    except click.ClickException as error:
        return _say(error, ExitCode.USAGE)
    except NothingMeasured as error:
        return _say(str(error), ExitCode.NOTHING)
    except HarnessError as error:
        return _say(f"Error: {error}", ExitCode.USAGE)
    except BrokenPipeError:
        # The reader (head, a closed pager) has what it wanted.
        return ExitCode.OK
    except FOREIGN as error:  # an internal error must not leave Python's own exit code 1, nor an arm's
        if isinstance(error, OSError) and error.filename is None:
            return _say(f"Error: the output cannot be written: {error.strerror}", ExitCode.USAGE)
        lines = "".join(traceback.format_exception(error))
        return _say(f"{lines}Error: this is a defect of cake-bench; please report the lines above", ExitCode.USAGE)


def _say(text: str | click.ClickException, code: ExitCode) -> int:
    """Print to stderr if it can be; where it cannot, the exit code has to do."""
    with suppress(OSError):
        if isinstance(text, click.ClickException):
            text.show(sys.stderr)
        else:
            click.echo(f"cake-bench: {text}", err=True)
    return code


def _let_go(stream: TextIO | None) -> None:
    """Drop what a stream cannot get rid of; else the interpreter tries again at its end, and changes the exit code."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextmanager
def _interrupt_afterwards() -> Iterator[None]:
    """Hold a Ctrl-C back until the block is done.

    Native modules swallow one that comes while they import: torch drops every error of its import of numpy.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        # Ignored (nohup), or somebody else's.
        yield
        return
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt
