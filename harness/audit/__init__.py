"""A published result against itself: its tables and sentences recomputed from its own rows.

``markdown`` reads headings, lines and tables; ``columns`` says what a header means, ``tables`` makes rows and geomeans
of them, which ``published`` names; ``row_checks``, ``mean_checks`` and ``sentences`` hold what is printed against the
rows; ``pages`` writes what came out. Pure: text in, findings out, the same every time.
"""

from __future__ import annotations

from harness.audit.conventions import conventions
from harness.audit.finding import Audit, unchecked
from harness.audit.markdown import read
from harness.audit.mean_checks import mean_findings, no_line_matches
from harness.audit.row_checks import row_findings
from harness.audit.sentences import sentence_findings
from harness.audit.tables import published


def audit(text: str, *, unrounded_counts: bool = False) -> Audit:
    """Return what a published page says of itself.

    Parameters
    ----------
    text
        Markdown with pipe tables, or the tab-separated text that copying a rendered page gives.
    unrounded_counts
        Its counts are of unrounded ratios, although it does not say so: a row printed as 1.000 may be below 1.0.

    Raises
    ------
    AuditError
        There is no per-row table, or a line of a table has more cells than its header.
    """
    document = read(text)
    page = published(document)
    rules = conventions(document, unrounded_counts=unrounded_counts)
    findings = (
        *row_findings(page, rules),
        *mean_findings(page, rules),
        *sentence_findings(document, page, rules),
        *(unchecked(check="table", line=table.line, what=table.what) for table in page.unread),
    )
    return Audit(
        rows=len(page.rows),
        gpus=page.gpus,
        columns=page.columns,
        means=len(page.means),
        unmatched=no_line_matches(page),
        findings=findings,
    )
