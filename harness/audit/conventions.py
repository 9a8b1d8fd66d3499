"""What a page says about how it counts: some of its numbers cannot be recomputed without."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.audit.markdown import Document

SPREAD_GROUPS = 6
FEWEST_GROUPS = 5
"""Where a spread is of a row's first six ratios: how many it looks at, and how many a row needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """A page's own rules.

    Attributes
    ----------
    unrounded_counts
        "means and counts use unrounded ratios": a row printed as 1.000 may count as below 1.0. Else counts are of
        printed rows.
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
        unrounded_counts=unrounded_counts or "counts use unrounded ratios" in text,
        first_six="first six ratios" in text,
        groups=groups.pop() if len(groups) == 1 and not various else None,
        pooled=any(n > 1 for n in machines) or re.search(r"; run [^;\n]*, ", text) is not None,
        selection=re.search(r"\bselection of (?:the |these )?rows\b|\bselected rows\b", text) is not None,
    )
