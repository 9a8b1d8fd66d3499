"""The command line: one command a file. Here the commands are found, and errors become exit codes."""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import cast

import click

from harness.errors import ExitCode, HarnessError, NothingMeasured


class Commands(click.Group):
    """Lists ``harness/cli/<command>.py`` by name and imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands' names from their files."""
        return sorted(p.stem.replace("_", "-") for p in Path(__file__).parent.glob("[a-z]*.py"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import ``cmd_name``'s file and return its ``command``."""
        if cmd_name not in self.list_commands(ctx):
            return None
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
      1    a geomean of SOTA / new is below --fail-below, or a check of doctor fails
      2    usage, or an internal error
      3    nothing measured
      5    an arm failed its check, or a row failed
      130  Ctrl-C; what was measured is saved
    """


def main(arguments: list[str] | None = None) -> int:
    """Run ``cake-bench`` with ``arguments`` (default: the process's) and return its exit code."""
    try:
        code = cake_bench.main(args=arguments, prog_name="cake-bench", standalone_mode=False)
        return int(code or ExitCode.OK)
    except click.exceptions.Abort:
        return _say("interrupted", ExitCode.INTERRUPTED)
    except KeyboardInterrupt:
        return _say("interrupted", ExitCode.INTERRUPTED)
    except click.ClickException as error:
        error.show(sys.stderr)
        return ExitCode.USAGE
    except NothingMeasured as error:
        return _say(str(error), ExitCode.NOTHING)
    except HarnessError as error:
        return _say(f"Error: {error}", ExitCode.USAGE)
    except BrokenPipeError:
        # The reader (head, a closed pager) has what it wanted.
        sys.stderr.close()
        return ExitCode.OK
    except Exception:  # noqa: BLE001 - an internal error must not leave Python's own exit code 1
        traceback.print_exc()
        return _say("Error: this is a defect of cake-bench; please report the lines above", ExitCode.USAGE)


def _say(text: str, code: ExitCode) -> int:
    click.echo(f"cake-bench: {text}", err=True)
    return code
