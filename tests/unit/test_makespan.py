"""docs/tail.md has the makespans that tools/makespan.py prints."""

from pathlib import Path

import pytest

from cake_kernels.grouped_gemm.sm90.config import CHUNK_K_BLOCKS, SMS
from harness import cases, shapes
from harness.paths import data
from tools.makespan import OPS, row, summary

PAGE = (Path(__file__).parents[2] / "docs" / "tail.md").read_text()


@pytest.fixture(scope="module")
def rows():
    published = cases.cases(shapes.load(data("shapes.yaml")), "moe-training")
    return [row(case, SMS) for case in published if case.op in OPS and case.out_dtype == "bf16"]


@pytest.mark.parametrize("op", OPS)
def test_the_page_has_the_line_of_each_operation(rows, op):
    assert summary(op, [one for one in rows if one.case.op == op]) in PAGE.splitlines()


def test_the_rows_of_the_page_are_those_of_the_tool(rows):
    # Of the tool's columns the page leaves out op, configuration, tiles and tail.
    lines = [one.line().strip("| ").split(" | ") for one in rows if one.case.op == "dW"]
    printed = {name: makespans for _, name, _, _, _, *makespans in lines}
    section = PAGE.split("## What it is worth")[1].split("\n## ")[0]

    shown = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith(("| gate_up", "| down"))]

    assert shown
    assert [[name, *printed[name]] for name, *_ in shown] == shown


def test_slack_alone_helps_no_published_row_and_a_split_as_much_as_the_page_says(rows):
    gains = [100 - 100 * one.plans[-1].makespan / one.makespans[0] for one in rows if one.case.op == "dW"]

    assert {one.plans[0].placement for one in rows} == {"plain"}
    assert f"its makespan is {min(gains):.1f} to {max(gains):.1f} % shorter than the plain walk's" in PAGE


def with_chunks(made, each):
    """Return the makespan if each chunk of a split tile costs its cluster ``each`` k-blocks more."""
    return made.before + max(
        load + sum(len(chunk.k) + each * (chunk.of > 1) for chunk in chunks)
        for load, chunks in zip(made.loads, made.chunks, strict=True)
    )


@pytest.mark.parametrize("suite", ["moe-training", "moe-heldout", "moe-models"])
def test_the_page_says_where_a_split_ends_later_than_the_whole_tail_if_its_chunks_cost_time(suite):
    planned = [
        row(case, SMS).plans
        for case in cases.cases(shapes.load(data("shapes.yaml")), suite)
        if case.op == "dW" and case.out_dtype == "bf16"
    ]
    split = [(whole, made) for whole, made in planned if made.placement == "split"]
    cells = [suite]
    for each in (CHUNK_K_BLOCKS, 13.7):
        later = [with_chunks(made, each) / whole.makespan - 1 for whole, made in split]
        later = [ratio for ratio in later if ratio > 0]
        cells.append(f"{len(later)} of {len(split)}" + (f", {100 * max(later):.1f} %" if later else ""))

    assert all(len(made.tickets) == len(made.tail) for _, made in split)
    assert f"| {' | '.join(cells)} |" in PAGE.splitlines()
