import json

import pytest

from harness.errors import UsageError
from harness.pages.json import render_page
from harness.pages.summary import summarise
from tests.unit.report_runs import case, row, run

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
