"""The audit of published pages: a published one agrees, every wrong number in it is found, our own reports agree."""

import json
import re
from pathlib import Path

import pytest

from harness.audit import audit
from harness.audit.finding import Audit, AuditError, Grade
from harness.audit.printed import latency, printed, ratio
from harness.cli import main

TOP = Path(__file__).parents[2]
RUBIN = (TOP / "tests" / "data" / "published" / "rubin.md").read_text()
HEAD, ROWS = RUBIN[: RUBIN.index("### Rubin")], RUBIN[RUBIN.index("### Rubin") :]
PAGES = sorted([*(TOP / "tests" / "golden" / "report").glob("*.md"), *(TOP / "reports" / "h200").rglob("*.md")])
OURS = [path for path in PAGES if path.read_text().startswith("# Grouped GEMM: ")]  # the others have no geomeans
ROUNDS = [path for path in PAGES if path.read_text().startswith("## Rounds: ")]
NUMBERS = list(re.finditer(r"\d+(?:\.\d+)?", HEAD))
SUMMARY = HEAD.index("| GPU |")


def contradictions(found: Audit) -> list[tuple[str, int]]:
    return [(finding.check, finding.line) for finding in found.graded(Grade.CONTRADICTS)]


def changed(number: re.Match[str], steps: int) -> str:
    """The page with one number of its head changed by so many units of its last digit; upwards if it would be < 0."""
    decimals = len(number[0].partition(".")[2])
    moved = float(number[0]) + steps / 10**decimals
    value = f"{moved if moved >= 0 else float(number[0]) - steps / 10**decimals:.{decimals}f}"
    return HEAD[: number.start()] + value + HEAD[number.end() :] + ROWS


def is_mean(number: re.Match[str]) -> bool:
    """Whether it is a geomean: a decimal number of the summary table outside parentheses."""
    return number.start() > SUMMARY and "." in number[0] and HEAD[number.start() - 2 : number.start()] == "| "


def is_spread(number: re.Match[str]) -> bool:
    return HEAD[number.end() :].startswith(" %")


def is_percentile(number: re.Match[str]) -> bool:
    return HEAD[number.start() - 1] == "p"


def test_the_published_page_agrees_with_itself() -> None:
    found = audit(RUBIN)

    assert contradictions(found) == []
    assert found.graded(Grade.UNCHECKED) == ()
    assert (found.rows, found.means, found.gpus) == (100, 6, ("Rubin (sm_107a)",))
    checks = [finding.check for finding in found.graded(Grade.AGREES)]
    assert {check: checks.count(check) for check in dict.fromkeys(checks)} == {
        "row once": 100,
        "key of the arm": 100,
        "ratio in its range": 300,
        "ratio and latencies": 300,
        "count": 6,
        "geomean": 18,
        "lowest": 7,
        "highest": 7,
        "count of rows": 4,
        "row in a list": 7,
        "order of a list": 2,
        "list is complete": 2,
        "spread, median": 3,
        "spread, p90": 3,
    }


@pytest.mark.parametrize("steps", [-20, -1, 1, 20])
def test_every_changed_count_extreme_and_listed_ratio_is_found(steps: int) -> None:
    exact = [number for number in NUMBERS if not (is_mean(number) or is_spread(number) or is_percentile(number))]

    missed = [number for number in exact if not audit(changed(number, steps)).contradicted]

    assert len(exact) == 54
    assert [(m.start(), m[0]) for m in missed] == []


@pytest.mark.parametrize("steps", [-2, 2])
def test_every_geomean_that_is_wrong_by_two_thousandths_is_found(steps: int) -> None:
    means = [number for number in NUMBERS if is_mean(number)]

    missed = [number for number in means if not audit(changed(number, steps)).contradicted]

    assert len(means) == 18
    assert [m[0] for m in missed] == []


@pytest.mark.parametrize("steps", [-20, 20])
def test_every_spread_that_is_wrong_by_a_fifth_of_a_percent_is_found(steps: int) -> None:
    spreads = [number for number in NUMBERS if is_spread(number)]

    missed = [number for number in spreads if not audit(changed(number, steps)).contradicted]

    assert len(spreads) == 6
    assert [m[0] for m in missed] == []


def test_a_list_in_another_order_is_found() -> None:
    low = ("ckpt gate_up E16 M131072 bal 0.986", "ckpt down E4 M112576 bal 0.987")
    high = ("dW down E32 M131072 random 1.023", "dW gate_up E4 M112576 1-empty asc 1.022")

    for one, other in (low, high):
        page = RUBIN.replace(one, "\0").replace(other, one).replace("\0", other)

        assert contradictions(audit(page)) == [("order of a list", 1 if one in low else 2)]


