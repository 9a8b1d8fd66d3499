"""The audit of plain English and of tables as people write them: no true page contradicts, nothing is half read."""

import pytest

from harness.audit import audit
from harness.audit.finding import Audit, Grade
from harness.audit.printed import latency, only_range, ratio

ROWS = """| row | operation | speedup vs torch |
|---|---|---|
| a bal | fwd | 1.100 |
| b bal | fwd | 1.200 |
| c bal | fwd | 0.900 |

| operation | count | speedup vs torch |
|---|---|---|
| fwd | 3 | 1.059 |
"""
END = ROWS.count("\n")


def kinds(found: Audit, grade: Grade) -> list[str]:
    return [finding.check for finding in found.graded(grade)]


@pytest.mark.parametrize(
    "sentence",
    [
        "Most of the 3 rows are above 1.0.",
        "Nearly all of the 3 rows are above 1.0.",
        "More than half of the 3 rows are above 1.0.",
        "At least one of the 3 rows is below 1.0.",
        "Fewer than two of 3 rows are below 1.0.",
        "Not all rows are above 1.0.",
        "Not every row is above 1.0.",
        "Two thirds of the 3 rows are above 1.0.",
        "66 % of the 3 rows are above 1.0.",
        "Only one of three rows is below 1.0.",
        "Only 1 of 3 rows is below 1.0.",
        "In version 2.0 all rows were above 1.0.",
        "The target was that all rows are above 1.0.",
        "The target was that\nall rows are above 1.0.",
        "Targets:\n\n- All rows are above 1.0.",
        "No row is below 1.0 except c bal.",
        "No row is below 1.0\nexcept c bal.",
        "All rows are above 1.0, c bal aside.",
        "All rows are above 1.0 in version 2.",
        "No row is below 1,05.",
        "The target was: the lowest is 0.950.",
        "We hoped for geomeans from 1.100 to 1.200.",
        "Ours is up to 1.9x faster than torch, 1.7x on average.",
        f"{'9' * 5000} of 1 rows are below 1.0.",
        f"1 of the 1 rows are below {'1' * 5000}",
        f"Spread over the {'9' * 5000} rows: median 3.00 %.",
        "Spread: median 3.00 %, p100 3.00 %.",
    ],
)
def test_a_sentence_in_no_exact_form_is_named_and_not_checked(sentence: str) -> None:
    found = audit(f"{ROWS}\n{sentence}\n")

    assert kinds(found, Grade.CONTRADICTS) == []
    assert [f.check for f in found.findings if f.line > END and f.grade is Grade.AGREES] == []
    assert [f.line > END for f in found.graded(Grade.UNCHECKED)] != []


@pytest.mark.parametrize(
    "sentence",
    [
        "2 of 3 rows are below 1.0.",
        "Two of the 3 rows are below 1.0.",
        "All rows are above 1.0.",
        "No row is below 1.0.",
        "Speedup vs torch: 2 of the 3\nrows are below 1.0.",
        "Speedups vs torch:\n\n- 2 of 3 rows are below 1.0",
        "2 rows are below 1.0 and 2 rows are above 1.0.",
    ],
)
def test_a_false_sentence_in_an_exact_form_is_still_found(sentence: str) -> None:
    assert "count of rows" in kinds(audit(f"{ROWS}\n{sentence}\n"), Grade.CONTRADICTS)


def test_a_line_of_all_gpus_is_of_the_rows_of_each() -> None:
    page = """| GPU | row | operation | speedup vs torch |
|---|---|---|---|
| H200 | a bal | fwd | 1.100 |
| B200 | a bal | fwd | 1.200 |

| GPU | operation | rows | count | speedup vs torch |
|---|---|---|---|---|
| H200 | fwd | owner | 1 | 1.100 |
| B200 | fwd | owner | 1 | 1.200 |
| all | fwd | owner | 2 | 1.149 |
"""

    assert kinds(audit(page), Grade.CONTRADICTS) == []
    assert kinds(audit(page), Grade.AGREES).count("geomean") == 3
    assert kinds(audit(page.replace("1.149", "1.159")), Grade.CONTRADICTS) == ["geomean"]


