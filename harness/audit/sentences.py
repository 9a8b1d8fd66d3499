"""The sentences that the audit recognises, each recomputed from the rows: counts, lists of rows, spreads, geomeans.

What a sentence is about says ``scope``; what it may say, a file each: ``said_counts``, ``said_lists``,
``said_spreads``, ``said_means``. A line with a decimal number that none of them reads is named as not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.audit.conventions import Conventions
from harness.audit.finding import Finding, unchecked
from harness.audit.markdown import Document
from harness.audit.said_counts import counts_said
from harness.audit.said_lists import lists_said
from harness.audit.said_means import means_said
from harness.audit.said_spreads import spreads_said
from harness.audit.scope import said
from harness.audit.tables import Published

_RESULT = re.compile(
    r"\d\.\d+.*\b(?:rows?|geomeans?|speedups?|spread|ratios?)\b|\b(?:rows?|geomeans?|speedups?|spread|ratios?)\b.*\d\.\d+"
    r"|\d\s*(?:%|[x×])?\s+(?:faster|slower)\b|\d\.\d+\s*[x×](?!\w)|\brows?\b[^.;]*\b(?:above|below)\s+\d"
)
_LONG = re.compile(r"\d{16}")
"""No result has so many digits."""


def sentence_findings(document: Document, page: Published, rules: Conventions) -> Iterator[Finding]:
    """Yield what holds and what does not in the page's sentences."""
    unread = []
    for line in said(document, page):
        if _LONG.search(line.text):
            unread.append(line.line.number)
            continue
        found = [
            *counts_said(line, page, rules),
            *lists_said(line, page, rules),
            *spreads_said(line, page, rules),
            *means_said(line, page),
        ]
        yield from found
        if not found and _RESULT.search(line.text):
            unread.append(line.line.number)
    if unread:
        numbers = ", ".join(map(str, unread))
        yield unchecked(
            check="sentence", line=unread[0], what=f"with a result in it, and no form that is known: lines {numbers}"
        )