def test_a_list_that_leaves_the_lowest_row_out_is_found() -> None:
    found = audit(RUBIN.replace("ckpt ES gate_up E8 M131072 bal 0.976, ", ""))

    (finding,) = found.graded(Grade.CONTRADICTS)
    assert finding.check == "list is complete"
    assert finding.recomputed == "ckpt ES gate_up E8 M131072 bal 0.976"
    assert finding.rows == (75,)


def test_a_missing_row_is_found_by_its_count_and_a_row_printed_twice_by_its_name() -> None:
    lines = RUBIN.splitlines()
    row = next(i for i, line in enumerate(lines) if "| gate_up E4 M112576 skew | dW |" in line)

    without = audit("\n".join(lines[:row] + lines[row + 1 :]))
    twice = audit("\n".join(lines[: row + 1] + lines[row:]))

    assert ("count", 8) in contradictions(without)
    assert ("row once", row + 1) in contradictions(twice)
    assert ("count", 8) in contradictions(twice)


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        ("1.009 [0.998, 1.042]", "1.043 [0.998, 1.042]", "ratio in its range"),
        ("1.061 [1.056, 1.102]", "1.061 [1.102, 1.056]", "ratio in its range"),
        ("| 1.9277 t |", "| 1.9277 z |", "key of the arm"),
        ("| 1.9277 t |", "| 2.9277 t |", "ratio and latencies"),
    ],
)
def test_a_row_that_contradicts_itself_is_found(old: str, new: str, check: str) -> None:
    assert check in [kind for kind, _ in contradictions(audit(RUBIN.replace(old, new, 1)))]


SENTENCES = [
    # sentence with {}, true, false
    ("Speedup vs deterministic Cake: {} of the 100 rows are below 1.0.", "13", "12"),
    ("vs deterministic Cake, **{}** rows (of 100) are below `1.0`.", "13", "12"),
    ("Of the 100 rows, {} are above 1.0 vs deterministic Cake.", "83", "82"),
    ("Rows below 1.0: {} of 100 vs deterministic Cake.", "13", "11"),
    ("{} of 36 dW rows are below 1.00x vs non-Cake SOTA.", "12", "11"),
    ("vs SOTA, {} dW rows are below 1 (0.967–0.999).", "12", "11"),
    ("vs non-Cake SOTA, 12 dW rows are below 1 (0.967–{}).", "0.999", "0.998"),
    ("vs non-Cake SOTA: {} ckpt rows are above 1.0.", "all 32", "31"),
    ("Speedup vs non-Cake SOTA: {} rows are above 1.0.", "87", "all"),
    ("Speedup vs deterministic Cake: {} ckpt ES row is below 1.3.", "no", "one"),
    ("vs non-Cake SOTA, {} rows lie above 1.0 over their whole [min, max].", "78", "77"),
    ("{} rows are wholly below 1.0 vs previous non-deterministic Cake.", "2", "0"),
    ("The lowest vs deterministic Cake is dW gate_up E4 M136064 1-empty {}.", "0.988", "0.987"),
    ("The lowest vs deterministic Cake is dW gate_up E4 M136064 {} 0.988.", "1-empty", "2-empty"),
    ("The highest vs deterministic Cake is {} (ckpt ES down E4 M136064 1-empty asc).", "1.406", "1.394"),
    ("Largest gains vs deterministic Cake: ckpt ES down E4 M136064 1-empty asc ({}).", "1.406", "1.405"),
    ("The lowest vs deterministic Cake is {}.", "0.988", "0.989"),
    ("vs non-Cake SOTA, 12 dW rows are below 1; the lowest is dW gate_up E4 M136064 1-empty {}.", "0.967", "0.966"),
    ("ckpt ES vs previous non-deterministic Cake: {} of the 32 rows are below 1.0.", "11", "10"),
    ("For dW vs deterministic Cake: the lowest is dW gate_up E4 M136064 {} 0.988.", "1-empty", "3-empty"),
    ("Spread over the {} rows vs non-Cake SOTA: median 3.30 %.", "100", "99"),
]


@pytest.mark.parametrize(("sentence", "true", "false"), SENTENCES, ids=[s for s, _, _ in SENTENCES])
def test_a_sentence_is_recomputed(sentence: str, true: str, false: str) -> None:
    bare = HEAD[SUMMARY:] + ROWS

    right = audit(f"{sentence.format(true)}\n\n{bare}")
    wrong = audit(f"{sentence.format(false)}\n\n{bare}")

    assert contradictions(right) == []
    assert [f.line for f in right.graded(Grade.AGREES) if f.line == 1] != []
    assert {line for _, line in contradictions(wrong)} == {1}