TOTAL = """| row | operation | speedup vs torch |
|---|---|---|
| a bal | fwd | 1.100 |
| b bal | fwd | 1.200 |
| **geomean** | fwd | 1.149 |
| c bal | dX | 1.300 |
| d bal | dX | 1.500 |
| **Geometric mean** | | 1.396 |
"""


def test_a_line_of_the_rows_that_is_their_geomean_is_no_row() -> None:
    found = audit(TOTAL)

    assert (found.rows, found.means) == (4, 2)
    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.AGREES).count("geomean") == 2
    assert kinds(audit(TOTAL.replace("1.149", "1.900")), Grade.CONTRADICTS) == ["geomean"]
    assert kinds(audit(TOTAL.replace("1.396", "1.267")), Grade.CONTRADICTS) == []  # of all four rows


def test_a_row_called_as_a_mean_is_one_where_it_has_all_that_rows_have() -> None:
    table = "| row | operation | torch (ms) | new (ms) | n | vs torch |\n|---|---|---|---|---|---|\n"
    row = "| average | fwd | 1.1000 | 1.0000 | 6 | 1.100 [1.090, 1.110] |\n"

    assert audit(table + row + row.replace("average", "a bal")).rows == 2
    assert audit(table + row.replace("| 6 |", "| |") + row.replace("average", "a bal")).rows == 1
    keyed = "| row | operation | torch t (ms) | new (ms) | SOTA | SOTA / new |\n|---|---|---|---|---|---|\n"
    assert audit(keyed + "| average | fwd | 1.1000 | 1.0000 | t | 1.100 [1.090, 1.110] |\n").rows == 1


def test_a_mean_of_no_said_kind_is_checked_only_where_it_is_the_geomean() -> None:
    arithmetic = audit(TOTAL.replace("**Geometric mean**", "**mean**").replace("1.396", "1.400"))
    geometric = audit(TOTAL.replace("**Geometric mean**", "**mean**"))

    assert kinds(arithmetic, Grade.CONTRADICTS) == []
    assert kinds(arithmetic, Grade.UNCHECKED) == ["geomean"]
    assert kinds(geometric, Grade.AGREES).count("geomean") == 2


@pytest.mark.parametrize("form", ["{} vs torch", "speedup of {} over torch", "torch / {}"])
def test_of_two_new_arms_each_ratio_is_held_against_its_own_latency(form: str) -> None:
    det, nondet = form.format("new det"), form.format("new nondet")
    page = f"""| row | operation | new det (ms) | new nondet (ms) | torch (ms) | {det} | {nondet} |
|---|---|---|---|---|---|---|
| a bal | fwd | 1.0000 | 0.9000 | 1.1000 | 1.100 [1.095, 1.105] | 1.222 [1.220, 1.225] |
| b bal | fwd | 2.0000 | 1.8000 | 2.4000 | 1.200 [1.195, 1.205] | 1.333 [1.330, 1.340] |

| operation | rows | count | {det} | {nondet} |
|---|---|---|---|---|
| fwd | owner | 2 | 1.149 | 1.276 |
"""

    right = audit(page)

    assert kinds(right, Grade.CONTRADICTS) == []
    assert kinds(right, Grade.AGREES).count("ratio and latencies") == 4
    assert kinds(right, Grade.AGREES).count("geomean") == 2
    assert kinds(audit(page.replace("| 0.9000 |", "| 0.9900 |")), Grade.CONTRADICTS) == ["ratio and latencies"]


def test_a_ratio_that_may_be_of_either_new_arm_is_not_held_against_latencies() -> None:
    found = audit("""| row | operation | new det (ms) | new nondet (ms) | torch (ms) | speedup vs torch |
|---|---|---|---|---|---|
| a bal | fwd | 1.0000 | 0.9000 | 1.1000 | 1.222 [1.220, 1.225] |
""")

    assert kinds(found, Grade.CONTRADICTS) == []
    assert "ratio and latencies" in kinds(found, Grade.UNCHECKED)


