"""The audit names every result that no check reads: by clause and number, in prose, tables, headings and code."""

from pathlib import Path

import pytest

from harness.audit import audit
from harness.audit.finding import Audit, Grade
from harness.audit.results import results

TOP = Path(__file__).parents[2]
RUBIN = (TOP / "tests" / "data" / "published" / "rubin.md").read_text()
FIRST = RUBIN.splitlines()[0]


def kinds(found: Audit, grade: Grade) -> list[str]:
    return [finding.check for finding in found.graded(grade)]


@pytest.mark.parametrize(
    "sentence",
    [
        "The largest gains over non-Cake SOTA are dW down E4 M136064 skew 9.999.",
        "The largest gains on Rubin vs non-Cake SOTA are dW down E4 M136064 skew 9.999.",
        "Largest gains (Rubin, vs non-Cake SOTA): dW down E4 M136064 skew 9.999.",
        "The largest regressions vs non-Cake SOTA are dW gate_up E4 M136064 1-empty 0.968.",
        "Speedup vs deterministic Cake: 12 of the 100 rows sit below 1.0.",
        "Speedup vs deterministic Cake: 12 of the 100 rows have a ratio below 1.0.",
        "Speedup vs deterministic Cake: 82 of the 100 rows are > 1.0.",
        "Spread vs deterministic Cake: median 3.85 %, 90th percentile 9.93 %.",
    ],
)
def test_a_false_claim_in_other_words_is_found(sentence: str) -> None:
    assert [f.line for f in audit(f"{sentence}\n\n{RUBIN}").graded(Grade.CONTRADICTS)] != []


@pytest.mark.parametrize(
    "sentence",
    [
        "The largest gains over non-Cake SOTA are dW down E8 M131072 random 1.149.",
        "The largest regressions vs non-Cake SOTA are dW gate_up E4 M136064 1-empty 0.967.",
        "Speedup vs deterministic Cake: 13 of the 100 rows sit below 1.0.",
        "Speedup vs deterministic Cake: 83 of the 100 rows are > 1.0.",
        "Spread vs deterministic Cake: median 3.85 %, 90th percentile 6.93 %.",
    ],
)
def test_a_true_claim_in_other_words_agrees(sentence: str) -> None:
    op = "dW, " if "gains" in sentence else ""

    found = audit(f"{op}{sentence}\n\n{RUBIN}")

    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.UNCHECKED) == []


def test_a_percentile_in_words_may_be_by_another_method() -> None:
    spread = "Spread vs deterministic Cake: median 3.85 %, {} {} %.\n\n"

    between = audit(spread.format("90th percentile", "6.70") + RUBIN)
    p90 = audit(spread.format("p90", "6.70") + RUBIN)

    assert kinds(between, Grade.CONTRADICTS) == []
    (finding,) = between.graded(Grade.UNCHECKED)
    assert "sorted[floor(0.9 n)]" in finding.what
    assert kinds(p90, Grade.CONTRADICTS) == ["spread, p90"]


@pytest.mark.parametrize(
    ("sentence", "number"),
    [
        ("12 of the 100 rows regress vs deterministic Cake.", "12 of the 100 rows"),
        ("12 rows lose against deterministic Cake.", "12 rows"),
        ("No row regresses.", "no row"),
        ("dW owner: 1.015 vs deterministic Cake.", "1.015"),
        ("dW owner is at 1.05.", "1.05"),
        ("ckpt ES: +5 %.", "5"),
        ("The new kernel is 2x faster.", "2"),
        ("0.976 is the lowest, 1.026 the highest.", "0.976, 1.026"),
        ("The largest gains are over cuBLAS v1: dW down E4 M136064 skew 1.025.", "1.025"),
        ("The call takes 1.8166 ms.", "1.8166"),
        ("<td>1.234</td>", "1.234"),
        ("### 36 of the 100 rows are below 1.0", "36 of the 100 rows"),
        ("```\ngeomean 1.234\n```", "1.234"),
    ],
)
def test_a_result_in_no_known_form_is_named_with_its_number(sentence: str, number: str) -> None:
    found = audit(f"{sentence}\n\n{RUBIN}")

    assert kinds(found, Grade.CONTRADICTS) == []
    (finding,) = found.graded(Grade.UNCHECKED)
    assert finding.check == "sentence"
    assert number in finding.what


