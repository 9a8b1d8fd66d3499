"""``cake-bench audit``: a published table against itself, with neither GPU nor torch."""

from __future__ import annotations

from pathlib import Path

import click

from harness.audit import audit, pages
from harness.audit.finding import AuditError
from harness.errors import ExitCode, UsageError

CONTRADICTS = 1


@click.command()
@click.argument("file", metavar="FILE.md", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Data instead of text: all row numbers, every contradiction.")
@click.option(
    "--unrounded-counts",
    is_flag=True,
    help="Its counts are of unrounded ratios, although it does not say so: rows printed as 1.000 may be below 1.0.",
)
def command(file: Path, *, as_json: bool, unrounded_counts: bool) -> int:
    """Recompute what a published page says of its own rows: geomeans, extremes, counts, lists, spreads.

    FILE.md is Markdown with pipe tables, or the tab-separated text that copying a rendered page gives. A value
    contradicts only where no unrounded ratios behind the printed rows give it; docs/audit.md has each rule.

    \b
    Examples:
      cake-bench audit results.md
      cake-bench audit --json results.md

    \b
    Exit codes:
      0    agrees with itself in what could be checked; the last line says what was not
      1    contradicts itself
      2    cannot be read, has no per-row table or none that its geomeans are of, or usage
      130  Ctrl-C
    """
    text = _read(file)
    try:
        found = audit(text, unrounded_counts=unrounded_counts)
    except AuditError as error:
        raise UsageError(f"{file} cannot be audited: {error}") from error
    page = pages.as_json(found, file.name) if as_json else pages.text(found, file.name)
    click.echo(page, nl=False)
    if found.contradicted:
        return CONTRADICTS
    return ExitCode.USAGE if found.unreadable else ExitCode.OK


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}; give a Markdown file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} must be UTF-8, got a byte that is not at {error.start}; save it as UTF-8") from error