def test_a_sentence_in_no_known_form_is_named_as_not_checked() -> None:
    found = audit(f"In 2 of 3 sizes the speedup grows to 1.2.\n\n{RUBIN}")

    (finding,) = found.graded(Grade.UNCHECKED)
    assert (finding.check, finding.line) == ("sentence", 1)


def test_counts_are_of_printed_rows_unless_the_page_says_otherwise() -> None:
    page = RUBIN.replace("36 of the 100", "37 of the 100")

    (finding,) = audit(page).graded(Grade.CONTRADICTS)
    assert finding.recomputed == (
        "36 as printed; 37 if it counts unrounded ratios, which the page does not say"
        " (rows whose rounding decides: 48, 84)"
    )
    assert not audit(page, unrounded_counts=True).contradicted
    assert not audit(f"{page}\nMeans and counts use unrounded ratios.\n").contradicted
    assert audit(page.replace("37 of the", "39 of the"), unrounded_counts=True).contradicted


def test_a_line_of_a_gpu_or_operation_without_rows_contradicts_once() -> None:
    found = audit(RUBIN.replace("| Rubin (sm_107a) | dW | owner |", "| Other (sm_99a) | dW | owner |"))

    assert ("count", 8) in contradictions(found)
    assert [line for _, line in contradictions(found)].count(8) == 1


def test_rows_without_a_line_of_the_geomean_table_are_a_note() -> None:
    line = next(line for line in RUBIN.splitlines(keepends=True) if "| dW | unsorted |" in line)

    found = audit(RUBIN.replace(line, ""))

    assert contradictions(found) == []
    (note,) = (f for f in found.graded(Grade.NOTE) if f.check == "geomean")
    assert (len(note.rows), note.rows[0]) == (14, 12)


def test_baselines_in_tables_of_their_own_make_one_row() -> None:
    lines = RUBIN.splitlines()
    head, rows = lines[: lines.index("### Rubin (sm_107a)") + 4], lines[lines.index("### Rubin (sm_107a)") + 4 :]
    cells = [line.strip("| ").split(" | ") for line in rows]
    cells[1] = ["---"] * 10
    tables = [
        "\n".join("| " + " | ".join([*row[:3], row[6], row[3 + k], row[7 + k]]) + " |" for row in cells)
        for k in range(3)
    ]

    found = audit("\n\n".join(["\n".join(head), *tables]))

    assert contradictions(found) == []
    assert found.rows == 100
    assert [f.check for f in found.graded(Grade.AGREES)].count("ratio and latencies") == 300


def test_geomean_tables_without_a_gpu_belong_to_the_heading_that_holds_them() -> None:
    lines = RUBIN.splitlines()
    table = "\n".join(line.replace("| Rubin (sm_107a) |", "|", 1).replace("| GPU |", "|", 1) for line in lines[5:13])
    table = table.replace("|---", "", 1)
    rows = "\n".join(lines[lines.index("### Rubin (sm_107a)") + 3 :])
    other = rows.replace("sm_107a", "sm_100a")

    found = audit(f"# Two\n\n## Rubin\n\n{table}\n\n### Rows\n{rows}\n\n## Other\n\n{table}\n\n### Rows\n{other}\n")

    assert contradictions(found) == []
    assert [f.check for f in found.graded(Grade.AGREES)].count("geomean") == 36


@pytest.mark.parametrize("path", OURS, ids=lambda p: str(p.relative_to(TOP)))
def test_our_own_reports_agree_with_themselves(path: Path) -> None:
    found = audit(path.read_text())

    assert contradictions(found) == []
    checks = {finding.check for finding in found.graded(Grade.AGREES)}
    assert {"geomean", "lowest", "highest", "count", "count of rows", "row in a list", "geomean said"} <= checks


