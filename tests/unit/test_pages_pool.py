"""Which runs pool, what makes two machines one card, and what a reader of a pool must know."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.model.machine import Machine
from harness.model.run import Run, row_key
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from harness.revision import revision
from tests.unit.report_runs import H200, case, row, run

NEW, T = "cake_nondet", "torch_grouped_mm"
MS = 1_000_000


def measured(run_id: str, t_ms: int, *, machine: Machine = H200, tree: str = "1a2b3c4 (git)") -> Run:
    return run(row(case(), {NEW: [4 * MS], T: [t_ms * MS]}), run_id=run_id, machines=[machine], revision=tree)


def changed(name: str, value: str, *, board: str = "bbbbbbbbbbbb") -> Machine:
    if name in H200.versions:
        return replace(H200, board=board, versions={**H200.versions, name: value})
    return replace(H200, board=board, settings={**H200.settings, name: value})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("torch", "2.11.0", "torch version of NVIDIA H200 (sm_90a) must be the same, got '2.13.0' and '2.11.0'"),
        ("cuda", "12.8", "cuda version of"),
        ("driver", "570.1", "driver version of"),
        ("cudnn", "9.19.0", "cudnn version of"),
        ("power limit", "500 W", "power limit of NVIDIA H200 (sm_90a) must be the same, got '700 W' and '500 W'"),
        ("ECC", "off", "ECC of"),
        ("MIG", "on", "MIG of"),
    ],
)
def test_cards_of_one_model_with_another_stack_do_not_pool(name: str, value: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        summarise([measured("a", 5), measured("b", 6, machine=changed(name, value))])

    assert words in str(refused.value)


def test_one_board_under_another_power_limit_is_not_a_second_card() -> None:
    with pytest.raises(UsageError, match="power limit of"):
        summarise([measured("a", 5), measured("b", 6, machine=changed("power limit", "500 W", board="0123456789ab"))])


def test_one_board_cannot_be_of_two_products() -> None:
    with pytest.raises(UsageError, match="product of board 0123456789ab must be the same"):
        summarise([measured("a", 5), measured("b", 6, machine=replace(H200, product="NVIDIA H100"))])


def test_one_board_is_one_card_though_a_library_changed_and_its_line_has_both() -> None:
    other = changed("persistence", "off", board="0123456789ab")
    newer = replace(other, versions={**H200.versions, "triton": "3.7.0"})
    older = replace(H200, versions={**H200.versions, "triton": "3.6.0"})

    report = summarise([measured("a", 5, machine=older), measured("b", 7, machine=newer)])

    (only,) = report.environments
    assert only.run_ids == ("a", "b")
    assert only.machine.versions["triton"] == "3.6.0 and 3.7.0"
    assert report.rows[0].cards == 1
    assert report.rows[0].ratios[0].median == 1.5


def test_machines_without_a_board_are_one_card_only_where_all_is_equal() -> None:
    cpu = replace(H200, device="cpu", board=None)

    same = summarise([measured("a", 5, machine=cpu), measured("b", 6, machine=cpu)])
    other = summarise([measured("a", 5, machine=cpu), measured("b", 6, machine=replace(cpu, units=2))])

    assert (same.rows[0].cards, other.rows[0].cards) == (1, 2)


def test_a_copy_of_a_run_is_refused() -> None:
    copy = measured("copy", 5, machine=replace(H200, board="bbbbbbbbbbbb"))

    with pytest.raises(UsageError, match="hold the same samples of 'boost/moe-training/dW gate_up E4 M112576 bal'"):
        summarise([measured("a", 5), copy])


def test_the_same_times_in_two_rows_of_one_run_are_no_copy() -> None:
    rows = [row(case(name), {NEW: [4 * MS], T: [5 * MS]}) for name in ("a", "b")]

    assert len(summarise([run(*rows)]).rows) == 2


def test_a_row_that_another_run_has_is_not_missing() -> None:
    rows = {name: row(case(name), {NEW: [4 * MS], T: [5 * MS]}) for name in ("a", "b", "c")}
    planned = tuple(row_key("boost", one.case) for one in rows.values())
    first, second = run(rows["a"], run_id="first"), run(rows["b"], run_id="second")

    (lacking,) = summarise([replace(first, planned=planned), second]).missing

    assert (lacking.run_id, lacking.planned, lacking.rows) == ("first", 3, (planned[2],))


def pooled(tree: str) -> str:
    return render_page(summarise([measured("a", 5, tree=tree), measured("b", 6, tree=tree)]))


def test_runs_of_an_unknown_revision_pool_with_a_bold_note() -> None:
    note = "**2 runs of revision unknown are pooled: nothing says that they measured the same tree.**\n"

    assert note in pooled("unknown")
    assert "are pooled: nothing says" not in pooled("1a2b3c4 (git)")
    assert "are pooled: nothing says" not in render_page(summarise([measured("a", 5, tree="unknown")]))


def test_runs_of_a_tree_with_uncommitted_changes_pool_with_a_bold_note(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    (tmp_path / "shapes.yaml").write_text("one")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    clean = revision(None, top=tmp_path)
    (tmp_path / "shapes.yaml").write_text("two")

    assert "are pooled: nothing says" not in pooled(clean)
    assert "are pooled: nothing says" in pooled(revision(None, top=tmp_path))


def test_the_environment_line_names_the_regimes_that_have_a_time() -> None:
    rows = [row(case(), {NEW: [4 * MS], T: [5 * MS]}, regime=regime) for regime in ("boost", "sustained")]
    none = row(case(), {}, unsupported={T: "no"}, regime="rotation")

    assert "cold L2, eager; regimes sustained, boost; one group a row" in render_page(summarise([run(*rows, none)]))
