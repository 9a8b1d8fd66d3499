"""The audit of counts by what a page says, or shows, of how it counts rows that are printed as 1.000."""

import pytest

from harness.audit import audit
from harness.audit.finding import Audit, Grade


def kinds(found: Audit, grade: Grade) -> list[str]:
    return [finding.check for finding in found.graded(grade)]


COUNTS = """| row | operation | speedup vs torch |
|---|---|---|
| a bal | fwd | 1.000 |
| b bal | fwd | 1.200 |
| c bal | fwd | 0.900 |
| d bal | dX | 1.000 |

| operation | rows | count | speedup vs torch |
|---|---|---|---|
| fwd | owner | 3 | 1.026 |

Speedup vs torch: {} of the 4 rows are below 1.0.
"""


@pytest.mark.parametrize(
    "said",
    [
        "Means and counts are of unrounded ratios.",
        "Means and counts use unrounded ratios.",
        "Geomeans and counts are computed from the unrounded values.",
        "Counts are taken over unrounded ratios.",
    ],
)
def test_that_counts_are_of_unrounded_ratios_may_be_said_in_several_ways(said: str) -> None:
    right = audit(f"{COUNTS.format(2)}\n{said}\n")

    assert kinds(right, Grade.CONTRADICTS) == []
    assert kinds(right, Grade.UNCHECKED) == []
    assert kinds(audit(f"{COUNTS.format(4)}\n{said}\n"), Grade.CONTRADICTS) == ["count of rows"]


def test_a_count_that_rounding_explains_is_flagged_where_nothing_shows_how_the_page_counts() -> None:
    unstated = audit(COUNTS.format(2))
    elsewhere = audit(f"{COUNTS.format(2)}\nIn fwd vs torch, 1 of the 3 rows is below 1.0.\n")
    stated = audit(f"{COUNTS.format(2)}\nCounts are of printed ratios.\n")

    assert kinds(unstated, Grade.CONTRADICTS) == []
    (finding,) = unstated.graded(Grade.UNCHECKED)
    assert "1 as printed; 2 if it counts unrounded ratios" in finding.what
    assert kinds(elsewhere, Grade.CONTRADICTS) == ["count of rows"]
    assert kinds(stated, Grade.CONTRADICTS) == ["count of rows"]
    assert kinds(audit(COUNTS.format(1)), Grade.UNCHECKED) == []
    assert kinds(audit(COUNTS.format(4)), Grade.CONTRADICTS) == ["count of rows"]


def test_one_count_of_printed_rows_does_not_outweigh_two_that_only_unrounded_ratios_give() -> None:
    def judged(of_all: int, of_fwd: int, of_d_x: int) -> Audit:
        fwd, d_x = (
            f"{of_fwd} of the 3 fwd rows are below 1.0 vs torch.",
            f"{of_d_x} of the 1 dX rows are below 1.0 vs torch.",
        )
        return audit(f"{COUNTS.format(of_all)}\n{fwd}\n\n{d_x}\n")

    outweighed = judged(1, 2, 1)

    assert kinds(judged(1, 1, 0), Grade.UNCHECKED) == []
    assert kinds(judged(1, 2, 0), Grade.CONTRADICTS) == ["count of rows"]
    assert kinds(outweighed, Grade.CONTRADICTS) == []
    assert kinds(outweighed, Grade.UNCHECKED) == ["count of rows", "count of rows"]
