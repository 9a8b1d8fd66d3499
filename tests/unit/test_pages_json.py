import json
from dataclasses import replace

import pytest

from harness.errors import UsageError
from harness.model.run import Run
from harness.pages.json import render_page
from harness.pages.summary import summarise
from tests.unit.report_runs import H200, case, row, run

ONE = row(case(), {"cake_nondet": [4_000_000], "torch_grouped_mm": [5_000_000]}, unsupported={"cudnn": "no dW"})


def test_rows_and_geomeans_have_the_published_form() -> None:
    page = json.loads(render_page(summarise([run(ONE, arms=("cake_nondet", "torch_grouped_mm", "cudnn"))])))

    only = page["rows"][0]
    assert {k: only[k] for k in ("case", "op", "row_class", "regime", "n")} == {
        "case": "gate_up E4 M112576 bal",
        "op": "dW",
        "row_class": "owner",
        "regime": "boost",
        "n": 1,
    }
    figure = only["arms"]["cake_nondet"]
    assert {k: figure[k] for k in ("span_ns", "busy_ns", "clock_mhz", "joules", "cycles")} == {
        "span_ns": 4_000_000,
        "busy_ns": None,
        "clock_mhz": None,
        "joules": None,
        "cycles": None,
    }
    ratio = only["ratios"]["sota"]
    assert {k: ratio[k] for k in ("median", "min", "max", "n", "busy_median")} == {
        "median": 1.25,
        "min": 1.25,
        "max": 1.25,
        "n": 1,
        "busy_median": None,
    }
    geomean = page["geomeans"][0]
    del geomean["device"], geomean["spread"]
    assert geomean == {
        "suite": "moe-training",
        "op": "dW",
        "row_class": "owner",
        "regime": "boost",
        "new": "cake_nondet",
        "against": "sota",
        "metric": "span",
        "value": 1.25,
        "low": 1.25,
        "high": 1.25,
        "n": 1,
        "expected_n": 22,
    }


def test_an_arm_without_a_time_has_nulls_and_its_reason() -> None:
    page = json.loads(render_page(summarise([run(ONE, arms=("cake_nondet", "torch_grouped_mm", "cudnn"))])))

    figure = page["rows"][0]["arms"]["cudnn"]
    assert (figure["span_ns"], figure["status"], figure["reasons"]) == (None, "unsupported", ["no dW"])


def test_columns_are_refused_because_all_are_there() -> None:
    with pytest.raises(UsageError, match="'json' always holds all, got clock"):
        render_page(summarise([run(ONE)]), columns=["clock"])


NEW, T, C = "cake_nondet", "torch_grouped_mm", "cublas_loop"
NAMES = ("sign_p", "sign_q", "signed_rank_p", "signed_rank_q", "paired_p_in_reach")


def steps(middle_ns: int, groups: int = 6) -> list[int]:
    return [middle_ns + 1_000 * place for place in range(groups)]


def ratios_of(*runs: Run) -> dict[str, dict[str, dict[str, float]]]:
    page = json.loads(render_page(summarise(runs, against=(T,))))
    found = {row["case"]: row["ratios"] for row in page["rows"]}
    return {
        name: {of: {key: one[key] for key in NAMES} for of, one in ratios.items()} for name, ratios in found.items()
    }


def test_a_ratio_has_the_exact_tests_of_its_paired_groups_and_q_over_the_rows_tested() -> None:
    mixed = [8_001_000, 8_000_000, 8_003_000, 8_002_000, 8_005_000, 8_004_000]
    rows = [
        row(case("faster"), {NEW: steps(8_000_000), T: steps(8_010_000)}),
        row(case("neither"), {NEW: steps(8_000_000), T: mixed}),
    ]

    found = ratios_of(run(*rows, arms=(NEW, T)))

    assert found["faster"][T] == dict(zip(NAMES, (0.03125, 0.0625, 0.03125, 0.0625, 0.03125), strict=True))
    assert (found["neither"][T]["sign_p"], found["neither"][T]["paired_p_in_reach"]) == (1.0, 0.03125)


def test_rows_out_of_the_geomeans_are_not_tested_and_have_no_part_in_q() -> None:
    spans = {NEW: steps(8_000_000), T: steps(8_010_000)}
    gaps = {NEW: steps(8_000_000), T: [ns * 8 // 10 for ns in spans[T]]}

    found = ratios_of(run(row(case("tested"), spans), row(case("gaps"), spans, busy=gaps), arms=(NEW, T)))

    assert found["tested"][T]["signed_rank_q"] == 0.03125
    assert found["gaps"][T] == dict.fromkeys(NAMES)


def test_groups_of_all_cards_are_tested_together() -> None:
    cards = [
        run(row(case(), {NEW: steps(ns), T: steps(ns + 10_000)}), arms=(NEW, T), run_id=name, machines=[board])
        for name, ns, board in (("a", 8_000_000, H200), ("b", 8_100_000, replace(H200, board="bbbbbbbbbbbb")))
    ]

    (found,) = ratios_of(*cards).values()

    assert found[T]["signed_rank_p"] == found[T]["paired_p_in_reach"] == 2 / 2**12


def test_more_groups_than_the_exact_test_takes_are_not_tested() -> None:
    spans = {NEW: steps(8_000_000, 201), T: steps(8_010_000, 201)}

    (found,) = ratios_of(run(row(case(), spans), arms=(NEW, T))).values()

    assert found[T] == dict.fromkeys(NAMES)
