"""The audit of pages that call things by other words: baselines, classes, operations, GPUs; and of selections."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.audit import audit
from harness.audit.finding import Audit, Grade
from harness.audit.labels import class_of, gpu_of, split
from harness.cli import main

TOP = Path(__file__).parents[2]
RUBIN = (TOP / "tests" / "data" / "published" / "rubin.md").read_text()
HEAD, ROWS = RUBIN[: RUBIN.index("### Rubin")], RUBIN[RUBIN.index("### Rubin") :]
SUMMARY = HEAD[HEAD.index("| GPU |") :]
BARE = SUMMARY + ROWS
LOWEST = "ckpt ES gate_up E8 M131072 bal {} and ckpt gate_up E16 M131072 bal 0.986"


def kinds(found: Audit, grade: Grade) -> list[str]:
    return [finding.check for finding in found.graded(grade)]


@pytest.mark.parametrize("baseline", ["torch._grouped_mm", "Cake v1.2", "prev. Cake", "Cake at v0.9"])
@pytest.mark.parametrize(
    "intro",
    [
        "The lowest vs {} are",
        "The lowest over {} are",
        "The lowest on Rubin vs {} are",
        "The lowest ratios against {} on Rubin are",
        "Lowest (Rubin, vs {}):",
        "On Rubin vs {}, the lowest are",
    ],
)
def test_a_list_is_read_whatever_dots_its_baseline_has_and_wherever_its_gpu_stands(baseline: str, intro: str) -> None:
    page = BARE.replace("previous non-deterministic Cake", baseline)
    said = f"{intro.format(baseline)} {LOWEST}."

    right, wrong = (audit(f"{said.format(ratio)}\n\n{page}") for ratio in ("0.976", "0.975"))

    assert kinds(right, Grade.CONTRADICTS) == []
    assert kinds(right, Grade.UNCHECKED) == []
    assert kinds(right, Grade.AGREES).count("row in a list") == 2
    assert "row in a list" in kinds(wrong, Grade.CONTRADICTS)


def test_a_list_against_a_baseline_that_the_page_has_not_is_named() -> None:
    found = audit(f"{HEAD}The lowest vs cuBLAS 12.1 are {LOWEST.format('0.975')}.\n\n{ROWS}")

    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.UNCHECKED) == ["sentence"]


CLASSES: dict[str, Callable[[str], str]] = {
    "routing": lambda page: page.replace("| operation | rows | count |", "| operation | routing | count |"),
    "group": lambda page: page.replace("| operation | rows | count |", "| operation | group | count |"),
    "row set": lambda page: page.replace("| operation | rows | count |", "| operation | row set | count |"),
    "owner rows": lambda page: re.sub(r"\| (owner|unsorted) \|", r"| \1 rows |", page),
    "owner order": lambda page: re.sub(r"\| (owner|unsorted) \|", r"| \1 order |", page),
    "sorted": lambda page: page.replace("| owner |", "| sorted |"),
    "ckpt-ES": lambda page: page.replace("| ckpt ES |", "| ckpt-ES |"),
    "ckpt (ES)": lambda page: page.replace("| ckpt ES |", "| ckpt (ES) |"),
    "one column": lambda page: (
        re.sub(r"\| (dW|ckpt|ckpt ES) \| (owner|unsorted) \|", r"| \1 \2 |", page)
        .replace("| operation | rows | count |", "| rows | count |")
        .replace("|---|---|---|---|---|---|---|", "|---|---|---|---|---|---|")
    ),
    "22 rows": lambda page: re.sub(r"\| (\d\d) \|", r"| \1 rows |", page),
    "NVIDIA": lambda page: page.replace("| Rubin (sm_107a) |", "| NVIDIA Rubin (sm_107a) |"),
    "short": lambda page: page.replace("| Rubin (sm_107a) |", "| Rubin |"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_labels_in_other_words_are_those_of_the_rows(name: str) -> None:
    page = CLASSES[name](SUMMARY) + ROWS
    assert page != BARE

    found = audit(page)
    wrong = audit(page.replace("| 1.080 (", "| 1.082 ("))

    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.UNCHECKED) == []
    assert kinds(found, Grade.AGREES).count("geomean") == 18
    assert kinds(wrong, Grade.CONTRADICTS) == ["geomean"]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("| ckpt ES |", "| checkpoint, early stop |", 2),
        ("| owner |", "| heavy |", 3),
        ("| Rubin (sm_107a) | dW |", "| Ampere | dW |", 2),
    ],
)
def test_a_label_that_no_row_has_is_not_checked(old: str, new: str, lines: int) -> None:
    found = audit(SUMMARY.replace(old, new) + ROWS)

    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.UNCHECKED) == ["geomean"] * lines
    assert kinds(found, Grade.AGREES).count("geomean") == 18 - 3 * lines


def test_lines_that_an_unknown_column_tells_apart_are_not_checked() -> None:
    page = SUMMARY.replace("| rows | count |", "| load | count |").replace("| owner |", "| even |")
    page = page.replace("| unsorted |", "| uneven |") + ROWS

    found = audit(page)

    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.UNCHECKED) == ["geomean"] * 6


def two_gpus(label: str, heading: str, cell: str) -> str:
    """A page of two GPUs of one architecture; the second has every ratio of the first."""
    lines = SUMMARY.splitlines()
    first, second = ("B200", "GB200")
    means = [line.replace("Rubin (sm_107a)", label.format(gpu)) for gpu in (first, second) for line in lines[2:8]]
    rows = "\n".join(ROWS.splitlines()[4:]).replace("| sm_107a |", f"| {cell} |")
    parts = [f"### {heading.format(gpu)}\n\n{rows}\n" for gpu in (first, second)]
    return "\n".join([*lines[:2], *means, "", *parts])


@pytest.mark.parametrize(
    ("label", "heading"),
    [
        ("NVIDIA {} (sm_100a)", "{} (sm_100a)"),
        ("{} (sm_100a)", "NVIDIA {} (sm_100a)"),
        ("NVIDIA {}", "Rows on {}"),
        ("{}", "{} (sm_100a)"),
    ],
)
def test_two_gpus_of_one_architecture_are_told_apart_by_their_headings(label: str, heading: str) -> None:
    found = audit(two_gpus(label, heading, "sm_100a"))

    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.UNCHECKED) == []
    assert kinds(found, Grade.AGREES).count("geomean") == 36


@pytest.mark.parametrize("label", ["NVIDIA {} (sm_100a)", "{}"])
def test_a_row_of_another_architecture_is_not_one_of_its_headings_gpu(label: str) -> None:
    page = two_gpus(label, "{} (sm_100a)", "sm_100a").replace("| sm_100a |", "| sm_90a |", 1)

    assert "count" in kinds(audit(page), Grade.CONTRADICTS)


def test_a_gpu_column_in_other_words_than_the_heading_is_named() -> None:
    found = audit(
        RUBIN.replace("| sm_107a | gate_up E4 M112576 bal | dW |", "| card A | gate_up E4 M112576 bal | dW |")
    )

    assert kinds(found, Grade.CONTRADICTS) == []
    (finding,) = found.graded(Grade.UNCHECKED)
    assert (finding.printed, finding.rows) == ("card A", (1,))


def test_a_label_of_a_class_an_operation_and_a_gpu_in_one_form() -> None:
    assert [class_of(label) for label in ("Owner rows", "sorted", "all rows", "unsorted order")] == [
        "owner",
        "owner",
        "",
        "unsorted",
    ]
    assert split("ckpt-ES owner", ["ckpt", "ckpt ES"]) == ("ckpt ES", "owner")
    assert split("checkpoint owner", ["ckpt", "ckpt ES"]) is None
    assert gpu_of("", ["H100 PCIe (sm_90a)"], ["H100 (sm_90a)", "H100 PCIe (sm_90a)"]) == "H100 PCIe (sm_90a)"
    assert gpu_of("sm_90a", ["Rubin (sm_107a)"], ["Rubin (sm_107a)"]) == "sm_90a"


MEANS = """| GPU | regime | operation | rows | count | vs torch |
|---|---|---|---|---|---|
| H200 | boost | fwd | owner | 3 | 1.059 |
| H200 | sustained | fwd | owner | 9 | 1.300 |

