"""Pages: one published form of a report a file, ``render_page(report, *, columns, what) -> str``.

A module of this folder is a ``--format`` of ``cake-bench report``. What several pages are made of lies in
sub-packages, which are no pages: ``summary`` makes a Report of runs, ``markdown`` writes Markdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from harness.errors import UsageError
from harness.model.report import Report


class Page(Protocol):
    """What a module of this folder offers."""

    def render_page(self, report: Report, *, columns: Sequence[str] = (), what: str = "") -> str:
        """Return the page, the same bytes for the same report.

        Parameters
        ----------
        columns
            The extra columns asked for.
        what
            What changed, in the author's words; for readers, so that pages for programs leave it out.
        """


def refuse_columns(page: str, columns: Sequence[str]) -> None:
    """Refuse extra columns of a page that always holds every one."""
    if columns:
        raise UsageError(f"columns belong to the format 'pr'; {page!r} always holds all, got {', '.join(columns)}")
