"""``python -m cake_kernels``: lists the programs, and compiles and checks their kernels without a GPU."""

from __future__ import annotations

import os
import sys
import traceback
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from . import build, checks, registry
from .errors import ArgumentError, CakeError, CompileError
from .nvdisasm import Nvdisasm

NAME = f"python -m {__package__}"

EXIT_CODES = """
exit codes:
  0    done
  1    a kernel does not compile, or breaks a rule
  2    usage, something is not installed, the output cannot be written, or an internal error
  130  Ctrl-C; it waits for the kernels that are being compiled
"""

RULES = f"""
--check looks at the machine code and fails where
  HGMMA or USETMAXREG is missing;
  a cluster of two CTAs or more has no UTMALDG with MULTICAST;
  no loop holds an HGMMA, or an innermost one that does touches local memory or calls;
  spill stores or loads exceed {checks.SPILL_BYTES_MAX} bytes;
  static and dynamic shared memory exceed {checks.SMEM_BYTES_MAX} bytes;
  ptxas reports a loss of performance (wgmma serialised, setmaxnreg ignored).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (default: the process's) and return its exit code.

    A reader of stdout that has left (head, a closed pager) has what it wanted: that changes no exit code.
    """
    try:
        return _run(arguments)
    finally:
        for stream in (sys.stdout, sys.stderr):
            _let_go(stream)


def _run(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    try:
        try:
            asked = parser.parse_args(arguments)
        finally:
            _print("")  # argparse leaves its help unflushed
        run: Callable[[Namespace], int] | None = asked.run
        if run is None:
            parser.print_help(sys.stderr)
            return 2
        return run(asked)
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    except CompileError as error:
        return _say(str(error), 1)
    except CakeError as error:
        return _say(f"error: {error}", 2)
    except Exception:  # noqa: BLE001 - an internal error must not leave Python's own exit code 1
        return _say(f"{traceback.format_exc()}error: this is a defect; please report the lines above", 2)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=NAME,
        description="List the programs, and compile and check their kernels without a GPU.",
        epilog=EXIT_CODES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    listing = commands.add_parser("list", help="print the programs", description="Print the programs.")
    listing.set_defaults(run=_list)

    building = commands.add_parser(
        "build",
        help="compile every kernel of an architecture",
        description="Compile every kernel that the programs of an architecture may launch, and print what it takes.",
        epilog=f"{RULES}{EXIT_CODES}\nexample:\n  {NAME} build --arch sm_90a --out cubins --check\n",
        formatter_class=RawDescriptionHelpFormatter,
    )
    building.add_argument("--arch", required=True, help="the architecture, sm_90a for instance")
    building.add_argument("--out", required=True, type=Path, metavar="DIR", help="writes DIR/NAME.cubin")
    building.add_argument("--check", action="store_true", help=f"check the machine code too ({checks.ARCH})")
    building.set_defaults(run=_build)
    return parser


def _list(_: Namespace) -> int:
    head = ("op", "variant", "arch", "out", "program")
    rows = [(p.op, p.variant, p.arch, p.out_dtype, p.stem) for p in registry.programs()]
    _print_table(head, rows)
    return 0


def _build(asked: Namespace) -> int:
    if asked.check and asked.arch != checks.ARCH:
        raise ArgumentError(f"--check knows the rules of {checks.ARCH} alone, got --arch {asked.arch}; leave it out")
    nvdisasm = Nvdisasm() if asked.check else None
    builds = build.builds_for(asked.arch, registry.programs())
    _say(f"compiling {len(builds)} kernels for {asked.arch}")
    built = build.compile_all(builds, arch=asked.arch, out=asked.out)
    head = ("kernel", "bytes", "registers", "spill stores", "spill loads", "static smem", "dynamic smem")
    if nvdisasm is None:
        _print_table(head, map(_figures, built))
        return 0
    checked = build.check_all(built, nvdisasm)
    _print_table((*head, "SASS per HGMMA"), ((*_figures(one.built), _density(one)) for one in checked))
    broken = [f"{one.built.build.name}: {rule}" for one in checked for rule in one.broken]
    return _say("\n".join(broken), 1) if broken else 0


def _figures(built: build.Built) -> tuple[str, ...]:
    """Bytes all but the name and the registers; per thread the spills, per block the shared memory."""
    took = built.resources
    figures = (
        built.cubin_bytes,
        took.registers,
        took.spill_store_bytes,
        took.spill_load_bytes,
        took.static_smem_bytes,
        built.build.smem_bytes,
    )
    return (built.build.name, *map(str, figures))


def _density(checked: build.Checked) -> str:
    """Each consumers' loop's instructions per HGMMA: a figure to watch, no rule."""
    return ", ".join(f"{loop.instructions_per_hgmma:.1f}" for loop in checked.loops) or "-"


def _print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    aligned = [_aligned(column) for column in zip(head, *rows, strict=True)]
    _print("".join(f"{'  '.join(line).rstrip()}\n" for line in zip(*aligned, strict=True)))


def _aligned(column: Sequence[str]) -> list[str]:
    """Pad to one width: numbers to the right, words to the left."""
    width = max(map(len, column))
    numbers = all(cell.isdigit() for cell in column[1:])
    return [cell.rjust(width) if numbers else cell.ljust(width) for cell in column]


def _print(text: str) -> None:
    """Print to stdout at once, while a failure can still be told."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        pass
    except OSError as error:
        raise CakeError(f"the output cannot be written: {error.strerror}") from error


def _say(text: str, code: int = 0) -> int:
    """Print to stderr if it can be; where it cannot, the exit code has to do."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)
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


if __name__ == "__main__":
    sys.exit(main())
