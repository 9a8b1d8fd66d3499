"""The exact tests of paired groups, of the rows of a report, and as fields that a page for programs has."""

from __future__ import annotations

from harness.model.figures import ReportRow
from harness.model.report import Report
from harness.pages.summary.roles import counts
from harness.stats import PairedTest, paired_tests
from harness.stats.signed_rank import MOST_GROUPS

PairedTests = dict[tuple[int, str], PairedTest]
"""Index of a row and column -> its tests."""


def tests_of(report: Report) -> PairedTests:
    """Return the tests of every row and column that may enter a geomean, with q over the rows of that column.

    The rows of one device and regime are tested together; the groups of all cards count alike. A row of more groups
    than the exact test takes (200) is not tested.
    """
    families: dict[tuple[str, str, str], dict[int, tuple[float, ...]]] = {}
    for index, row in enumerate(report.rows):
        for against, ratios in _ratios(row).items():
            families.setdefault((row.device, row.regime, against), {})[index] = ratios
    return {
        (index, against): test
        for (_, _, against), family in families.items()
        for index, test in zip(family, paired_tests(list(family.values())), strict=True)
    }


def _ratios(row: ReportRow) -> dict[str, tuple[float, ...]]:
    every = {
        ratio.against: tuple(one for card in ratio.groups for one in card)
        for ratio in row.ratios
        if counts(row, ratio.against)
    }
    return {against: ratios for against, ratios in every.items() if len(ratios) <= MOST_GROUPS}


def paired_fields(test: PairedTest | None) -> dict[str, object]:
    """Return p and q of both tests, and the smallest p in reach; None where no test was made."""
    return {
        "sign_p": test.sign_p if test else None,
        "sign_q": test.sign_q if test else None,
        "signed_rank_p": test.signed_rank_p if test else None,
        "signed_rank_q": test.signed_rank_q if test else None,
        "paired_p_in_reach": test.p_in_reach if test else None,
    }
