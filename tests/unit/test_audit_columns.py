"""The audit of ranges in columns of their own, and of cells that hold no number."""

import re
from pathlib import Path

import pytest

from harness.audit import audit
from harness.audit.finding import Audit, Grade

TOP = Path(__file__).parents[2]
RUBIN = (TOP / "tests" / "data" / "published" / "rubin.md").read_text()
BARE = RUBIN[RUBIN.index("| GPU |") :]
BASELINES = ("deterministic Cake", "non-Cake SOTA", "previous non-deterministic Cake")
ALL = 100 * len(BASELINES)


def kinds(found: Audit, grade: Grade) -> list[str]:
    return [finding.check for finding in found.graded(grade)]


def split_rows(title: str, cell: str) -> str:
    """The page with the range of each row's ratio in a column of its own, behind it."""
    lines = []
    for line in BARE.splitlines():
        if line.startswith("| sm_"):
            line = re.sub(r"(\d\.\d+) \[(\d\.\d+), (\d\.\d+)\]", rf"\1 | {cell}", line)
        for baseline in BASELINES if "speedup vs" in line else ():
            line = line.replace(f"vs {baseline} |", f"vs {baseline} | {title.format(baseline)} |")
        lines.append("|---" * 13 + "|" if line == "|---" * 10 + "|" else line)
    return "\n".join(lines)


@pytest.mark.parametrize(
    "title",
    [
        "[min, max] vs {}",
        "min-max vs {}",
        "min–max vs {}",
        "lowest-highest vs {}",
        "range vs {}",
        "vs {} [min, max]",
        "vs {} (min-max)",
        "vs {} range",
        "speedup vs {}, min to max",
        "[min, max]",
        "range",
        "min-max",
    ],
)
def test_a_range_in_a_column_of_its_own_is_that_of_its_ratio(title: str) -> None:
    page = split_rows(title, r"\2-\3")

    found = audit(page)
    outside = audit(page.replace("| 1.009 | 0.998-1.042 |", "| 1.009 | 1.010-1.042 |"))

    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.UNCHECKED) == []
    assert kinds(found, Grade.AGREES).count("ratio in its range") == ALL
    assert kinds(found, Grade.AGREES).count("geomean") == 18
    assert kinds(audit(page.replace("| 22 | 1.005 (", "| 22 | 1.007 (")), Grade.CONTRADICTS) == ["geomean"]
    assert "ratio in its range" in kinds(outside, Grade.CONTRADICTS)


def test_the_header_of_a_column_may_name_the_range_that_stands_beside_its_ratio() -> None:
    found = audit(re.sub(r"speedup (vs [\w -]+?) \|", r"speedup \1 [min, max] |", BARE))

    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.UNCHECKED) == []
    assert kinds(found, Grade.AGREES).count("ratio in its range") == ALL
    assert kinds(found, Grade.AGREES).count("geomean") == 18


TABLE = """| row | operation | {header} |
|---|---|---|---|---|---|
| a bal | fwd | {first} |
| b bal | fwd | {second} |

| operation | vs torch |
|---|---|
| fwd | 1.149 |
"""


@pytest.mark.parametrize(
    ("header", "first", "second"),
    [
        (
            "vs torch | vs cake | [min, max] | [min, max]",
            "1.1 | 2.0 | 1.0-1.2 | 1.9-2.1",
            "1.2 | 2.2 | 1-1.3 | 2.1-2.3",
        ),
        ("torch (ms) | [min, max] | vs torch | n", "3.0 | 2.9-3.1 | 1.100 | 6", "3.0 | 2.9-3.1 | 1.200 | 6"),
        ("min | max | vs torch | n", "128.5 | 256.5 | 1.100 | 6", "128.5 | 256.5 | 1.200 | 6"),
        ("vs torch | min | max | n", "1.100 | 1.0 | 1.2 | 6", "1.200 | 1.1 | 1.3 | 6"),
        ("vs torch | lowest vs torch | highest vs torch | n", "1.100 | 1.0 | 1.2 | 6", "1.200 | 1.1 | 1.3 | 6"),
        ("vs torch | vs torch min | vs torch (max) | n", "1.100 | 1.0 | 1.2 | 6", "1.200 | 1.1 | 1.3 | 6"),
    ],
)
def test_a_range_is_never_taken_for_that_of_another_column(header: str, first: str, second: str) -> None:
    found = audit(TABLE.format(header=header, first=first, second=second))

    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.AGREES).count("geomean") == 1
    elsewhere = header.startswith(("torch (ms)", "min |"))
    ranged = 0 if elsewhere else 4 if "cake" in header else 2
    assert kinds(found, Grade.AGREES).count("ratio in its range") == ranged
    unread = {"torch (ms)": 1, "min | max ": 2}.get(header[:10], 0)
    assert kinds(found, Grade.UNCHECKED) == ["table"] * unread


def test_ranges_in_columns_of_the_geomean_table_are_checked() -> None:
    lines = BARE.splitlines()
    head = [
        lines[0].replace("vs deterministic Cake |", "vs deterministic Cake | [min, max] |"),
        "|---" * 8 + "|",
        *(re.sub(r"(\d\.\d+) \((\d\.\d+-\d\.\d+)\)", r"\1 | \2", line) for line in lines[2:8]),
    ]
    page = "\n".join([*head, *lines[8:]])

    found = audit(page)

    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.UNCHECKED) == []
    assert kinds(found, Grade.AGREES).count("lowest") == kinds(found, Grade.AGREES).count("highest") == 6
    assert kinds(audit(page.replace("| 0.988-1.017 |", "| 0.989-1.017 |")), Grade.CONTRADICTS) == ["lowest"]


@pytest.mark.parametrize("cell", ["NaN", "nan", "inf", "-inf", "∞", "NaN [0.998, 1.042]"])
def test_what_is_no_finite_number_is_no_missing_one(cell: str) -> None:
    in_row = audit(RUBIN.replace("1.009 [0.998, 1.042]", cell, 1))
    in_mean = audit(RUBIN.replace("| 1.005 (0.988-1.017) |", f"| {cell} |"))

    for found in (in_row, in_mean):
        assert cell in [finding.printed for finding in found.graded(Grade.UNCHECKED)]
    assert kinds(in_row, Grade.AGREES).count("geomean") == 17


@pytest.mark.parametrize(("cell", "named"), [("", ["row", "count"]), ("–", ["count"]), ("failed", ["count"])])
def test_a_missing_ratio_is_named_where_the_count_does_not_say_so(cell: str, named: list[str]) -> None:
    page = BARE.replace("1.009 [0.998, 1.042]", cell, 1)

    found = audit(page)
    said = audit(page.replace("| 1.005 (0.988-1.017) |", "| 1.005 (0.988-1.017), 21 of 22 |"))

    assert kinds(found, Grade.UNCHECKED) == named
    assert [kind for kind in kinds(said, Grade.UNCHECKED) if kind == "count"] == []


def test_a_letter_that_only_one_row_lacks_is_named() -> None:
    (finding,) = audit(RUBIN.replace("| 1.9277 t |", "| 1.9277 |")).graded(Grade.UNCHECKED)

    assert (finding.check, finding.line, finding.rows) == ("key of the arm", 21, (1,))


def test_a_geomean_line_that_stands_twice_is_named() -> None:
    line = next(line for line in RUBIN.splitlines(keepends=True) if "| dW | owner |" in line)

    found = audit(RUBIN.replace(line, line + line))

    assert kinds(found, Grade.CONTRADICTS) == []
    (finding,) = found.graded(Grade.UNCHECKED)
    assert (finding.check, finding.line) == ("line once", 9)