def test_e_m_n_and_k_are_parts_of_a_rows_name() -> None:
    page = """| shape | E | M | N | K | op | speedup vs torch |
|---|---|---|---|---|---|---|
| decode | 8 | 1024 | 2048 | 2048 | fwd | 1.100 |
| decode | 8 | 1024 | 4096 | 2048 | fwd | 1.200 |
"""

    assert kinds(audit(page), Grade.CONTRADICTS) == []
    assert kinds(audit(page.replace("4096", "2048")), Grade.CONTRADICTS) == ["row once"]


def test_a_slowdown_is_not_held_against_latencies() -> None:
    found = audit("""| row | op | torch (ms) | new (ms) | slowdown vs torch |
|---|---|---|---|---|
| a bal | fwd | 1.1000 | 1.0000 | 0.909 [0.905, 0.915] |
""")

    assert kinds(found, Grade.CONTRADICTS) == []
    assert "ratio and latencies" in kinds(found, Grade.UNCHECKED)


def test_means_over_more_rows_than_a_declared_selection_are_not_checked() -> None:
    full = ROWS.replace("| fwd | 3 | 1.059 |", "| fwd | 9 | 1.300 |") + "\n7 of 9 rows are above 1.0.\n"

    chosen = audit(f"{full}\nThe table has a selection of rows.\n")

    assert kinds(chosen, Grade.CONTRADICTS) == []
    (mean, count) = chosen.graded(Grade.UNCHECKED)
    assert "3 of 9 rows are on the page" in mean.what
    assert "3 of 9 rows are on the page" in count.what
    assert kinds(audit(full), Grade.CONTRADICTS)[:2] == ["count", "geomean"]


ODD = [
    "1,149",
    "1,100 [1,050, 1,150]",
    "1.149e0",
    "1.149e1",
    "1.149 {0.2..0.3}",
    "1.149 (range 0.5 to 9.9)",
    "1.149 or 1.2",
    "114.9%",
    "1" * 400,
    "1" * 5000,
    f"1.{'1' * 5000}",
    "-1.1",
    "0.000",
]


@pytest.mark.parametrize("cell", ODD, ids=lambda cell: cell[:24])
def test_a_cell_of_no_known_form_is_named_and_never_half_read(cell: str) -> None:
    in_row = audit(ROWS.replace("| 1.100 |", f"| {cell} |") + "\n2 of 3 rows are below 1.0.\n")
    in_mean = audit(ROWS.replace("| 1.059 |", f"| {cell} |"))

    assert ratio(cell) is None
    assert only_range(cell) is None
    for found, kind in ((in_row, "row"), (in_mean, "geomean")):
        assert kinds(found, Grade.CONTRADICTS) == []
        assert [f.printed for f in found.graded(Grade.UNCHECKED) if f.check == kind and f.printed] == [cell]
    assert "geomean" not in kinds(in_row, Grade.AGREES)
    assert "count of rows" in kinds(in_row, Grade.UNCHECKED)


def test_a_decimal_comma_is_no_range() -> None:
    assert only_range("1,050") is None
    assert latency("1,100.0") is None


@pytest.mark.parametrize("groups", ["6²", "9" * 5000, "about 6"], ids=["6²", "5000 digits", "about 6"])
def test_groups_and_counts_of_no_known_form_are_named(groups: str) -> None:
    in_row = audit(f"| row | op | speedup vs torch | n |\n|---|---|---|---|\n| a bal | fwd | 1.100 | {groups} |\n")
    in_mean = audit(ROWS.replace("| fwd | 3 |", f"| fwd | {groups}x |"))

    for found in (in_row, in_mean):
        assert kinds(found, Grade.CONTRADICTS) == []
    assert groups in [f.printed for f in in_row.graded(Grade.UNCHECKED)]
    assert f"{groups}x" in [f.printed for f in in_mean.graded(Grade.UNCHECKED)]
