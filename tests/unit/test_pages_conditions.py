"""What a report says of clocks, energy, the GPU's states, discarded groups and the tracer."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

import pytest
import torch

from harness.model.conditions import Discards, Range
from harness.model.report import Report
from harness.model.run import Discarded, GroupState, Row
from harness.model.sample import QUEUE_DRY, Sample
from harness.operands import make_operands
from harness.pages import json as json_page
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from harness.protocols.paired_groups import Session, measure
from harness.protocols.regimes import Boost, Sustained
from harness.timers import TimedCall, Traced
from tests.bench import FakeArm, QuietDevice, small_case
from tests.unit.report_runs import case, row, run, skipped

NEW, T, C = "cake_nondet", "torch_grouped_mm", "cublas_loop"
MS = 1_000_000
USUAL = GroupState(clock_mhz=1440, power_w=690.0, temperature_c=60, throttle=("power cap",))
TWO = {NEW: [4 * MS], T: [5 * MS]}


def report(*rows: Row, arms: tuple[str, ...] = (NEW, T, C)) -> Report:
    return summarise([run(*rows, arms=arms, timer="cupti")])


# Clocks


def test_the_ratio_in_time_is_that_in_cycles_times_that_of_the_clocks() -> None:
    (ratio,) = report(row(case(), TWO, clock={NEW: [2000], T: [1600]})).rows[0].ratios

    assert (ratio.median, ratio.cycles_median, ratio.clock) == (1.25, 1.0, 1.25)


def test_clocks_apart_leave_a_verdict_where_cycles_name_the_same_arm() -> None:
    one = row(case(), TWO, clock={NEW: [1980], T: [1900]})

    (standing,) = report(one).standings

    assert (standing.clock_rows, len(standing.clocks_apart), standing.cycles_disagree) == (1, 1, ())
    assert "differ by more than 1 % in 1 of 1 row; cycles name the same arm as faster in all" in render_page(
        report(one)
    )


def test_cycles_that_name_the_other_arm_leave_no_verdict_in_boost() -> None:
    one = row(case(), {NEW: [4 * MS], T: [4_040_000]}, clock={NEW: [1980], T: [1900]})
    page = render_page(report(one))

    assert [entry.row.case.name for entry in report(one).standings[0].cycles_disagree] == [one.case.name]
    assert "wholly below in 0 (chance gives 0.5 and 0.5 on each side); cycles do not confirm 1 of these;" in page
    assert "(`clock`): dW gate_up E4 M112576 bal 1.010 in time, 0.969 in cycles.\n" in page
    assert "| clock: SOTA / cake_nondet is 0.969 in cycles |\n" in page


def test_in_sustained_clocks_differ_by_nature_and_nothing_is_said() -> None:
    one = row(case(), {NEW: [4 * MS], T: [4_040_000]}, clock={NEW: [1440], T: [1300]}, regime="sustained")

    page = render_page(report(one))

    assert "Clocks of new and baseline" not in page
    assert "do not confirm" not in page
    assert "| remarks |" not in page


def test_clocks_within_one_percent_are_not_apart() -> None:
    one = row(case(), {NEW: [4 * MS], T: [4_010_000]}, clock={NEW: [2018], T: [2000]})

    assert report(one).standings[0].clocks_apart == ()


def test_the_clock_table_has_medians_over_rows_and_energy_over_news() -> None:
    spans = {NEW: [4 * MS] * 2, T: [5 * MS] * 2}
    rows = [
        row(case(name), spans, clock={NEW: [mhz] * 2, T: [1300] * 2}, joules={NEW: [2.0] * 2, T: [j] * 2}, calls=25)
        for name, mhz, j in (("a", 1400, 4.0), ("b", 1420, 2.0), ("c", 1500, 2.0))
    ]

    new, t = report(*rows).clock_energy

    assert (new.arm, new.rows, new.clock_mhz, new.clock_range) == (NEW, 3, 1420, Range(low=1400, high=1500))
    assert (new.joules, new.joules_ratio, new.watts) == (2.0, None, 500.0)
    assert (t.arm, t.joules, t.joules_ratio, t.watts) == (T, 2.0, 2 ** (1 / 3), 400.0)
    assert new.busy_share is None
    figure = report(*rows).rows[0].figure(T)
    assert figure is not None
    assert (figure.joules, figure.calls) == (4.0, 50)


def test_the_clock_table_shows_only_columns_of_which_something_is_known() -> None:
    page = render_page(report(row(case(), TWO, clock={NEW: [1980], T: [1970]})))

    assert "| regime | operation | arm | rows | clock (MHz), lowest-highest row |\n" in page
    assert "| boost | dW | torch_grouped_mm (t) | 1 | 1970 |\n" in page
    assert "Energy is the board's counter" not in page


def test_without_clock_energy_and_busy_times_there_is_no_clock_table() -> None:
    assert "## Clock and energy" not in render_page(report(row(case(), TWO)))


def test_busy_geomeans_stand_beside_spans_where_they_differ() -> None:
    close = row(case(), {NEW: [4 * MS], T: [5 * MS]}, busy={NEW: [4 * MS], T: [4_997_000]})
    apart = row(case(), {NEW: [4 * MS], T: [5 * MS]}, busy={NEW: [4 * MS], T: [4_990_000]})

    assert "| 1 of 22 | 1.250 (1.250-1.250) |\n" in render_page(report(close))
    assert "| 1 of 22 | 1.250 (1.250-1.250), busy 1.248 |\n" in render_page(report(apart))
    assert "; geomean 1.250 (dW owner, busy 1.248)." in render_page(report(apart))


# States


def test_states_have_ranges_and_unusual_reasons_stand_out() -> None:
    hot = GroupState(clock_mhz=1200, power_w=650.0, temperature_c=85, throttle=("power cap", "software thermal"))

    made = report(row(case(), TWO, states=[USUAL, USUAL, hot], regime="sustained"))

    (states,) = made.environments[0].states
    assert (states.groups, states.power_w, states.temperature_c) == (
        3,
        Range(low=650, high=690),
        Range(low=60, high=85),
    )
    assert (
        "  - sustained, after each of 3 groups: 650-690 W, 60-85 °C; power cap in 3 of 3; **software thermal in 1 of"
        " 3**\n"
    ) in render_page(made)


# Discarded groups


def test_discarded_groups_are_counted_by_reason_in_row_page_and_json() -> None:
    thrown = [
        Discarded(attempt=0, group=1, arm=T, reason="lost: no record came back"),
        Discarded(attempt=0, group=1, arm=C, reason="span_ns must be at least 1, got 0"),
        Discarded(attempt=0, group=3, arm="", reason="throttled: software thermal"),
        Discarded(attempt=0, group=3, arm=T, reason="clock 1380 MHz, 1290 MHz in the other groups"),
        Discarded(attempt=0, group=0, arm=C, reason="the row started again without cublas_loop"),
    ]
    made = report(row(case(), TWO, discarded=thrown))

    assert made.rows[0].discarded == Discards(invalid=2, throttled=1, clock=1, restarted=1)
    assert (
        "- Discarded, never for a duration: 5 of 6 measured groups: 2 for a lost or unbelievable record, in dW gate_up"
        " E4 M112576 bal; 1 held down by something else than the power cap, in dW gate_up E4 M112576 bal; 1 for an"
    ) in render_page(made)
    assert "| 5 groups discarded |\n" in render_page(made)
    assert json.loads(json_page.render_page(made))["rows"][0]["discarded"] == asdict(made.rows[0].discarded)


class ToldTimer:
    """Gives the samples it is told, one a call; the same at the end of every row."""

    heading = "made for a test"

    def __init__(self, told: dict[int, Sample], *, usual: Sample) -> None:
        self._told = told
        self._usual = usual
        self._index = 0

    def start_row(self, case_id: str) -> None:
        pass

    def traced(self) -> Traced:
        return Traced()

    def measure(self, calls: Sequence[TimedCall]) -> list[Sample]:
        return [self._sample() for _ in calls]

    def _sample(self) -> Sample:
        self._index += 1
        return self._told.get(self._index, self._usual)


class HotMonitor:
    """A GPU that is too hot in its fourth group."""

    def __init__(self) -> None:
        self._index = 0

    def state(self) -> GroupState:
        self._index += 1
        return GroupState(
            clock_mhz=1980,
            power_w=400.0,
            temperature_c=50,
            throttle=("hardware thermal",) if self._index == 4 else (),
        )

    def energy_mj(self) -> int:
        return 0


GOOD = Sample(span_ns=1000, clock_mhz=1980)


def discarded_by_protocol(told: dict[int, Sample], *, hot: bool = False) -> tuple[Discarded, ...]:
    """What the protocol throws away of two arms in six groups, call by call as ``told``."""
    of = small_case()
    operands = make_operands(of, seed=0, device=torch.device("cpu"))
    arms = {name: FakeArm(name).prepare(of, operands) for name in (NEW, T)}
    monitor = HotMonitor() if hot else None
    session = Session(timer=ToldTimer(told, usual=GOOD), device=QuietDevice(), groups=6, monitor=monitor)
    return measure(arms, Boost(rounds=1), session, floor_ns=10, case_id=of.case_id).discarded


@pytest.mark.parametrize(
    ("told", "hot", "classes"),
    [
        ({3: Sample(span_ns=0)}, False, Discards(invalid=1)),
        ({3: Sample(span_ns=math.nan, reason="clock of the tracer stood still")}, False, Discards(invalid=1)),
        ({3: Sample(span_ns=math.nan, reason=QUEUE_DRY)}, False, Discards(dry=1)),
        ({}, True, Discards(throttled=1)),
        ({12: Sample(span_ns=1000, clock_mhz=1500)}, False, Discards(clock=1)),
        ({5: Sample(span_ns=2)}, False, Discards(invalid=1, restarted=2)),  # an impossible time: its arm fails
    ],
)
def test_what_the_protocol_throws_away_is_one_entry_a_group_in_its_class(
    told: dict[int, Sample], hot: bool, classes: Discards
) -> None:
    thrown = discarded_by_protocol(told, hot=hot)

    (only,) = report(row(case(), TWO, discarded=thrown)).rows
    assert only.discarded == classes
    assert only.discarded.total == len(thrown) == len({(d.attempt, d.group, d.reason) for d in thrown})


# Rows that a regime leaves to another


def test_rows_too_short_for_sustained_are_one_note_and_stay_in_the_count_of_the_suite() -> None:
    names = ["short", "shorter", "shortest", "none"]
    rows = [row(case(name), TWO) for name in names]
    rows += [skipped(case(n), Sustained().why_not(200_000 + i), regime="sustained") for i, n in enumerate(names)]
    rows.append(row(case("long"), TWO, regime="sustained"))

    page = render_page(report(*rows))

    assert page.count("under 2 ms") == 1
    assert "- Not in sustained: 4 rows (dW); rows under 2 ms are measured in boost only\n" in page
    assert "| sustained | dW | owner | 1 of 22 |" in page
    assert "| boost | dW | owner | 4 of 22 |" in page
    assert "moe-training, 1 in sustained, 4 in boost;" in page


def test_a_failure_in_one_regime_of_two_names_it() -> None:
    one = row(case(), {NEW: [4 * MS]}, failed={T: "3 groups discarded"}, regime="sustained")
    other = row(case(), TWO)

    assert "- **torch_grouped_mm (t)**, dW gate_up E4 M112576 bal in sustained: 3 groups" in render_page(
        report(one, other)
    )


def test_host_bound_rows_are_listed_with_arm_regime_and_gap() -> None:
    spans = {NEW: [4 * MS], C: [5 * MS]}
    bound = row(case(), spans, busy={NEW: [4 * MS], C: [4_200_000]})
    full = row(case(), spans, regime="sustained")

    assert (
        "- Host-bound by cublas_loop (c) in boost, so in no geomean and no count: dW gate_up E4 M112576 bal"
        " (gap 16.00 %)\n"
    ) in render_page(report(bound, full))


# The tracer


def test_the_ledger_is_summed_and_a_count_that_a_row_cannot_tell_is_unknown() -> None:
    one = row(case("a"), TWO, records={"seen": 1500, "attributed": 1000, "zero": 0, "orphans": 0, "dropped": 0})
    two = row(case("b"), TWO, records={"seen": 20, "attributed": 10, "zero": 2, "orphans": 0, "dropped": None})

    assert (
        "- Records of the tracer, over all rows: seen 1,520, of calls 1,010, zero 2, orphans 0, dropped by the tracer"
        " unknown.\n"
    ) in render_page(report(one, two))


def test_launches_say_what_a_call_of_each_arm_is() -> None:
    loop = {4: (("gemm x 4",),), 8: (("gemm x 7", "memset x 1"),)}
    rows = [
        row(case(f"E{E}", sizes=sizes), TWO, kernels={T: (("gemm x 1", "prepare x 1"),), C: loop[E]})
        for E, sizes in ((4, (28144,) * 4), (8, (16000,) * 7 + (576,)))
    ]
    empty = row(case("1-empty", sizes=(56288, 56288, 0)), TWO, kernels={C: (("gemm x 2",),), NEW: (("a x b x 1",),)})

    t, c = report(*rows, arms=(T, C)).launches
    page = render_page(report(rows[0], empty))

    assert (t.kernels, t.memsets, t.per_group) == (Range(low=2, high=2), Range(low=0, high=0), False)
    assert (c.kernels, c.memsets, c.per_group) == (Range(low=4, high=7), Range(low=0, high=1), False)
    assert (
        "- One call launches: cake_nondet 1 kernel (`a?x?b`); torch_grouped_mm 2 kernels (`gemm`, `prepare`);"
        " cublas_loop a kernel for each non-empty group, 2 to 4 (`gemm`).\n"
    ) in page


def test_an_arm_that_launches_another_set_now_and_then_is_named() -> None:
    one = row(case(), TWO, kernels={T: (("gemm x 1",), ("gemm x 1", "memset x 1"))})

    assert (
        "torch_grouped_mm 1 kernel (`gemm`) and 0 to 1 memsets (not the same from call to call in 1 row)."
        in render_page(report(one))
    )
