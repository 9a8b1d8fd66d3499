from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.model.run import Row
from harness.pages.markdown.escape import escape
from harness.pages.markdown.extra_columns import EXTRA_COLUMNS
from harness.pages.markdown.numbers import counted, expected_rows, speedup, time_unit
from harness.pages.markdown.table import table
from harness.pages.pr import COMMENT_CHARACTERS, FOLD_BYTES, render_page
from harness.pages.summary import summarise
from tests.unit.report_runs import H200, case, row, run

NEW, T, C = "cake_nondet", "torch_grouped_mm", "cublas_loop"
MS = 1_000_000


def row_lines(page: str, start: str) -> list[list[str]]:
    """Cells of the per-row lines whose first cell starts with ``start``."""
    lines = [line for line in page.splitlines() if line.startswith(f"| {start}")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def plain(*rows: Row) -> str:
    return render_page(summarise([run(*rows)]))


# Numbers


def test_all_latencies_of_a_table_have_one_unit_chosen_by_the_smallest() -> None:
    # ionelmc/pytest-benchmark#277: 1.5 s and 500 ms in one column.
    long = row(case("long"), {NEW: [1500 * MS], T: [1600 * MS]})
    short = row(case("short"), {NEW: [500 * MS], T: [600 * MS]})

    page = plain(long, short)

    assert "| row | operation | cake_nondet, new (ms) | torch_grouped_mm t (ms) | SOTA |" in page
    assert row_lines(page, "long")[0][2:4] == ["**1500.00**", "1600.00"]
    assert row_lines(page, "short")[0][2:4] == ["**500.00**", "600.00"]


@pytest.mark.parametrize(
    ("times_ns", "written"),
    [
        ([931_600, 12_152_300], ["0.9316", "12.1523"]),
        ([45_120.0, 1_000_000], ["45.120", "1000.000"]),
        ([12.0, 900], ["12.0", "900.0"]),
        ([11 * 10**9], ["11.000"]),
    ],
)
def test_units_and_decimals_follow_the_smallest_time(times_ns: list[float], written: list[str]) -> None:
    unit = time_unit(times_ns)

    assert [unit.format(time) for time in times_ns] == written


def test_small_numbers_do_not_round_to_nothing() -> None:
    assert (speedup(1.0605), speedup(0.00041234)) == ("1.060", "0.000412")
    assert (expected_rows(1.5625), expected_rows(0.078), expected_rows(0.0001)) == ("1.6", "0.08", "under 0.01")
    assert (counted(1, "row"), counted(0, "row")) == ("1 row", "0 rows")


# What the page says


def test_the_direction_of_every_ratio_stands_in_its_header() -> None:
    # viperproject/silicon#545: base and head were swapped.
    one = run(row(case(), {NEW: [4 * MS], T: [5 * MS], "quack": [6 * MS]}))
    page = render_page(summarise([one], against=[T]))

    assert (
        "| SOTA / cake_nondet, ↑ new is faster | best known / cake_nondet ↑ | torch_grouped_mm / cake_nondet ↑ |"
    ) in page
    assert "| count | SOTA / cake_nondet | best known / cake_nondet | torch_grouped_mm / cake_nondet |" in page


def test_a_row_shows_every_arm_the_fastest_in_bold_the_key_of_sota_and_the_range() -> None:
    page = plain(row(case(), {NEW: [4 * MS] * 2, T: [5 * MS, 6 * MS], C: [7 * MS] * 2}))

    assert row_lines(page, "gate_up") == [
        ["gate_up E4 M112576 bal", "dW", "**4.0000**", "5.5000", "7.0000", "t", "1.375 [1.250, 1.500]"]
    ]


def test_an_arm_without_a_key_is_named_in_the_role_columns() -> None:
    made = run(row(case(), {NEW: [4 * MS], T: [5 * MS]}))
    arms = tuple(replace(arm, key="") for arm in made.arms)

    assert "| 5.0000 | torch_grouped_mm | 1.250" in render_page(summarise([replace(made, arms=arms)]))


def test_failed_and_unsupported_differ_in_the_table() -> None:
    one = row(case(), {NEW: [4 * MS]}, failed={T: "wrong"}, unsupported={C: "no"})
    two = row(case("other"), {NEW: [4 * MS], T: [5 * MS], C: [5 * MS]})

    assert row_lines(plain(one, two), "gate_up")[0][2:] == ["4.0000", "failed", "–", "–", "–"]


def test_failures_stand_before_the_geomeans() -> None:
    page = plain(row(case(), {NEW: [4 * MS], C: [5 * MS]}, failed={T: "raised RuntimeError"}))

    assert page.index("- **torch_grouped_mm (t)**, dW gate_up E4 M112576 bal: raised RuntimeError") < page.index(
        "## Geomeans"
    )


def test_many_rows_with_one_reason_are_one_line() -> None:
    rows = [row(case(f"r{i}"), {NEW: [4 * MS], T: [5 * MS]}, unsupported={C: "no dW"}) for i in range(36)]
    other = row(case("s"), {NEW: [4 * MS], C: [5 * MS]})

    assert "- **cublas_loop (c)**, 36 rows (dW): no dW\n" in plain(*rows, other)


def test_a_reason_that_holds_everywhere_says_all_rows() -> None:
    rows = [row(case(f"r{i}"), {NEW: [4 * MS], T: [5 * MS]}, unsupported={C: "no dW"}) for i in range(2)]

    assert "- **cublas_loop (c)**, all 2 rows: no dW\n" in plain(*rows)


def test_the_environment_line_names_machine_versions_timer_groups_and_revision() -> None:
    assert (
        "- NVIDIA H200 (sm_90a, 132 SMs, board 0123456789ab), CUDA 13.0, driver 580.159.03, torch 2.13.0, cudnn 9.14.0;"
        " ECC on, power limit 700 W; CUDA events around one call, cold L2, eager; regime boost; median of 2 paired"
        " groups in balanced order; revision 1a2b3c4 (git); run 20260101-120000-h200\n"
    ) in plain(row(case(), {NEW: [4 * MS] * 2, T: [5 * MS] * 2}))


def test_an_unknown_revision_is_said_to_be_unknown() -> None:
    page = render_page(summarise([run(row(case(), {NEW: [4 * MS]}), revision="unknown")]))

    assert "revision *unknown*" in page


def test_a_cpu_has_cores_and_its_timer_is_a_wall_clock() -> None:
    cpu = replace(H200, device="cpu", product="Some CPU", arch="x86_64", units=2, board=None)
    page = render_page(summarise([run(row(case(), {NEW: [4 * MS], T: [5 * MS]}), timer="cpu", machines=[cpu])]))

    assert "- Some CPU (x86_64, 2 cores), " in page
    assert "wall clock (perf_counter_ns) of one call" in page
    assert "| device | regime |" in page


def test_scripted_durations_are_never_passed_off_as_measured() -> None:
    page = render_page(summarise([run(row(case(), {NEW: [4 * MS], T: [5 * MS]}), timer="scripted")]))

    assert "**Scripted durations: nothing on this page was measured.**" in page


def test_without_a_comparison_the_headline_says_so() -> None:
    page = plain(row(case(), {NEW: [4 * MS]}, unsupported={T: "no GPU"}))

    assert "**Nothing is compared: no row has a time of cake_nondet and of a baseline.**" in page


def test_a_run_in_which_nothing_was_measured_still_gives_a_page() -> None:
    page = plain(row(case(), {}, unsupported={NEW: "no program", T: "no GPU"}))

    assert "- **cake_nondet**, dW gate_up E4 M112576 bal: no program" in page


def test_one_sample_has_a_spread_of_na_and_not_zero() -> None:
    # NVIDIA/nvbench#368.
    page = render_page(summarise([run(row(case(), {NEW: [4 * MS], T: [5 * MS]}))]), columns=["spread"])

    assert row_lines(page, "gate_up")[0][-1] == "n/a"
    assert "Spread: n/a" in page


def test_rows_with_different_groups_or_suites_get_those_columns_unasked() -> None:
    one = row(case(), {NEW: [4 * MS], T: [5 * MS]})
    two = row(case(suite="adhoc"), {NEW: [4 * MS] * 2, T: [5 * MS] * 2})

    assert [cells[-2:] for cells in row_lines(plain(one, two), "gate_up")] == [["1", "moe-training"], ["2", "adhoc"]]


def test_several_regimes_have_a_heading_and_a_table_each_the_headline_first() -> None:
    boost = row(case(), {NEW: [4 * MS], T: [5 * MS]})
    sustained = row(case(), {NEW: [4 * MS], T: [4 * MS]}, regime="sustained")

    page = plain(boost, sustained)

    assert page.index("#### sustained") < page.index("#### boost")
    assert "### SOTA / cake_nondet in sustained" in page


def test_extra_columns_come_in_the_order_asked_for() -> None:
    one = row(case(), {NEW: [8 * MS]}, clock={NEW: [1755]}, notes={NEW: "tile 128"})
    page = render_page(summarise([run(one, arms=(NEW,))]), columns=["note", "clock", "tflops", "sizes", "class"])

    assert row_lines(page, "gate_up")[0][-5:] == [
        "cake_nondet: tile 128",
        "1755",
        "118.0",
        "E 4, M 112576, N 2048, K 2048: 28144 × 4",
        "owner",
    ]


def test_an_unknown_column_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="column 'watts' is not known; known: aa, busy, calls, check, class, clock, "):
        render_page(summarise([run(row(case(), {NEW: [4 * MS]}))]), columns=["watts"])


