"""The pages of a comparison, byte for byte; ``GOLDEN_WRITE=1`` writes runs and pages again."""

import csv
import importlib
import io
import json
import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from harness import runfile
from harness.compare.comparison import VERDICTS, Comparison, Limits, Reason, Verdict
from harness.compare.interleaved import compare_interleaved
from harness.compare.stored import compare_stored
from harness.model.run import Previous, Row, Run
from harness.pages.compare.csv import COLUMNS
from harness.pages.compare.markdown import MEANINGS, render_page
from harness.pages.compare.words import GLYPHS, probability, sentence
from tests.unit.report_runs import H200, case, row, run, skipped

FOLDER = Path(__file__).parents[1] / "golden" / "compare"
FORMATS = {"markdown": "md", "json": "json", "csv": "csv"}
OURS, THEIRS, T, C = "cake_nondet", "previous_nondet", "torch_grouped_mm", "cublas_loop"
ODD = "moe[a|b] `x` <img src=x onerror=1> @team #1 a+b 7e10234 \N{OWL}"


def around(source: random.Random, middle_ns: int, groups: int, sd: float = 0.002) -> tuple[int, ...]:
    return tuple(round(middle_ns * (1 + source.gauss(0, sd))) for _ in range(groups))


def both() -> Run:
    """Twelve groups, both revisions in each: every verdict that one run can have, a control, a row nobody can do."""
    source = random.Random(1)

    def timed(name: str, base_ns: int, head_ns: int, *, op: str = "dW", mhz: int = 1500, sd: float = 0.002) -> Row:
        spans = {OURS: around(source, head_ns, 12, sd), THEIRS: around(source, base_ns, 12, sd)}
        return row(case(name, op=op), spans, clock={OURS: (mhz,) * 12, THEIRS: (1500,) * 12})

    some = around(source, 8_000_000, 12)
    rows = [
        timed("gate_up E4 M112576 bal", 7_600_000, 7_980_000),
        timed("gate_up E4 M112576 skew", 7_900_000, 7_500_000),
        timed("gate_up E4 M112576 1-empty", 7_700_000, 7_702_000),
        timed("gate_up E8 M131072 bal", 8_900_000, 8_880_000, sd=0.02),
        timed("gate_up E16 M131072 bal", 8_900_000, 9_200_000, mhz=1440),
        row(case("down E4 M112576 bal"), {THEIRS: some}, failed={OURS: "wrong: rel L2 0.21 is above 0.00404"}),
        row(case("down E4 M112576 skew"), {THEIRS: some}, unsupported={OURS: "no program for wgrad"}),
        row(case("down E8 M131072 bal"), {OURS: some}, unsupported={THEIRS: "no program for wgrad"}),
        timed(ODD, 4_000_000, 4_000_500, op="fwd"),
        timed("down E4 M112576 bal", 3_900_000, 3_901_000, op="dX"),
        skipped(case("gate_up E32 M131072 bal"), "needs 152.1 GiB of device memory for 2 arms, 139.8 GiB are usable"),
    ]
    made = run(*rows, arms=(OURS, THEIRS), run_id="20260201-080000-both", timer="cupti", method_version=3)
    control = f"boost/moe-training/{rows[9].case.case_id}"
    beside = Previous(revision="0a1b2c3 (git)", sources_sha256="0a" * 32, controls=(control,))
    return replace(made, sources_sha256="1b" * 32, previous=beside, groups=12)


def two() -> tuple[Run, Run]:
    """Two nights on two boards, another Python and another driver on a card of its own; a row of either side."""
    return night("monday", board="aaaaaaaaaaaa"), night("tuesday", board="bbbbbbbbbbbb")


