"""The sentences that the audit recognises, each recomputed from the rows: counts, lists of rows, spreads, geomeans.

What a sentence is about says ``scope``; what it may say, a file each: ``said_counts``, ``said_lists``,
``said_spreads``, ``said_means``. Each tells which part of a line it has read. Whatever is left of a clause and is a
result, as ``results`` says, is named as not checked, in headings and fenced code too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from harness.audit.conventions import Conventions
from harness.audit.finding import Finding, unchecked
from harness.audit.markdown import Document
from harness.audit.published import Published
from harness.audit.results import results
from harness.audit.said_counts import counts_said, readings
from harness.audit.said_lists import lists_said
from harness.audit.said_means import means_said
from harness.audit.said_spreads import spreads_said
from harness.audit.scope import Claim, Said, said

_LONG = re.compile(r"\d{16}")
"""No result has so many digits."""
_SHOWN = 120
_KINDS = {
    "chance": re.compile(r"\bchance\b"),
    "cycles and clocks": re.compile(r"\bcycles\b|\bclocks?\b"),
    "noise floor": re.compile(r"\bnoise\b|\ba/a\b"),
    "what runs took": re.compile(r"\btook \d+ s\b.* in calls that count\b"),
}
"""Results of which the rows print nothing: one finding each says in which lines they stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unread:
    """A clause with results that no check has read."""

    line: int
    clause: str
    numbers: tuple[str, ...]

    @property
    def kind(self) -> str:
        return next((kind for kind, found in _KINDS.items() if found.search(self.clause)), "")


def sentence_findings(document: Document, page: Published, rules: Conventions) -> Iterator[Finding]:
    """Yield what holds and what does not in the page's sentences."""
    lines = list(said(document, page))
    readable = [line for line in lines if not line.line.level and not _LONG.search(line.text)]
    found = [readings(line, page, rules) for line in readable]
    shown, needed = sum(one for one, _ in found), sum(other for _, other in found)
    rules = replace(rules, printed_counts=rules.printed_counts or (shown > 0 and shown >= needed))
    unread: list[_Unread] = []
    for line in lines:
        claims = list(_claims(line, page, rules)) if line in readable else []
        for claim in claims:
            yield from claim.findings
        unread += _left(line, claims)
    for code in document.fenced:
        if numbers := results(code.text.lower(), code.text.lower()):
            unread.append(_Unread(line=code.number, clause=code.text.strip(), numbers=tuple(numbers)))
    yield from _named(unread)


def _claims(line: Said, page: Published, rules: Conventions) -> Iterator[Claim]:
    yield from counts_said(line, page, rules)
    yield from lists_said(line, page, rules)
    yield from spreads_said(line, page, rules)
    yield from means_said(line, page)


def _left(line: Said, claims: Iterable[Claim]) -> Iterator[_Unread]:
    """Yield the clauses of a line with results outside of what was read."""
    text = list(line.bare)
    for span in (span for claim in claims for span in claim.spans):
        text[span.start : span.stop] = " " * len(span)
    for clause in line.clauses():
        whole = line.text[clause.start : clause.stop]
        names = any(mention.start in clause for mention in (*line.columns, *line.ops))
        if numbers := results(whole, "".join(text[clause.start : clause.stop]), names=names):
            yield _Unread(line=line.line.number, clause=whole.strip(), numbers=tuple(numbers))


def _named(unread: Sequence[_Unread]) -> Iterator[Finding]:
    """Yield a finding a clause, and one for each kind of results that rows never print."""
    for part in unread:
        if not part.kind:
            shown = part.clause if len(part.clause) <= _SHOWN else f"{part.clause[:_SHOWN]}…"
            what = f"a result in no form that is known: {', '.join(part.numbers)}"
            yield unchecked(check="sentence", line=part.line, what=what, printed=shown)
    for kind in _KINDS:
        of_kind = [part for part in unread if part.kind == kind]
        if of_kind:
            where = ", ".join(map(str, dict.fromkeys(part.line for part in of_kind)))
            n = sum(len(part.numbers) for part in of_kind)
            what = f"{n} numbers about {kind}, of which rows print nothing: lines {where}"
            yield unchecked(check="sentence", line=of_kind[0].line, what=what)