{above}

| row | operation | speedup vs torch |
|---|---|---|
| a bal | fwd | 1.100 |
| b bal | fwd | 1.200 |
| c bal | fwd | 0.900 |
"""


@pytest.mark.parametrize(
    ("above", "checked"),
    [
        ("All of them:", 0),
        ("## Rows in boost", 1),
        ("- H200, CUDA 13.0; regime boost; median of 8 paired groups", 1),
        ("- H200; regime boost; a\n- H200; regime sustained; b", 0),
    ],
)
def test_rows_are_of_a_regime_only_where_the_page_says_which(above: str, checked: int) -> None:
    found = audit(MEANS.format(above=above))

    assert kinds(found, Grade.CONTRADICTS) == []
    assert kinds(found, Grade.AGREES).count("geomean") == checked
    assert kinds(found, Grade.UNCHECKED) == ["geomean"] * (2 - checked)


@pytest.mark.parametrize("said", ["a selection of them", "a selection of rows", "an excerpt from the rows"])
def test_a_partial_table_that_says_so_contradicts_no_mean_over_more_rows(said: str) -> None:
    page = MEANS.format(above=f"## Rows in boost\n\nThe means, and {said}:").replace("| 3 | 1.059 |", "| 18 | 1.200 |")

    assert kinds(audit(page), Grade.CONTRADICTS) == []
    assert kinds(audit(page.replace(said, "all rows")), Grade.CONTRADICTS) == ["count", "geomean"]


@pytest.mark.parametrize(
    ("old", "new"),
    [("| Rubin (sm_107a) |", "| Ampere |"), ("vs ", "vs x"), ("|---|\n| Rubin", "|---|\n| Rubin")],
)
def test_a_geomean_table_of_no_known_row_cannot_be_read(
    old: str, new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.md"
    path.write_text(SUMMARY.replace(old, new) + ROWS)
    same = old == new

    assert main(["audit", str(path)]) == (0 if same else 2)

    verdict = capsys.readouterr().out.splitlines()[-1]
    assert main(["audit", "--json", str(path)]) == (0 if same else 2)
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["geomeans_checked"]) == (("agrees", 18) if same else ("cannot be read", 0))
    said = (
        "verdict: agrees" if same else "verdict: cannot be read: no line of its geomean table is of rows that are known"
    )
    assert verdict.startswith(said)


def test_a_page_none_of_whose_geomeans_could_be_checked_does_not_plainly_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.md"
    path.write_text(MEANS.format(above="## Rows in boost\n\nA selection of rows.").replace("| 3 |", "| 4 |"))

    assert main(["audit", str(path)]) == 0

    assert "but NOT ONE of its 2 lines of geomeans could be checked" in capsys.readouterr().out.splitlines()[-1]


TWO_GPUS = """Measured on H200 and B200.

