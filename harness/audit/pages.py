"""An audit as text and as JSON: what was checked, what agrees, what contradicts, what could not be checked."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

from harness.audit.finding import Audit, Finding, Grade

_WRONG = Grade.CONTRADICTS
SHOWN_ROWS = 12
"""Row numbers that a line of text names; JSON has all."""


def text(audit: Audit, name: str) -> str:
    """Return the page for a terminal; ``name`` is the file's."""
    gpus = ", ".join(gpu for gpu in audit.gpus if gpu)
    lines = [
        f"{name}: {_counted(audit.rows, 'row')}{f' on {gpus}' if gpus else ''}, "
        f"{_counted(len(audit.columns), 'baseline')}, {_counted(audit.means, 'line')} of geomeans"
    ]
    kinds = Counter(finding.check for finding in audit.graded(Grade.AGREES))
    lines += [f"  {Grade.AGREES:<12} {check}: {n}" for check, n in kinds.items()]
    for grade in (Grade.NOTE, Grade.UNCHECKED, Grade.CONTRADICTS):
        lines += [f"  {grade:<12} {_said(finding)}" for finding in audit.graded(grade)]
    wrong = len(audit.graded(Grade.CONTRADICTS))
    made = wrong + kinds.total()
    verdict = (
        f"contradicts itself in {wrong} of {_counted(made, 'check')}" if wrong else f"agrees, {_counted(made, 'check')}"
    )
    if audit.unreadable:
        verdict = f"cannot be read: no line of its geomean table is of rows that are known; {made} other checks agree"
    elif not audit.means_checked:
        verdict += f", but NOT ONE of its {_counted(audit.means, 'line')} of geomeans could be checked"
    lines.append(f"verdict: {verdict}; {_counted(len(audit.graded(Grade.UNCHECKED)), 'thing')} not checked")
    return "\n".join(lines) + "\n"


def as_json(audit: Audit, name: str) -> str:
    """Return the audit with every finding that is more than agreement, and how many checks of a kind agree."""
    page = {
        "file": name,
        "verdict": _verdict(audit),
        "geomeans_checked": sum(f.check == "geomean" for f in audit.graded(Grade.AGREES) + audit.graded(_WRONG)),
        "rows": audit.rows,
        "gpus": list(audit.gpus),
        "baselines": list(audit.columns),
        "geomean_lines": audit.means,
        "agrees": dict(Counter(finding.check for finding in audit.graded(Grade.AGREES))),
        "contradicts": [_data(finding) for finding in audit.graded(Grade.CONTRADICTS)],
        "notes": [_data(finding) for finding in audit.graded(Grade.NOTE)],
        "not_checked": [_data(finding) for finding in audit.graded(Grade.UNCHECKED)],
    }
    return json.dumps(page, indent=2, ensure_ascii=False) + "\n"


def _verdict(audit: Audit) -> str:
    if audit.contradicted:
        return "contradicts"
    return "cannot be read" if audit.unreadable else "agrees"


def _said(finding: Finding) -> str:
    where = f"line {finding.line}, " if finding.line else ""
    values = f": printed {finding.printed}" if finding.printed else ""
    values += f", rows give {finding.recomputed}" if finding.recomputed else ""
    return f"{where}{finding.check}: {finding.what}{values}{_rows(finding.rows)}"


def _rows(numbers: tuple[int, ...]) -> str:
    """Return the row numbers, neighbours as ``1-22``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    if not runs:
        return ""
    named = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:SHOWN_ROWS])
    more = f" and more, {len(numbers)} in all" if len(runs) > SHOWN_ROWS else ""
    return f" ({'row' if len(numbers) == 1 else 'rows'} {named}{more})"


def _data(finding: Finding) -> dict[str, object]:
    data = asdict(finding)
    del data["grade"]
    return data | {"rows": list(finding.rows)}


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
