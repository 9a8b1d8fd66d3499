import json
import unicodedata
from dataclasses import replace
from io import StringIO
from typing import NoReturn

import pandas as pd
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.model.figures import Ratio
from harness.model.report import Geomean
from harness.model.run import Run
from harness.pages import csv as csv_page
from harness.pages import json as json_page
from harness.pages.markdown.escape import escape
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from tests.property.gfm_tables import cells, shown, tables
from tests.unit.report_runs import H200, case, row, run, skipped

NEW, T, C = "cake_nondet", "torch_grouped_mm", "cublas_loop"
ARMS = (NEW, T, C)
TWIN = f"{T} again"

SPANS = st.integers(2_000_000, 8_000_000)
TEXT = st.text(max_size=30) | st.sampled_from(
    ["a|b", "\\", "\\|", "`|`", "@x", "#1", "</details>", "\r\n|", "$|$", "a\\", "\u202ex", "http://a", "www.a", ":a:"]
)


@st.composite
def runs(draw: st.DrawFn, *, twin: bool = False) -> Run:
    """Up to five rows of one to seven groups, baselines missing here and there; ``twin``: every row has one."""
    rows = []
    for index in range(draw(st.integers(1, 5))):
        n = draw(st.integers(1, 7))
        timed = [NEW, *draw(st.lists(st.sampled_from([T, C]), unique=True)), *([TWIN] if twin else [])]
        spans = {arm: draw(st.lists(SPANS, min_size=n, max_size=n)) for arm in timed}
        absent = {arm: "cannot" for arm in ARMS if arm not in timed}
        rows.append(row(case(f"r{index}", op=draw(st.sampled_from(["fwd", "dW"]))), spans, unsupported=absent))
    return run(*rows, arms=(*ARMS, TWIN) if twin else ARMS)


def without_twin(made: Run) -> Run:
    rows = [
        replace(r, arms={a: r.arms[a] for a in r.arms if a != TWIN}, samples=r.samples.only(ARMS)) for r in made.rows
    ]
    return replace(made, rows=tuple(rows), arms=tuple(arm for arm in made.arms if arm.name != TWIN))


def ratios_of(made: Run, *, new: str = NEW) -> dict[tuple[str, str], Ratio]:
    report = summarise([made], new=new, against=[arm for arm in ARMS if arm != new])
    return {(r.case.case_id, ratio.against): ratio for r in report.rows for ratio in r.ratios}


def geomeans_of(made: Run) -> set[Geomean]:
    return set(summarise([made], new=NEW).geomeans)


@given(runs(), st.randoms(use_true_random=False))
def test_numbers_do_not_depend_on_the_order_of_rows_and_arms(made: Run, random: object) -> None:
    rows, arms = list(made.rows), list(made.arms)
    random.shuffle(rows)  # type: ignore[attr-defined]
    random.shuffle(arms)  # type: ignore[attr-defined]
    other = replace(made, rows=tuple(rows), arms=tuple(arms))

    assert ratios_of(other) == ratios_of(made)
    assert geomeans_of(other) == geomeans_of(made)


@given(runs(twin=True))
def test_a_twin_changes_no_number_but_its_own(made: Run) -> None:
    alone = without_twin(made)

    assert ratios_of(made) == ratios_of(alone)
    assert geomeans_of(made) == geomeans_of(alone)
    assert summarise([made], new=NEW).columns == summarise([alone], new=NEW).columns


@given(runs(twin=True), st.sampled_from([[TWIN], [T, TWIN], [C], [NEW, C], [NEW, T, TWIN]]))
def test_a_report_without_arms_is_that_of_a_run_without_them(made: Run, arms: list[str]) -> None:
    stay = [arm.name for arm in made.arms if arm.name not in arms]
    rows = []
    for each in made.rows:
        timed = [name for name in stay if name in each.samples.arm]
        spans = {name: [each.samples.span_ns[i] for _, i in each.samples.by_group(name)] for name in timed}
        rows.append(row(each.case, spans, unsupported={a: "cannot" for a in stay if a in each.arms and a not in timed}))

    report = summarise([made], left_out=arms)

    alone = summarise([run(*rows, arms=stay)])
    assert report == replace(alone, notes={**alone.notes, "left_out": report.notes["left_out"]})