Speedup vs torch: {count} of the 4 rows are below 1.0; the lowest are B200 fwd a bal 0.800 and H200 fwd b bal {second}.

{before}

The median of 6 groups; vs torch, {on_one} of the 2 rows are below 1.0 on H200.

| GPU | operation | rows | count | speedup vs torch |
|---|---|---|---|---|
| H200 | fwd | bal | 2 | 0.995 |
| B200 | fwd | bal | 2 | 0.980 |

| GPU | row | operation | speedup vs torch |
|---|---|---|---|
| H200 | a bal | fwd | 1.100 |
| H200 | b bal | fwd | 0.900 |
| B200 | a bal | fwd | 0.800 |
| B200 | b bal | fwd | 1.200 |
"""


@pytest.mark.parametrize("before", ["", "On B200 the clock was low."])
def test_a_gpu_that_another_sentence_or_an_item_of_a_list_names_does_not_narrow_a_claim(before: str) -> None:
    def judged(count: int = 2, second: str = "0.900", on_one: int = 1) -> list[str]:
        page = TWO_GPUS.format(before=before, count=count, second=second, on_one=on_one)
        return kinds(audit(page), Grade.CONTRADICTS)

    assert judged() == []
    assert judged(count=1) == ["count of rows"]
    assert judged(second="0.950") == ["row in a list"]
    assert judged(on_one=2) == ["count of rows"]
