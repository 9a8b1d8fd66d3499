"""Arms left out of a page: as if they had not run, but for their names."""

import json

import pytest

from harness.errors import UnknownName, UsageError
from harness.model.run import Discarded, Run
from harness.pages import json as json_page
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from tests.unit.report_runs import case, row, run

NEW, T, Q = "cake_det", "torch_grouped_mm", "quack"
AGAIN = "torch_grouped_mm again"
MS = 1_000_000
SPANS = {NEW: [4 * MS] * 6, T: [5 * MS] * 6, Q: [3 * MS] * 6}
KERNELS = {arm: ((f"kernel_of_{arm} x 1",),) for arm in SPANS}


def measured(**more: object) -> Run:
    return run(row(case("a"), SPANS, kernels=KERNELS, **more), arms=(NEW, Q, T))  # type: ignore[arg-type]


def test_the_others_have_the_numbers_that_they_have_where_it_did_not_run() -> None:
    alone = summarise([run(row(case("a"), {NEW: SPANS[NEW], T: SPANS[T]}), arms=(NEW, T))])

    found = summarise([measured()], left_out=[Q])

    assert summarise([measured()]).columns == ("sota", "best_known")
    assert found.columns == alone.columns == ("sota",)
    assert [arm.name for arm in found.arms] == [NEW, T]
    assert (found.rows, found.geomeans, found.standings) == (alone.rows, alone.geomeans, alone.standings)
    assert [launched.arm for launched in found.launches] == [NEW, T]


def test_the_page_names_it_in_bold_and_nowhere_else() -> None:
    page = render_page(summarise([measured()], left_out=[Q]))

    assert "**Measured too, and left out here by --without: quack.**" in page
    assert page.count("quack") == 1
    notes = json.loads(json_page.render_page(summarise([measured()], left_out=[Q])))["notes"]
    assert notes == {"left_out": "measured too, and left out here by --without: quack"}


def test_the_places_of_the_others_close_up() -> None:
    (kept,) = measured().without([Q]).rows

    assert sorted(zip(kept.samples.group, kept.samples.position, strict=True)) == [
        (g, p) for g in range(6) for p in (0, 1)
    ]
    assert set(kept.samples.arm) == set(kept.arms) == set(kept.kernels) == {NEW, T}


def test_a_group_thrown_away_for_it_stays_thrown_away() -> None:
    thrown = Discarded(attempt=0, group=1, arm=Q, reason="lost", span_ns={NEW: 4 * MS, Q: None})

    (kept,) = measured(discarded=[thrown]).without([Q]).rows

    assert kept.discarded == (Discarded(attempt=0, group=1, arm="", reason="lost", span_ns={NEW: 4 * MS}),)


def test_an_arm_that_one_of_the_runs_has_is_left_out_there() -> None:
    other = run(row(case("b"), {NEW: SPANS[NEW], T: SPANS[T]}), arms=(NEW, T), run_id="other")

    assert len(summarise([measured(), other], left_out=[Q]).rows) == 2


@pytest.mark.parametrize(
    ("arms", "error", "words"),
    [
        (["quick"], UnknownName, "arm 'quick' is not known; known: cake_det, quack, torch_grouped_mm"),
        ([NEW, T, Q], UsageError, "a report needs an arm, and all are left out: cake_det, quack, torch_grouped_mm"),
    ],
)
def test_what_cannot_be_left_out_is_refused(arms: list[str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        summarise([measured()], left_out=arms)


def test_an_arm_stays_while_its_twin_does() -> None:
    twins = run(row(case("a"), {**SPANS, AGAIN: SPANS[T]}), arms=(NEW, Q, T, AGAIN))

    with pytest.raises(UsageError, match=f"arm '{T}' cannot be left out while '{AGAIN}', the same arm again, stays"):
        summarise([twins], left_out=[T])
    assert [arm.name for arm in summarise([twins], left_out=[T, AGAIN]).arms] == [NEW, Q]