@pytest.mark.parametrize("path", ROUNDS, ids=lambda p: str(p.relative_to(TOP)))
def test_our_own_tables_of_rounds_contradict_nothing(path: Path) -> None:
    found = audit(path.read_text())

    assert contradictions(found) == []
    assert found.graded(Grade.AGREES)


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        ("is above 1.0 in 2 of 3 rows", "is above 1.0 in 3 of 3 rows", "count of rows"),
        ("wholly above in 2** in sustained", "wholly above in 1** in sustained", "count of rows"),
        ("geomeans from 1.003 (dW owner", "geomeans from 1.004 (dW owner", "geomean said"),
        ("bal 0.994 [0.990, 1.001]. Chance", "bal 0.994 [0.990, 1.002]. Chance", "row in a list"),
        ("1 of 3 rows is below 1.0", "2 of 3 rows are below 1.0", "count of rows"),
        ("median 1.08 %, p90 1.08 % over 3 rows", "median 1.08 %, p90 1.38 % over 3 rows", "spread, p90"),
        ("| 2 of 22 | 1.003 (0.994", "| 3 of 22 | 1.003 (0.994", "count"),
        ("Measured: 4 rows", "Measured: 5 rows", "count of rows"),
        ("| 8.9545 | 8.1769 | c |", "| 8.9545 | 8.1769 | t |", "SOTA is the fastest"),
    ],
)
def test_a_wrong_number_in_our_own_report_is_found(old: str, new: str, check: str) -> None:
    page = (TOP / "tests" / "golden" / "report" / "regimes.md").read_text()
    assert old in page

    assert check in [kind for kind, _ in contradictions(audit(page.replace(old, new, 1)))]


@pytest.mark.parametrize(
    ("cell", "value", "low", "high"),
    [
        ("1.009 [0.998, 1.042]", "1.009", "0.998", "1.042"),
        ("1.005 (0.988-1.017)", "1.005", "0.988", "1.017"),
        ("1.005x (0.988x–1.017x)", "1.005", "0.988", "1.017"),
        ("1.01 × [0.98 to 1.05]", "1.01", "0.98", "1.05"),
        ("1.01, 0.98–1.05", "1.01", "0.98", "1.05"),
        ("1.017† (0.996—1.039), 2 of 22", "1.017", "0.996", "1.039"),
        ("1.028", "1.028", None, None),
    ],
)
def test_a_ratio_is_read_in_every_form(cell: str, value: str, low: str | None, high: str | None) -> None:
    found = ratio(cell)

    assert found is not None
    assert found.value.text == value
    assert (found.low and found.low.text, found.high and found.high.text) == (low, high)


@pytest.mark.parametrize("cell", ["1.9277 t", "1.9277 (t)", "t 1.9277", "1.9277 ms (t)", "1.9277 ms t"])
def test_a_latency_is_read_with_the_letter_of_its_arm(cell: str) -> None:
    found = latency(cell)

    assert found is not None
    assert (found.value.text, found.key) == ("1.9277", "t")


def test_two_roundings_of_one_value_to_as_many_digits_are_equal_and_of_fewer_digits_overlap() -> None:
    assert not printed("1.009").meets(printed("1.010"))
    assert printed("1.0").meets(printed("1.04"))
    assert not printed("1.0").meets(printed("1.06"))


def test_a_page_without_rows_cannot_be_read() -> None:
    with pytest.raises(AuditError, match="no per-row table found"):
        audit(HEAD)


def test_a_line_with_more_cells_than_its_header_cannot_be_read() -> None:
    with pytest.raises(AuditError, match=r"line 21: a row must have its header's 10 cells at most, got 11"):
        audit(RUBIN.replace("[0.995, 1.037] |\n", "[0.995, 1.037] | 5 |\n", 1))


def test_the_command_says_what_agrees_and_gives_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rubin.md"
    path.write_text(RUBIN)

    assert main(["audit", str(path)]) == 0

    out = capsys.readouterr().out.splitlines()
    assert out[0] == "rubin.md: 100 rows on Rubin (sm_107a), 3 baselines, 6 lines of geomeans"
    assert "  agrees       geomean: 18" in out
    assert out[-1] == "verdict: agrees, 859 checks; 0 things not checked"


def test_the_command_names_rows_and_both_values_and_gives_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.md"
    path.write_text(RUBIN.replace("| 22 | 1.005 (", "| 22 | 1.015 ("))

    assert main(["audit", str(path)]) == 1
    text = capsys.readouterr().out
    assert main(["audit", "--json", str(path)]) == 1
    data = json.loads(capsys.readouterr().out)

    said = "geomean: Rubin (sm_107a) dW owner vs deterministic cake: printed 1.015, rows give 1.0041 to 1.0052"
    assert f"  contradicts  line 8, {said} (rows 1-11, 19-29)" in text.splitlines()
    assert data["verdict"] == "contradicts"
    (entry,) = data["contradicts"]
    assert (entry["check"], entry["line"], entry["printed"]) == ("geomean", 8, "1.015")
    assert entry["rows"] == [*range(1, 12), *range(19, 30)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"# no table\n", "no per-row table found"),
        (b"\xff\xfe", "must be UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_what_cannot_be_read_gives_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, said: str
) -> None:
    path = tmp_path / "page.md"
    if content is not None:
        path.write_bytes(content)

    assert main(["audit", str(path)]) == 2
    assert said in capsys.readouterr().err