def test_what_is_read_in_a_line_does_not_hide_the_rest_of_it() -> None:
    claims = ", 3 of them wholly; dW owner gains 4.5 %; on average 1.017x."
    page = RUBIN.replace(FIRST, FIRST.replace("; the lowest", f"{claims}\nThe lowest", 1).replace("1.0,", "1.0; ", 1))

    found = audit(page)

    named = [(f.line, f.what.partition(": ")[2]) for f in found.graded(Grade.UNCHECKED) if f.check == "sentence"]
    assert named == [(1, "3 of them"), (1, "4.5"), (1, "1.017")]


def test_results_of_which_rows_print_nothing_are_one_finding_a_kind() -> None:
    found = audit(f"Chance gives ratios of 1.01 or 1.02.\n\nChance alone puts a row near 0.99.\n\n{RUBIN}")

    (finding,) = found.graded(Grade.UNCHECKED)
    assert finding.what == "3 numbers about chance, of which rows print nothing: lines 1, 3"


def test_what_runs_took_is_one_finding() -> None:
    took = "- run r took {} s for {} of its 9 rows, {} % of it in calls that count\n"

    found = audit(f"{took.format(141, 4, 19)}{took.format(20, 5, 40)}\n{RUBIN}")

    assert kinds(found, Grade.CONTRADICTS) == []
    (finding,) = found.graded(Grade.UNCHECKED)
    assert finding.what == "2 numbers about what runs took, of which rows print nothing: lines 1, 2"


@pytest.mark.parametrize(
    "clause",
    [
        "nvidia graphics device (sm_107a, 208 sms), cuda 13.4, driver 615.71.10, torch 2.14.1+cu130 (cuda 13.0)",
        "cupti gpu time of one call, median of 6 paired groups, cuda 13.4, cudnn-frontend 1.32.0",
        "gate_up n 4096 k 6144, e4 m112576; 100 rows of moe-training",
        "measured on 2026-11-30 with the clock at 1980 mhz and 1.98 ghz, 700 w, 139.5 gib",
        "at least 4 × l2 read through, row after row",
        "no row is missing",
    ],
)
def test_sizes_versions_dates_and_clocks_are_no_results(clause: str) -> None:
    assert results(clause, clause) == []


SPREADS = "\n| baseline | median spread | p90 |\n|---|---|---|\n| deterministic Cake | 33.0 % | 99.9 % |\n"


@pytest.mark.parametrize(
    ("table", "titles"),
    [
        (SPREADS, "baseline, median spread, p90"),
        ("\n| baseline | rows below 1.0 |\n|---|---|\n| deterministic Cake | 99 |\n", "baseline, rows below 1.0"),
        ("\n| set | value |\n|---|---|\n| dW | 1.234 |\n", "set, value"),
    ],
)
def test_a_table_of_results_that_nothing_reads_is_named(table: str, titles: str) -> None:
    found = audit(RUBIN + table)

    (finding,) = found.graded(Grade.UNCHECKED)
    assert (finding.check, finding.line) == ("table", RUBIN.count("\n") + 2)
    assert finding.what.endswith(titles)


def test_a_column_of_results_that_nothing_reads_is_named_once() -> None:
    lines = RUBIN.splitlines()
    wide = [f"{line} {cell} |" for line, cell in zip(lines[5:7], ["spread", "---"], strict=True)]
    wide += [f"{line} 9.9 % |" for line in lines[7:13]]

    (finding,) = audit("\n".join([*lines[:5], *wide, *lines[13:]])).graded(Grade.UNCHECKED)

    assert (finding.check, finding.what.rpartition(": ")[2]) == ("table", "spread")


def test_a_table_of_words_and_sizes_is_not_named() -> None:
    table = "\n| arm | sizes | tile |\n|---|---|---|\n| cake | 4096 | 128 |\n"

    assert audit(RUBIN + table).graded(Grade.UNCHECKED) == ()
