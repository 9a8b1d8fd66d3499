"""What an audit found: one finding a check, and the verdict over all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from harness.errors import UsageError


class AuditError(UsageError):
    """A page cannot be audited: it has no per-row table, or a table is broken."""


class Grade(StrEnum):
    """How one check ended."""

    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    NOTE = "note"
    """Worth a look and no fault."""
    UNCHECKED = "not checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check.

    Attributes
    ----------
    check
        Its kind: ``geomean``, ``count``, ``lowest``, ...
    line
        Line of the file, from 1; 0 where the finding is about the whole page.
    what
        What it is about, in words.
    printed, recomputed
        The page's own value and what its rows give; empty where there is none.
    rows
        The rows behind it, numbered from 1 in the order of the file.
    """

    grade: Grade
    check: str
    line: int
    what: str
    printed: str = ""
    recomputed: str = ""
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All findings of one page.

    Attributes
    ----------
    columns, means
        Its baselines, and how many lines its geomean table has.
    unmatched
        No line of the geomean table could be matched with any row.
    """

    rows: int
    gpus: tuple[str, ...]
    columns: tuple[str, ...]
    means: int
    unmatched: bool
    findings: tuple[Finding, ...]

    def graded(self, grade: Grade) -> tuple[Finding, ...]:
        """Return the findings of one grade, in the order of the checks."""
        return tuple(finding for finding in self.findings if finding.grade is grade)

    @property
    def contradicted(self) -> bool:
        """Whether the page contradicts itself."""
        return bool(self.graded(Grade.CONTRADICTS))

    @property
    def unreadable(self) -> bool:
        """Whether nothing is contradicted because the geomean table is of no row that is known."""
        return self.unmatched and not self.contradicted

    @property
    def means_checked(self) -> bool:
        """Whether a geomean was checked, or there is none."""
        checked = any(f.check == "geomean" and f.grade in (Grade.AGREES, Grade.CONTRADICTS) for f in self.findings)
        return checked or not self.means


def judged(
    agrees: bool,
    *,
    check: str,
    line: int,
    what: str,
    printed: str,
    recomputed: str,
    rows: Iterable[int] = (),
) -> Finding:
    """Return the finding of a check that was made."""
    grade = Grade.AGREES if agrees else Grade.CONTRADICTS
    return Finding(
        grade=grade, check=check, line=line, what=what, printed=printed, recomputed=recomputed, rows=tuple(rows)
    )


def unchecked(*, check: str, line: int, what: str, printed: str = "") -> Finding:
    """Return the finding of a check that could not be made; ``what`` says why."""
    return Finding(grade=Grade.UNCHECKED, check=check, line=line, what=what, printed=printed)
