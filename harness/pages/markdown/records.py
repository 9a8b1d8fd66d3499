"""The lines about the tracer: its ledger over all rows, and what a call of each arm launches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.model.conditions import Launches, Range, RecordCount
from harness.model.report import Report
from harness.pages.markdown.escape import escape
from harness.pages.markdown.numbers import counted

_MEANINGS = {
    "seen": "seen",
    "attributed": "of calls",
    "reserved": "of the harness's own kernels (flush, clock probe)",
    "orphans": "orphans",
    "lost": "calls without a record",
    "dropped": "dropped by the tracer",
}
"""Counts that a reader asks for, zero or not; others only where they are not zero."""

NAMED = 2
"""Kernels of an arm that a line names."""

LONGEST = 80
"""Characters of a kernel's name."""


def record_lines(report: Report) -> tuple[str, ...]:
    """Return the ledger and the launches, a line each; nothing for a timer without records."""
    return (*_ledger(report), *_launches(report))


def _ledger(report: Report) -> Iterator[str]:
    shown = [c for c in report.records if c.name in _MEANINGS or c.count != 0]
    if shown:
        yield f"Records of the tracer, over all rows: {', '.join(map(_counted, shown))}."


def _counted(found: RecordCount) -> str:
    count = "unknown" if found.count is None else f"{found.count:,}"
    return f"{_MEANINGS.get(found.name, escape(found.name))} {count}"


def _launches(report: Report) -> Iterator[str]:
    if report.launches:
        yield f"One call launches: {'; '.join(_launched(entry) for entry in report.launches)}."


def _launched(entry: Launches) -> str:
    parts = [_kernels(entry)]
    parts += [_count(found, what) for found, what in ((entry.memsets, "memset"), (entry.copies, "copy")) if found.high]
    parts[0] += f" ({names})" if (names := _named(entry)) else ""
    varying = f" (not the same from call to call in {counted(entry.varying, 'row')})" if entry.varying else ""
    step = f" in {entry.op}" if entry.op else ""
    return f"{escape(entry.arm)}{step} {' and '.join(parts)}{varying}"


def _named(entry: Launches) -> str:
    """Return a few of the kernels' names, without their template arguments and parameters."""
    names = list(dict.fromkeys(f"`{_code(short_name(name))}`" for name in entry.names))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _code(name: str) -> str:
    """Return what is safe within backticks."""
    return re.sub(r"[^\w:~.()-]", "?", name, flags=re.ASCII)


def short_name(kernel: str) -> str:
    """Return ``cutlass::device_kernel`` for that template's mangled name of a thousand characters.

    Of a name mangled by the Itanium C++ ABI the leading identifiers count (``_ZN`` length identifier ..., ``_Z`` length
    identifier); whatever else is too long is cut.
    """
    parts: list[str] = []
    rest = match[1] if (match := re.match(r"_ZN?K?(\d.*)", kernel)) else ""
    while digits := re.match(r"\d+", rest):
        end = digits.end() + int(digits[0])
        parts.append(rest[digits.end() : end])
        rest = rest[end:] if kernel.startswith("_ZN") else ""
    name = "::".join("(anonymous)" if part.startswith("_GLOBAL__N_") else part for part in parts) or kernel
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."


def _kernels(entry: Launches) -> str:
    if entry.per_group and entry.kernels.high > 1:
        return f"a kernel for each non-empty group, {_numbers(entry.kernels)}"
    return _count(entry.kernels, "kernel")


def _count(found: Range, what: str) -> str:
    if found.low == found.high == 1:
        return f"1 {what}"
    plural = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{_numbers(found)} {plural}"


def _numbers(found: Range) -> str:
    return f"{found.low:.0f}" if found.low == found.high else f"{found.low:.0f} to {found.high:.0f}"