def night(name: str, *, board: str) -> Run:
    tuesday = name == "tuesday"
    source = random.Random(2 + tuesday)
    rows = []
    for index in range(22):
        ours = 8_000_000 if not tuesday or index else 8_500_000
        spans = {
            OURS: around(source, ours, 6, 0.001),
            T: around(source, 8_200_000, 6, 0.001),
            C: around(source, 8_150_000, 6, 0.001),
        }
        rows.append(row(case(f"row {index:02}"), spans, clock=dict.fromkeys(spans, (1500,) * 6)))
    del rows[21 - tuesday]
    versions = {**H200.versions, "python": "3.12.4" if tuesday else "3.12.3"}
    card = replace(H200, board=board, versions=versions)
    driver = "590.12" if tuesday else versions["driver"]
    other = replace(card, board="cccccccccccc", versions={**versions, "driver": driver})
    rows[1] = replace(rows[1], machine=1)
    return run(
        *rows,
        arms=(OURS, T, C),
        run_id=f"20260202-{name}",
        revision=f"{name} (stamp)",
        timer="cupti",
        method_version=3,
        machines=(card, other),
    )


def built() -> dict[str, Run]:
    return {"both": both(), **dict(zip(("monday", "tuesday"), two(), strict=True))}


def stored(name: str) -> Path:
    return FOLDER / f"{name}.run.json"


COMPARISONS: dict[str, Callable[[], Comparison]] = {
    "interleaved": lambda: compare_interleaved(runfile.load(stored("both")), limits=Limits()),
    "stored": lambda: compare_stored(runfile.load(stored("monday")), runfile.load(stored("tuesday")), limits=Limits()),
    "allowed": lambda: compare_stored(
        runfile.load(stored("monday")), runfile.load(stored("tuesday")), allow=("driver",), limits=Limits(floor=0.03)
    ),
}


@pytest.mark.parametrize("name", ["both", "monday", "tuesday"])
def test_the_stored_runs_are_those_that_the_builders_make(name: str) -> None:
    if os.environ.get("GOLDEN_WRITE"):
        runfile.save(built()[name], stored(name))

    assert runfile.load(stored(name)) == built()[name]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_a_stored_run_gives_the_stored_page_byte_for_byte(name: str, form: str) -> None:
    page = _page(form, name)
    path = FOLDER / f"{name}.{FORMATS[form]}"
    if os.environ.get("GOLDEN_WRITE"):
        path.write_text(page, encoding="utf-8", newline="\n")

    assert path.read_bytes() == page.encode()


def _page(form: str, name: str) -> str:
    page: str = importlib.import_module(f"harness.pages.compare.{form}").render_page(COMPARISONS[name]())
    return page


def test_every_verdict_and_every_reason_has_its_words() -> None:
    assert set(GLYPHS) == set(VERDICTS) == set(get_args(Verdict))
    assert set(MEANINGS) == set(get_args(Reason))
    assert len(set(GLYPHS.values())) == len(GLYPHS)


def test_csv_has_the_fields_of_json_and_round_trips() -> None:
    rows = json.loads(_page("json", "interleaved"))["rows"]
    read = list(csv.DictReader(io.StringIO(_page("csv", "interleaved"))))

    assert tuple(rows[0]) == COLUMNS
    assert [line["case"] for line in read] == [one["case"] for one in rows]
    assert ODD in [line["case"] for line in read]
    assert [float(line["ratio"]) if line["ratio"] else None for line in read] == [one["ratio"] for one in rows]
    assert [line["control"] for line in read] == [str(one["control"]) for one in rows]


def test_csv_quotes_all_that_is_no_number() -> None:
    page = io.StringIO(_page("csv", "interleaved"))

    read = list(csv.reader(page, quoting=csv.QUOTE_NONNUMERIC))

    control = COLUMNS.index("control")
    assert {line[control] for line in read[1:]} == {"True", "False"}
    assert isinstance(read[1][COLUMNS.index("ratio")], float)


def test_no_name_breaks_the_table_or_opens_html() -> None:
    page = _page("markdown", "interleaved")

    (line,) = [line for line in page.splitlines() if "onerror" in line]
    header = next(line for line in page.splitlines() if line.startswith("| Verdict"))
    assert line.replace("\\|", "").count("|") == header.count("|")
    assert "<img" not in line
    assert "@team" not in line


