"""Arms left out of a page: as if they had not run, but for their names."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness import runfile
from harness.cli import main
from harness.errors import UnknownName, UsageError
from harness.model.conditions import Discards
from harness.model.run import Discarded, GroupState, Previous, Run, Sitting
from harness.pages import json as json_page
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from tests.unit.report_runs import H200, case, row, run

NEW, T, Q = "cake_det", "torch_grouped_mm", "quack"
AGAIN = "torch_grouped_mm again"
MS = 1_000_000
SPANS = {NEW: [4 * MS] * 6, T: [5 * MS] * 6, Q: [3 * MS] * 6}
KERNELS = {arm: ((f"kernel_of_{arm} x 1",),) for arm in SPANS}


def measured(discarded: Sequence[Discarded] = ()) -> Run:
    return run(row(case("a"), SPANS, kernels=KERNELS, discarded=discarded), arms=(NEW, Q, T))


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


def test_a_group_thrown_away_since_it_failed_is_still_counted_as_of_a_row_started_again() -> None:
    thrown = Discarded(attempt=0, group=1, arm=Q, reason=f"the row started again without {Q}", span_ns={Q: None})

    (kept,) = summarise([measured(discarded=[thrown])], left_out=[Q]).rows

    assert kept.discarded == Discards(restarted=1)


def test_a_row_that_it_alone_had_has_no_groups_left() -> None:
    state = GroupState(clock_mhz=1900, power_w=500.0, temperature_c=50, throttle=())
    alone = row(case("a"), {Q: SPANS[Q]}, unsupported={NEW: "cannot"}, states=[state] * 6)

    report = summarise([run(alone, row(case("b"), SPANS), arms=(NEW, Q, T))], left_out=[Q])

    assert [(each.n, each.figure(Q)) for each in report.rows] == [(0, None), (6, None)]
    assert report.environments[0].states == ()


def test_an_arm_that_one_of_the_runs_has_is_left_out_there() -> None:
    sitting = Sitting(started="2026-01-01T12:00:00Z", elapsed_ns=1, rows=1)
    other = run(row(case("b"), {NEW: SPANS[NEW], T: SPANS[T]}), arms=(NEW, T), run_id="other")

    report = summarise([measured(), replace(other, sittings=(sitting,))], left_out=[Q])

    assert len(report.rows) == 2
    assert [cost.run_id for cost in report.environments[0].costs] == ["other"]


def test_a_run_of_it_alone_is_left_out() -> None:
    alone = run(row(case("a"), {Q: SPANS[Q]}), arms=(Q,), run_id="alone", machines=(replace(H200, board="f" * 12),))

    report = summarise([measured(), alone], left_out=[Q])

    assert report == summarise([measured()], left_out=[Q])


def test_no_revision_is_named_and_none_must_agree_where_it_alone_was_of_it() -> None:
    spans = {**SPANS, "previous_det": SPANS[NEW]}
    runs = [
        replace(
            run(row(case(name), spans), run_id=name),
            previous=Previous(revision=name, sources_sha256=digit * 64, controls=(f"boost/moe-training/dW {name}",)),
        )
        for name, digit in (("a", "0"), ("b", "1"))
    ]

    report = summarise(runs, left_out=["previous_det"])

    assert report.previous_revision == ""
    assert [each.control for each in report.rows] == [False, False]


def test_a_name_given_twice_is_named_once() -> None:
    assert summarise([measured()], left_out=[Q, Q]).notes["left_out"].endswith("--without: quack")


def test_its_failures_and_its_times_do_not_make_the_exit_code(tmp_path: Path) -> None:
    failed = run(row(case("a"), {NEW: SPANS[NEW], T: SPANS[T]}, failed={Q: "wrong"}), run_id="failed")
    alone = run(row(case("a"), {Q: SPANS[Q]}, unsupported={NEW: "cannot"}), run_id="alone", arms=(NEW, Q))
    codes = {}
    for made in (failed, alone):
        path = tmp_path / f"{made.run_id}.json"
        runfile.save(made, path)
        for options in ([], ["--without", Q]):
            codes[made.run_id, len(options)] = main(["report", *options, str(path)])

    assert codes == {("failed", 0): 5, ("failed", 2): 0, ("alone", 0): 0, ("alone", 2): 3}


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
