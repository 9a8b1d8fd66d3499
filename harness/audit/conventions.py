"""What a page says about how it counts: some of its numbers cannot be recomputed without."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.audit.markdown import Document

_BETWEEN = r"(?:and|means?|geomeans?|extremes|use|uses|are|is|taken|made|computed|of|from|on|over|with|the|all)"
_COUNTS = rf"\bcounts?\s+(?:{_BETWEEN}\s+){{0,6}}"
_UNROUNDED = re.compile(rf"{_COUNTS}unrounded (?:ratios|values|numbers)\b")
_PRINTED = re.compile(rf"{_COUNTS}(?:printed|rounded) (?:rows|ratios|values|numbers)\b")
_SELECTION = re.compile(
    r"\b(?:selection|excerpt|sample) (?:of|from) (?:the |these |its |all )?(?:rows|them)\b|\bselected rows\b"
)
SPREAD_GROUPS = 6
FEWEST_GROUPS = 5
"""Where a spread is of a row's first six ratios: how many it looks at, and how many a row needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """A page's own rules.

    Attributes
    ----------
    unrounded_counts
        "means and counts use unrounded ratios": a row printed as 1.000 may count as below 1.0.
    printed_counts
        Its counts are of printed rows: it says so, or as many of them are, although rows of 1.000 could have made them
        others, as only unrounded ratios explain. Where neither this nor the last is so, a count that either reading
        gives is not held against the page.
    first_six
        Spreads are of a row's first six ratios, so that a printed [min, max] over more groups does not give them.
    groups
        "median of 6 paired groups": groups of each row; None where the page does not say, or rows differ.
    pooled
        Rows are of several machines or runs: a latency may be of other groups than a ratio.
    selection
        The page says that its rows are "a selection of rows": means and counts may be of more.
    """

    unrounded_counts: bool
    printed_counts: bool
    first_six: bool
    groups: int | None
    pooled: bool
    selection: bool


def conventions(document: Document, *, unrounded_counts: bool) -> Conventions:
    """Return what the page says; ``unrounded_counts`` where its reader knows it."""
    text = document.text.lower()
    groups = {int(n) for n in re.findall(r"\bmedian of (\d{1,9}) paired groups", text)}
    groups |= {1} if "one group a row" in text else set()
    various = re.search(r"\bmedian of \d+ to \d+ paired groups", text)
    machines = [int(n) for n in re.findall(r"\barms? on (\d{1,9}) machines?\b", text)]
    return Conventions(
        unrounded_counts=unrounded_counts or _UNROUNDED.search(text) is not None,
        printed_counts=_PRINTED.search(text) is not None,
        first_six="first six ratios" in text,
        groups=groups.pop() if len(groups) == 1 and not various else None,
        pooled=any(n > 1 for n in machines) or re.search(r"; run [^;\n]*, ", text) is not None,
        selection=_SELECTION.search(text) is not None,
    )