def comparison_of(rows: Sequence[Row]) -> Comparison:
    planned = tuple(f"boost/moe-training/{r.case.case_id}" for r in rows)
    beside = Previous(revision="0a1b2c3 (git)", sources_sha256="1b" * 32, controls=())
    made = replace(both(), rows=tuple(rows), planned=planned, previous=beside)
    return compare_interleaved(made, limits=Limits())


def compared(rows: Sequence[Row]) -> str:
    return render_page(comparison_of(rows))


def steps(middle_ns: int) -> tuple[int, ...]:
    return tuple(middle_ns + place for place in range(12))


LONG = "x" * 1100


@pytest.mark.parametrize("name", ["two\nlines", "</script>", LONG, "a+b", "7e10234", "| a | b |", "`x", "\N{OWL}"])
def test_a_row_stays_one_row_whatever_its_name(name: str) -> None:
    # NVIDIA/nvbench 10b6c13; besu-eth/besu#10462; asv, changelog.d/1393.bugfix.rst; test-infra, metricUtils.tsx.
    spans = {OURS: (8_000_000,) * 6, THEIRS: (8_000_000,) * 6}
    lines = compared([row(case(name), spans)]).splitlines()

    start = next(place for place, line in enumerate(lines) if line.startswith("| Verdict"))
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in lines[start : start + 3]]
    assert (cells[0], lines[start + 3]) == (cells[2], "")
    assert cells[0] == cells[1]
    assert "<script" not in (cell := lines[start + 2])
    assert "</script" not in cell
    assert name != LONG or LONG in cell


def test_one_unit_stands_for_all_rows_however_far_apart_they_are() -> None:
    # google/benchmark, tools/gbench/report.py, and benchmark-action/github-action-benchmark#318.
    # A tool took 900 us and 1.8 ms for 900 and 1.8, so that what had become twice as slow was 500 times as fast.
    twice = row(case("gate_up E4"), {OURS: steps(1_800_000), THEIRS: steps(900_000)})
    tiny = row(case("tiny"), {OURS: steps(860_000)}, unsupported={THEIRS: "no program"})
    page = compared([twice, tiny])

    (line,) = [line for line in page.splitlines() if line.startswith("| ▲ slower")]
    assert "| Verdict | Row | Arm | Regime | BASE (ms) | HEAD (ms) |" in page
    assert "| 0.9000 | 1.8000 | +100 % | 0.500 " in line
    assert [line[:7] for line in page.splitlines() if "tiny" in line] == ["| + new"]
    assert "| 0.500 (0.500-0.500) |" in page
    assert "| 1 of 2 |" in page


def test_a_row_without_a_time_has_none_in_any_format_and_never_a_zero() -> None:
    # SeraphimSerapis/tool-eval-bench#152; pytorch/test-infra#4681; tritonbench, oss_ci_benchmark_v3.py.
    # An out-of-memory row that arrives as 0.0 is an infinite speedup.
    no_memory = {OURS: "raised OutOfMemoryError: CUDA out of memory"}
    comparison = comparison_of([row(case("gate_up E4"), {THEIRS: steps(900_000)}, failed=no_memory)])

    (found,) = json.loads(importlib.import_module("harness.pages.compare.json").render_page(comparison))["rows"]
    assert (found["verdict"], found["reason"]) == ("failed", "oom")
    assert [found[name] for name in ("head_ns", "ratio", "low", "high", "p", "q")] == [None] * 6
    assert comparison.geomeans == ()


def test_every_p_says_its_sides_and_what_it_is_a_p_of() -> None:
    # google/skia-buildbot, perf/go/stepfit/stepfit.go.
    assert "- p: two-sided, of a ratio within the floor, " in _page("markdown", "interleaved")
    assert "there is no p and no q" in _page("markdown", "stored")


