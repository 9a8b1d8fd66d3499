"""The role *previous* and its controls: who is compared, what is counted, which runs pool."""

from dataclasses import replace

import pytest

from harness.errors import UsageError
from harness.model.run import Previous, Run
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from tests.unit.report_runs import H200, case, row, run

NEW, DET, OLD, OLD_DET, T = "cake_nondet", "cake_det", "previous_nondet", "previous_det", "torch_grouped_mm"
MS = 1_000_000


def compared(
    *names: str, controls: tuple[str, ...] = (), run_id: str = "a", new_ms: int = 4, previous_sha: str = "0a" * 32
) -> Run:
    """Rows ``names`` in which the previous revision takes 5 ms, 6 ms where it is a control."""
    spans = {name: {NEW: [new_ms * MS], OLD: [(6 if name in controls else 5) * MS], T: [8 * MS]} for name in names}
    made = run(*(row(case(name), of) for name, of in spans.items()), run_id=run_id)
    keys = tuple(f"boost/moe-training/dW {name}" for name in controls)
    return replace(made, previous=Previous(revision="0ld (git)", sources_sha256=previous_sha, controls=keys))


@pytest.mark.parametrize(
    ("new", "columns", "ratio"),
    [
        (NEW, ("sota", "previous"), 1.5),
        (DET, ("sota", "previous"), 1.4),
        (OLD, ("sota",), None),
        (T, ("sota",), None),
    ],
)
def test_previous_is_the_variant_of_new_in_the_other_revision(
    new: str, columns: tuple[str, ...], ratio: float | None
) -> None:
    spans = {NEW: [4 * MS], DET: [5 * MS], OLD: [6 * MS], OLD_DET: [7 * MS], T: [8 * MS]}

    report = summarise([run(row(case(), spans))], new=new)

    (only,) = report.rows
    found = only.ratio("previous")
    assert report.columns == columns
    assert (found.median if found else None) == ratio


def test_without_a_time_of_it_there_is_no_column() -> None:
    refused = {OLD: "revision 0ld (git): no program for wgrad"}

    report = summarise([run(row(case(), {NEW: [4 * MS], OLD_DET: [5 * MS], T: [8 * MS]}, unsupported=refused))])

    assert report.columns == ("sota",)


def test_an_arm_of_ours_from_another_revision_is_no_baseline() -> None:
    report = summarise([run(row(case(), {NEW: [4 * MS], OLD: [3 * MS], T: [8 * MS]}))])

    assert (report.rows[0].sota, report.rows[0].best_known) == (T, T)


@pytest.mark.parametrize("against", ["previous", OLD])
def test_a_control_is_in_no_mean_and_no_count_of_previous_and_in_those_of_others(against: str) -> None:
    report = summarise([compared("x", "y", controls=("y",))], against=[OLD])

    ((mean, n),) = ((g.value, g.n) for g in report.geomeans if g.against == against)
    (standing,) = (s for s in report.standings if s.against == against)
    (sota,) = (s for s in report.standings if s.against == "sota")
    assert [entry.control for entry in report.rows] == [False, True]
    assert (mean, n) == (pytest.approx(1.25), 1)
    assert [entry.row.case.name for entry in standing.rows] == ["x"]
    assert len(sota.rows) == 2


def test_controls_are_marked_in_the_table_and_listed_with_their_ratios() -> None:
    page = render_page(summarise([compared("x", "y", controls=("y",))]))

    assert (
        "| y | dW | **4.0000** | 8.0000 | 6.0000 | t | 2.000 [2.000, 2.000] | 1.500 [1.500, 1.500] | control |" in page
    )
    assert (
        "- Controls, the same program in both revisions, so in no geomean and no count of previous / cake_nondet: dW y"
        " 1.500 [1.500, 1.500]\n" in page
    )
    assert "revision 1a2b3c4 (git); previous revision 0ld (git); run a" in page


def test_of_many_controls_the_line_has_the_range() -> None:
    names = tuple(f"r{i}" for i in range(11))

    page = render_page(summarise([compared(*names, controls=names)]))

    assert "previous / cake_nondet: 11 rows (dW) from 1.500 to 1.500\n" in page


def test_a_report_without_another_revision_has_no_word_of_it() -> None:
    page = render_page(summarise([run(row(case(), {NEW: [4 * MS], T: [8 * MS]}))]))

    assert "revious" not in page
    assert "ontrol" not in page


def test_a_row_that_one_run_calls_affected_is_no_control() -> None:
    here = compared("x", controls=("x",))
    other = compared("x", run_id="b", new_ms=3)
    without = replace(compared("x", run_id="c", new_ms=2), previous=None)

    assert [summarise(runs).rows[0].control for runs in ([here, other], [here, without], [without], [here])] == [
        False,
        True,
        False,
        True,
    ]


def test_runs_of_other_sources_do_not_pool_though_their_revisions_have_one_name() -> None:
    one = replace(compared("x"), sources_sha256="1b" * 32)
    same = replace(compared("x", run_id="b", new_ms=3), sources_sha256="1b" * 32)
    unknown = replace(compared("x", run_id="c", new_ms=2), sources_sha256="")

    assert summarise([unknown, one, same]).rows[0].n == 3
    with pytest.raises(
        UsageError, match="the sources of cake_kernels must be the same, got SHA-256 1b1b1b1b1b1b and 2c2c"
    ):
        summarise([unknown, one, replace(same, sources_sha256="2c" * 32)])
    with pytest.raises(
        UsageError, match="runs 'a' and 'b' cannot pool: the sources of the previous cake_kernels must be"
    ):
        summarise([one, compared("x", run_id="b", new_ms=3, previous_sha="3d" * 32)])


def test_controls_are_of_every_device_that_found_them_so() -> None:
    other = replace(H200, product="NVIDIA H100", board="cccccccccccc")
    runs = [
        compared("x", controls=("x",)),
        replace(compared("x", controls=("x",), run_id="b", new_ms=3), machines=(other,)),
    ]

    assert [entry.control for entry in summarise(runs).rows] == [True, True]
