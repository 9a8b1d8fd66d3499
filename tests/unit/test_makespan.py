"""docs/tail.md has the makespans that tools/makespan.py prints."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from cake_kernels.grouped_gemm.sm90.config import CHUNK_K_BLOCKS, SMS, Config
from harness import cases, shapes
from harness.paths import data
from tools.makespan import HEAD, OPS, Row, main, planned, row, summaries

PAGE = (Path(__file__).parents[2] / "docs" / "tail.md").read_text()
SUITES = ("moe-training", "moe-heldout", "moe-models", "moe-small-experts", "moe-decode")


@cache
def rows(suite):
    """Return the rows of a suite as the tool has them."""
    all_cases = cases.cases(shapes.load(data("shapes.yaml")), suite)
    return [row(case, SMS) for case in all_cases if case.op in OPS and case.out_dtype == "bf16"]


def section():
    return PAGE.split("## What each part is worth in k-blocks")[1].split("\n## ")[0]


def test_the_page_has_the_lines_of_all_operations_and_row_classes():
    table = section().split("\n\n")[2].splitlines()

    assert table[0] == HEAD
    assert table[2:] == [line for suite in SUITES for line in summaries(rows(suite))]


def test_a_gain_is_the_plain_walk_over_what_has_the_part_and_row_classes_stand_apart():
    def made(row_class, *makespans):
        case = SimpleNamespace(suite="s", op="dW", shape=SimpleNamespace(row_class=row_class))
        return Row(case=case, config="", plans=(), makespans=makespans, ideal=100)

    assert summaries([made("owner", 121, 110, 100), made("unsorted", 110, 110, 100), made("owner", 100, 100, 100)]) == [
        "| s | dW | owner | 2 | 1.1000 (1.2100) | 1.0488 (1.1000) | 1.0000 (1.0000) | 4.88 % | 10.00 % |",
        "| s | dW | unsorted | 1 | 1.1000 (1.1000) | 1.1000 (1.1000) | 1.0000 (1.0000) | 0.00 % | 10.00 % |",
    ]


def test_the_rows_of_the_page_are_those_of_the_tool():
    # Of the tool's columns the page leaves out op, configuration, tiles and tail.
    lines = [one.line().strip("| ").split(" | ") for one in rows("moe-training") if one.case.op == "dW"]
    printed = {name: makespans for _, name, _, _, _, *makespans in lines}

    shown = [
        line.strip("| ").split(" | ") for line in section().splitlines() if line.startswith(("| gate_up", "| down"))
    ]

    assert shown
    assert [[name, *printed[name]] for name, *_ in shown] == shown


def test_the_page_says_how_many_rows_slack_makes_shorter():
    slack = {(suite, op): [] for suite in SUITES for op in OPS}
    for suite in SUITES:
        for one in rows(suite):
            slack[suite, one.case.op].append(one.plans[0].placement == "slack")
    split = [one.plans[0].placement == "slack" and one.plans[1].placement == "split" for one in rows("moe-models")]
    *others, last = (f"{sum(slack[suite, 'dW'])} of {len(slack[suite, 'dW'])}" for suite in SUITES)

    words = " ".join(section().split())
    assert not any(any(found) for (_, op), found in slack.items() if op != "dW")
    assert f"no row of fwd or dX shorter, and of dW {', '.join(others)} and {last}" in words
    assert f"{sum(split)} of the {sum(slack['moe-models', 'dW'])} are split" in words


def test_the_page_says_how_much_shorter_a_split_makes_dw():
    gains = [
        100 - 100 * one.plans[-1].makespan / one.makespans[0] for one in rows("moe-training") if one.case.op == "dW"
    ]

    assert f"its makespan is {min(gains):.1f} to {max(gains):.1f} % shorter than the plain walk's" in PAGE


def test_whole_places_no_tile_of_the_ablation_elsewhere_and_no_tile_of_it_has_rows_that_are_not_there():
    dw = [one for one in rows("moe-training") if one.case.op == "dW"]
    configs = [(one.case.shape, Config.named(one.config)) for one in dw]

    assert {one.plans[0].placement for one in dw} == {"plain"}
    assert not any(shape.N % config.tile_rows or shape.K % config.tile_cols for shape, config in configs)


def test_a_tail_may_be_split_over_more_clusters_than_there_are_tiles():
    # 32 tiles of 32 k-blocks; a launch that may split starts all the clusters of two CTAs that fit 132 SMs.
    (few,) = [one for one in rows("moe-small-experts") if one.case.case_id == "dX down E16 M1024 random"]
    config = Config.named(few.config)

    assert (few.plans[0].walk.num_tiles, few.plans[1].clusters, SMS // config.cluster_size) == (32, 66, 66)
    assert (few.makespans, few.ideal) == ((32, 32, 16), 16)
    assert planned(few.case, config, 8, split=True).clusters == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--sms", "1"), "must be in 2..144, got 1"),
        (("--sms", "145"), "must be in 2..144, got 145"),
        (("--suite", "moe"), "suite 'moe' is not known; known: smoke, moe-training,"),
    ],
)
def test_what_is_no_number_of_sms_and_no_suite_is_refused_by_its_rule(words, says, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["makespan.py", *words])

    with pytest.raises(SystemExit, match="2"):
        main()

    assert says in capsys.readouterr().err


def with_chunks(made, each):
    """Return the makespan if each chunk of a split tile costs its cluster ``each`` k-blocks more."""
    return made.before + max(
        load + sum(len(chunk.k) + each * (chunk.of > 1) for chunk in chunks)
        for load, chunks in zip(made.loads, made.chunks, strict=True)
    )


@pytest.mark.parametrize("suite", ["moe-training", "moe-heldout", "moe-models"])
def test_the_page_says_where_a_split_ends_later_than_the_whole_tail_if_its_chunks_cost_time(suite):
    planned = [one.plans for one in rows(suite) if one.case.op == "dW"]
    split = [(whole, made) for whole, made in planned if made.placement == "split"]
    cells = [suite]
    for each in (CHUNK_K_BLOCKS, 13.7):
        later = [with_chunks(made, each) / whole.makespan - 1 for whole, made in split]
        later = [ratio for ratio in later if ratio > 0]
        cells.append(f"{len(later)} of {len(split)}" + (f", {100 * max(later):.1f} %" if later else ""))

    assert all(len(made.tickets) == len(made.tail) for _, made in split)
    assert f"| {' | '.join(cells)} |" in PAGE.splitlines()
