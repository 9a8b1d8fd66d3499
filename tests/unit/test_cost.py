"""What a run took: from its sittings and their rows to the line under a machine."""

import json
from collections.abc import Sequence
from dataclasses import replace

from harness.model.cost import Cost, cost, with_rows
from harness.model.machine import Machine
from harness.model.run import Row, Run, Sitting
from harness.pages import json as json_page
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from tests.unit.report_runs import H200, case, row, run, skipped

NEW, T = "cake_nondet", "torch_grouped_mm"
MS, S = 1_000_000, 1_000_000_000
TWO = {NEW: [4 * MS], T: [5 * MS]}


def sitting(seconds: int, rows: int) -> Sitting:
    return Sitting(started="2026-01-01T12:00:00Z", elapsed_ns=seconds * S, rows=rows)


def sat(rows: Sequence[Row], *sittings: Sitting, run_id: str = "r", machines: Sequence[Machine] = (H200,)) -> Run:
    return replace(run(*rows, run_id=run_id, machines=machines), sittings=sittings)


def named(name: str, *, calls: int = 1, machine: int = 0) -> Row:
    return row(case(name), TWO, calls=calls, machine=machine)


# The numbers


def test_the_cost_is_busy_time_of_every_call_where_the_timer_gave_it_for_all() -> None:
    seen = row(case("a"), TWO, busy={NEW: [3 * MS], T: [5 * MS]}, calls=10)
    unseen = row(case("b"), TWO)

    # 10 x (3 + 5) ms; with a row that has no busy times, spans of all: 10 x (4 + 5) + (4 + 5) ms.
    assert cost([(sitting(1, 1), [seen])]) == Cost(rows=1, elapsed_ns=S, counted_ns=80 * MS, busy=True)
    both = cost([(sitting(1, 1), [seen]), (sitting(2, 1), [unseen])])
    assert both == Cost(rows=2, elapsed_ns=3 * S, counted_ns=99 * MS, busy=False)
    assert both.share == 0.033


def test_a_timer_without_busy_times_gives_spans() -> None:
    assert cost([(sitting(1, 2), [named("a"), named("b", calls=2)])]) == Cost(
        rows=2, elapsed_ns=S, counted_ns=27 * MS, busy=False
    )


def test_nothing_costs_nothing_and_a_row_that_was_not_tried_its_time() -> None:
    assert cost([]) == Cost(rows=0, elapsed_ns=0, counted_ns=0, busy=False)
    assert cost([]).share == 0
    tried = cost([(sitting(3, 1), [skipped(case(), "does not fit")])])
    assert tried == Cost(rows=1, elapsed_ns=3 * S, counted_ns=0, busy=False)


def test_the_rows_of_the_sittings_are_the_runs_last() -> None:
    rows = [named(name) for name in "abcd"]
    first, second = sitting(1, 2), sitting(2, 1)

    assert with_rows(sat(rows)) == ()
    assert with_rows(sat(rows, first, second)) == ((first, tuple(rows[1:3])), (second, (rows[3],)))


# The page


def cost_lines(*runs: Run) -> list[str]:
    """The lines of machines and of what runs took there, each machine as its board."""
    lines = render_page(summarise(runs)).splitlines()
    boards = [line.split("board ")[1][:4] if "132 SMs, board" in line else line for line in lines]
    return [line for line in boards if line in ("0123", "bbbb") or line.startswith("  - run ")]


def test_under_a_machine_stands_what_each_run_took() -> None:
    one = sat([named("a", calls=20), named("b", calls=30)], sitting(1, 1), sitting(2, 1), run_id="one")
    other = sat([named("c", calls=80)], sitting(4, 1), run_id="other")

    # 50 x 9 ms of 3 s, 80 x 9 ms of 4 s.
    assert cost_lines(one, other) == [
        "0123",
        "  - run one took 3 s for 2 rows, 15 % of it in calls that count",
        "  - run other took 4 s for 1 row, 18 % of it in calls that count",
    ]
    assert "- **Calls that count**: those behind the rows' times" in render_page(summarise([one]))


def test_rows_from_before_sittings_were_kept_are_neither_counted_nor_in_the_share() -> None:
    resumed = sat([named("a", calls=1000), named("b", calls=10), named("c", calls=10)], sitting(1, 2))

    assert cost_lines(resumed) == ["0123", "  - run r took 1 s for 2 of its 3 rows, 18 % of it in calls that count"]


def test_a_run_that_went_on_with_another_card_has_under_each_what_it_took_there() -> None:
    rows = [named("a", calls=10), named("b", calls=20, machine=1), named("c", calls=20, machine=1)]
    moved = sat(rows, sitting(1, 1), sitting(2, 1), sitting(1, 1), machines=[H200, replace(H200, board="bbbbbbbbbbbb")])

    assert cost_lines(moved) == [
        "0123",
        "  - run r took 1 s for 1 of its 3 rows, 9 % of it in calls that count",
        "bbbb",
        "  - run r took 3 s for 2 of its 3 rows, 12 % of it in calls that count",
    ]


def test_a_run_that_went_on_after_a_library_changed_has_one_line() -> None:
    newer = replace(H200, versions={**H200.versions, "triton": "3.7.0"})
    rows = [named("a", calls=10), named("b", calls=20, machine=1)]

    assert cost_lines(sat(rows, sitting(1, 1), sitting(2, 1), machines=[H200, newer])) == [
        "0123",
        "  - run r took 3 s for 2 rows, 9 % of it in calls that count",
    ]


def test_a_run_without_sittings_or_of_which_a_part_is_shown_has_no_line() -> None:
    whole = sat([named("a"), named("b")], sitting(1, 2))
    part = whole.only(["dW a"])

    assert cost_lines(sat([named("a")])) == ["0123"]
    assert cost_lines(part) == ["0123"]
    assert "calls that count" not in render_page(summarise([part])).lower()


def test_json_has_the_cost_of_each_run() -> None:
    whole = sat([named("a"), named("b", calls=50)], sitting(2, 1))

    (machine,) = json.loads(json_page.render_page(summarise([whole])))["machines"]

    assert machine["costs"] == [
        {
            "run": "r",
            "run_rows": 2,
            "rows": 1,
            "elapsed_ns": 2 * S,
            "counted_ns": 450 * MS,
            "busy": False,
            "share": 0.225,
        }
    ]
