"""The page ``csv``: one line a row and arm, the same fields as in JSON; empty is what is not known."""

from __future__ import annotations

import csv
from io import StringIO

from harness.compare.comparison import Comparison
from harness.pages.compare.json import fields_of

COLUMNS = (
    "regime", "suite", "op", "case", "arm", "verdict", "glyph", "reason", "detail", "control", "against", "ratio",
    "low", "high", "cycles_ratio", "busy_ratio", "p", "q", "q_in_reach", "superiority",
    "sign_p", "sign_q", "signed_rank_p", "signed_rank_q", "paired_p_in_reach", "n_base", "n_head", "base_ns", "head_ns",
    "base_mhz", "head_mhz",
)  # fmt: skip


def render_page(comparison: Comparison) -> str:
    """Return the table: all but numbers quoted, lines end with a line feed, rows in the order of pages.

    ``csv.reader(file, quoting=csv.QUOTE_NONNUMERIC)`` reads it back: ``True`` and ``False`` are text.
    """
    text = StringIO()
    writer = csv.DictWriter(text, COLUMNS, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writeheader()
    for row in comparison.rows:
        fields = fields_of(row)
        writer.writerow({name: str(value) if isinstance(value, bool) else value for name, value in fields.items()})
    return text.getvalue()