def test_the_documentation_lists_every_column_with_its_meaning() -> None:
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")

    assert [name for name, meaning in EXTRA_COLUMNS.items() if f"| `{name}` | {meaning}" not in text] == []


# Length


def many(count: int) -> str:
    rows = [
        row(case(f"gate_up E8 M131072 random s{i}"), {NEW: [4 * MS], T: [5 * MS], C: [6 * MS]}) for i in range(count)
    ]
    return plain(*rows)


def test_a_page_over_60000_bytes_folds_its_rows_and_says_so() -> None:
    # bencherdev/bencher#644 and FStarLang/FStar#4520: a report of 380 KB.
    page = many(580)

    assert FOLD_BYTES < len(page.encode()) <= COMMENT_CHARACTERS
    assert "The per-row tables are folded: the page is longer than 60,000 bytes." in page
    assert "<details>\n<summary>580 rows</summary>\n\n| row |" in page
    assert page.count("<details>") == page.count("\n\n</details>\n") == 1
    assert "--format csv" not in page


def test_a_page_that_no_comment_can_hold_says_to_attach_the_rows() -> None:
    page = many(800)

    assert len(page) > COMMENT_CHARACTERS
    assert "attach the rows as `--format csv`" in page


def test_a_short_page_does_not_fold() -> None:
    assert "<details>" not in many(3)


