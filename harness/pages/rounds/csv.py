"""The page ``csv``: one line a cell, for pandas; empty where unknown."""

from __future__ import annotations

import csv
import io

from harness.pages.rounds.fields import cell_fields
from harness.pages.rounds.summary import Table


def render_page(table: Table) -> str:
    """Return the table as CSV: text quoted, lines end with a line feed."""
    out = io.StringIO()
    lines = [cell_fields(table, cell) for cell in table.cells]
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()
