import csv
from io import StringIO

import pandas as pd
import pytest

from harness.errors import UsageError
from harness.pages.csv import render_page
from harness.pages.summary import summarise
from tests.unit.report_runs import case, row, run, skipped

SPANS = {"cake_nondet": [4_000_000], "torch_grouped_mm": [5_000_000]}


def test_names_with_commas_quotes_and_line_feeds_come_back_as_they_were() -> None:
    # NVIDIA/nvbench#454: a tag of `a|b`; a list as a value, in flashinfer's CSV.
    names = ["a|b", "[1,2]", 'say "x"', "two\nlines", "carriage\rreturn", "NA"]
    page = render_page(summarise([run(*(row(case(name), SPANS) for name in names))]))

    back = pd.read_csv(StringIO(page, newline=""), keep_default_na=False, na_values="")

    assert list(back["case"].unique()) == names


def test_each_row_has_a_line_an_arm_and_ratios_on_the_baselines_line() -> None:
    back = pd.read_csv(StringIO(render_page(summarise([run(row(case(), SPANS, unsupported={"cudnn": "no dW"}))]))))

    assert list(back["arm"]) == ["cake_nondet", "torch_grouped_mm", "cudnn"]
    assert list(back["span_ns"].fillna(0)) == [4_000_000, 5_000_000, 0]
    assert list(back["ratio_median"].fillna(0)) == [0, 1.25, 0]
    assert list(back["is_sota"]) == [False, True, False]
    assert list(back["reason"].fillna("")) == ["", "", "no dW"]


def test_a_skipped_row_has_a_line_with_its_reason_and_sizes() -> None:
    back = pd.read_csv(StringIO(render_page(summarise([run(row(case(), SPANS), skipped(case("big"), "too big"))]))))

    last = back.iloc[-1]
    assert (last["case"], last["status"], last["reason"], last["M"]) == ("big", "skipped", "too big", 112576)


def test_columns_are_refused_because_all_are_there() -> None:
    with pytest.raises(UsageError, match="'csv' always holds all"):
        render_page(summarise([run(row(case(), SPANS))]), columns=["clock"])


def test_all_that_is_no_number_is_quoted() -> None:
    page = render_page(summarise([run(row(case(), SPANS), skipped(case("big"), "too big"))]))

    header, new, baseline, big = csv.reader(StringIO(page, newline=""), quoting=csv.QUOTE_NONNUMERIC)

    sota, span = header.index("is_sota"), header.index("span_ns")
    assert [line[sota] for line in (new, baseline, big)] == ["False", "True", ""]
    assert [line[span] for line in (new, baseline, big)] == [4_000_000.0, 5_000_000.0, ""]
