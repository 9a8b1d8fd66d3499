"""docs/tail.md has the makespans that tools/makespan.py prints."""

from pathlib import Path

import pytest

from cake_kernels.grouped_gemm.sm90.config import SMS
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