@given(runs())
def test_swapping_new_and_baseline_gives_reciprocals(made: Run) -> None:
    there, back = ratios_of(made), ratios_of(made, new=T)

    for (case_id, against), ratio in there.items():
        if against != T:
            continue
        other = back[case_id, NEW]
        assert abs(ratio.max * other.min - 1) < 1e-12
        assert abs(ratio.min * other.max - 1) < 1e-12
        if ratio.n % 2:  # of an even count the median is a mean of two, whose reciprocal is no such mean
            assert abs(ratio.median * other.median - 1) < 1e-12


@given(runs())
def test_every_geomean_lies_between_its_lowest_and_highest_row(made: Run) -> None:
    for geomean in summarise([made]).geomeans:
        if geomean.value is None or geomean.low is None or geomean.high is None:
            assert geomean.n == 0
            continue
        assert geomean.low <= geomean.value <= geomean.high
        assert 1 <= geomean.n <= geomean.expected_n


@given(st.lists(runs(), min_size=1, max_size=3))
def test_a_pooled_ratio_lies_within_its_range(several: list[Run]) -> None:
    cards = [
        replace(made, run_id=f"run{i}", machines=(replace(H200, board=f"{i:012x}"),)) for i, made in enumerate(several)
    ]
    # the rows' names repeat from run to run, and so do their sizes: only their operations may differ
    samples = [(each.case, each.samples) for made in cards for each in made.rows]
    assume(len(set(samples)) == len(samples))

    report = summarise(cards)

    for each in report.rows:
        for ratio in each.ratios:
            assert ratio.min <= ratio.median <= ratio.max


@given(TEXT)
def test_escaped_text_is_one_cell_and_shows_what_it_was(text: str) -> None:
    (cell,) = cells(f"| {escape(text)} |")
    expected = "".join(
        "\ufffd" if unicodedata.category(char) in ("Cc", "Cf", "Cs") else char for char in " ".join(text.split())
    )

    assert "\n" not in escape(text)
    assert "".join(shown(cell).split()) == "".join(expected.split())


def hostile(name: str, reason: str, note: str) -> Run:
    spans = {NEW: [2_000_000] * 2, T: [3_000_000] * 2}
    one = row(case(name), spans, unsupported={C: reason or "?"}, notes={NEW: note})
    two = row(case("other"), {NEW: [2_000_000] * 2}, failed={T: reason or "?"})
    made = run(one, two, skipped(case("third"), reason or "?"), arms=ARMS, revision=note)
    made = replace(made, planned=(*made.planned, name))
    machine = replace(H200, product=name, versions={note: reason}, settings={name: note})
    return replace(made, arms=tuple(replace(arm, note=note) for arm in made.arms), machines=(machine,))


@settings(max_examples=200)
@given(TEXT.filter(lambda name: name != "other" and name != "third"), TEXT, TEXT)
def test_no_text_from_outside_breaks_a_table_or_mentions_anyone(name: str, reason: str, note: str) -> None:
    page = render_page(summarise([hostile(name, reason, note)]), columns=["note", "sizes", "suite"])

    found = tables(page)
    assert [len(table) - 1 for table in found] == [2, 1, 2]  # arms with a time, geomeans, rows
    assert page.count("\n# ") + page.startswith("# ") == 1
    assert all(page[i + 1 : i + 8] == "&#8203;" for i, char in enumerate(page) if char == "@")
    assert "</details>" not in page


@given(TEXT.filter(lambda name: name != "other" and name != "third"), TEXT, TEXT)
def test_the_json_page_is_strict_json(name: str, reason: str, note: str) -> None:
    # dotnet/BenchmarkDotNet#1242 and ray-project/ray#9103.
    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is no JSON")

    page = json.loads(json_page.render_page(summarise([hostile(name, reason, note)])), parse_constant=refuse)

    assert [each["case"] for each in page["rows"]] == [name, "other"]


@given(TEXT.filter(lambda name: name not in ("", "other", "third") and "\0" not in name), TEXT)
def test_the_csv_page_brings_names_back(name: str, reason: str) -> None:
    page = csv_page.render_page(summarise([hostile(name, reason, "")]))

    back = pd.read_csv(StringIO(page, newline=""), keep_default_na=False, na_values="")

    assert back["case"].iloc[0] == name