def test_the_sentence_says_what_is_slower_and_by_how_much() -> None:
    assert sentence(COMPARISONS["interleaved"]()) == (
        "1a2b3c4 (git) against 0a1b2c3 (git) on NVIDIA H200, both sides in the same groups: 9 rows and 1 control:"
        " 1 slower, 1 failed, 1 missing, 1 faster, 2 unclear, 1 new, 2 same;"
        " slower: dW gate_up E4 M112576 bal (cake_nondet, boost) by +4.97 %."
    )


@pytest.mark.parametrize(
    ("value", "written"), [(None, ""), (0.049, "0.049"), (0.00286, "0.0029"), (7.4e-7, "7.4e-07"), (1.0, "1.000")]
)
def test_a_probability_is_never_written_as_zero(value: float | None, written: str) -> None:
    assert probability(value) == written


def test_the_page_says_when_no_row_alone_could_be_named() -> None:
    six = tuple(8_000_000 + 100 * place for place in range(6))
    page = compared([row(case(f"row {i}"), {OURS: six, THEIRS: six}) for i in range(100)])

    assert (
        "**One changed row alone cannot reach q 0.05**: over 100 rows the smallest q in reach of 6 groups a side is"
        " 0.216; it takes 8." in page
    )


def test_the_page_says_what_paired_groups_show_and_what_they_could() -> None:
    six = tuple(8_000_000 + 100 * place for place in range(6))
    slower = tuple(8_010_000 + 100 * place for place in range(6))
    mixed = (8_000_100, 8_000_200, 8_000_300, 8_000_400, 8_000_500, 8_000_400)
    rows = [row(case("faster"), {OURS: six, THEIRS: slower}), row(case("slower"), {OURS: slower, THEIRS: six})]
    page = compared([*rows, row(case("neither"), {OURS: six, THEIRS: mixed})])

    assert page.partition("## Paired groups\n\n")[2].partition("\n\n")[0].splitlines()[1:] == [
        "- q <= 0.05 (Benjamini-Hochberg over the 3 rows tested): by the signed rank 2 rows (1 faster, 1 slower);"
        " by the sign test 2 rows (1 faster, 1 slower)",
        "- smallest p in reach of either: 0.03125 with 6 groups; reached, all groups of a row on one side, by"
        " 2 rows (1 faster, 1 slower); chance gives 0.094",
        "- smallest q in reach of a row that alone has it: 0.094",
    ]


def test_two_stored_runs_have_no_paired_groups() -> None:
    assert "## Paired groups" not in _page("markdown", "stored")
    assert {one["signed_rank_p"] for one in json.loads(_page("json", "stored"))["rows"]} == {None}


def test_the_page_names_the_rows_that_are_in_no_geomean() -> None:
    mean = replace(COMPARISONS["interleaved"]().geomeans[0], value=None, failures=("moe-training/fwd a|b: got inf",))
    page = render_page(replace(COMPARISONS["interleaved"](), geomeans=(mean,)))

    assert "| fwd | n/a |" in page
    assert "**In no geomean:** moe-training/fwd a\\|b: got inf" in page


def test_the_page_says_that_one_source_was_compared_with_itself() -> None:
    assert "Both sides have the same sources: this is an A/A comparison" in compared(both().rows)


def test_the_page_names_what_each_side_has_where_nothing_is_common() -> None:
    monday, tuesday = two()
    renamed = [replace(r, case=replace(r.case, suite="other")) for r in tuesday.rows]
    planned = tuple(f"boost/other/{r.case.case_id}" for r in renamed)
    head = replace(tuesday, rows=tuple(renamed), planned=planned)
    page = render_page(compare_stored(monday, head, limits=Limits()))

    assert "**No row has a time under one name on both sides.**\n\n- BASE has: dW row 00, dW row 01, " in page
    assert ", and 1 more; the format json names all" in page