# Escaping


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("gate_up E4 M112576 1-empty asc", "gate_up E4 M112576 1-empty asc"),
        ("a|b", "a\\|b"),
        ("[1,2]", "\\[1,2\\]"),
        ("@torvalds", "@&#8203;torvalds"),
        ("fixes #123 and GH-7", "fixes \\#&#8203;123 and GH-&#8203;7"),
        ("<details>&amp;", "&lt;details&gt;&amp;amp;"),
        ("two\nlines\r\n\u2028more", "two lines more"),
        ("a\\|b", "a&#92;\\|b"),
        ("$x$ `y` *z* ~~w~~", "&#36;x&#36; \\`y\\` \\*z\\* \\~\\~w\\~\\~"),
        ("_x_ y__z", "\\_x\\_ y__z"),
        ("bell\a", "bell\N{REPLACEMENT CHARACTER}"),
        (
            "a\u202egnp.exe \u200dx\ufeff",
            "a\N{REPLACEMENT CHARACTER}gnp.exe \N{REPLACEMENT CHARACTER}x\N{REPLACEMENT CHARACTER}",
        ),
        ("see https://a.b and WWW.c.d", "see https:&#8203;//a.b and WWW&#8203;.c.d"),
        (":smile: a:+1:b 12:30 Note: x", ":&#8203;smile: a:&#8203;+1:b 12:30 Note: x"),
    ],
)
def test_escape_shows_text_and_does_nothing_else(text: str, escaped: str) -> None:
    assert escape(text) == escaped


def test_a_table_refuses_a_row_of_another_width() -> None:
    # pathosDev/actor-ts#1390: eight cells below seven headers.
    with pytest.raises(ValueError, match="differs in c"):
        table({"a": "A", "b": "B"}, [{"a": "1", "b": "2", "c": "3"}])


def test_a_table_finds_cells_by_name_whatever_their_order() -> None:
    assert table({"a": "A", "b": "B"}, [{"b": "2", "a": "1"}]) == "| A | B |\n|---|---|\n| 1 | 2 |"


def test_a_table_refuses_a_cell_that_breaks_its_line() -> None:
    with pytest.raises(ValueError, match="must be one line"):
        table({"a": "A"}, [{"a": "1\n2"}])
