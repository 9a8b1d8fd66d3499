from collections.abc import Sequence

import pytest

from harness.errors import MeasurementError, UnknownName
from harness.model.sample import Sample
from harness.protocols.regimes import Boost, Rotation, Sustained, block_sample, regime
from harness.timers import TimedCall, Traced


class Recorder:
    """A timer that gives the calls it was asked for, numbered from 1 in microseconds."""

    heading = "made for a test"

    def __init__(self) -> None:
        self.asked: list[list[TimedCall]] = []

    def start_row(self, case_id: str) -> None: ...

    def traced(self) -> Traced:
        return Traced()

    def measure(self, calls: Sequence[TimedCall]) -> list[Sample]:
        self.asked.append(list(calls))
        return [Sample(span_ns=1000 * (i + 1), busy_ns=900 * (i + 1), clock_mhz=1500 + i) for i in range(len(calls))]


def call(arm: str, gap_ns: int) -> TimedCall:
    return TimedCall(arm=arm, launch=lambda: None, gap_ns=gap_ns, enqueue_ns=10)


def test_boost_rotates_one_by_one_after_a_gap_and_takes_the_median_of_its_rounds() -> None:
    timer = Recorder()

    samples = Boost().measure([call("a", 5), call("b", 7)], timer, lambda: None)

    assert [[(c.arm, c.gap_ns) for c in asked] for asked in timer.asked] == [3 * [("a", 5), ("b", 7)]]
    # Calls 1..6 us: a has 1, 3, 5, b 2, 4, 6.
    assert [(s.span_ns, s.busy_ns, s.clock_mhz, s.calls) for s in samples] == [
        (3000, 2700, 1502, 3),
        (4000, 3600, 1503, 3),
    ]
    assert Boost().why_not(1) == ""


def test_a_block_is_back_to_back_and_as_long_as_asked() -> None:
    timer = Recorder()

    Sustained(block_ns=300_000_000).measure([call("a", 7_000_000), call("b", 400_000_000)], timer, lambda: None)

    assert [len(asked) for asked in timer.asked] == [43, 3]
    assert {c.gap_ns for asked in timer.asked for c in asked} == {0}


def test_a_block_lasts_as_long_as_the_study_of_its_length_found() -> None:
    # docs/measuring.md: the shortest whose ratio and range are those of 0.8 s.
    timer = Recorder()

    Sustained().measure([call("a", 4_000_000)], timer, lambda: None)

    assert len(timer.asked[0]) * 4_000_000 == 400_000_000


@pytest.mark.parametrize(("enqueue_ns", "waits"), [(5, [5, 0, 0, 0]), (6, [6, 6, 6, 6])])
def test_within_a_block_only_a_host_that_is_not_clearly_ahead_is_waited_for(enqueue_ns: int, waits: list[int]) -> None:
    timer = Recorder()
    slow = TimedCall(arm="a", launch=lambda: None, gap_ns=10, enqueue_ns=enqueue_ns)

    Sustained(block_ns=40).measure([slow], timer, lambda: None)

    assert [c.enqueue_ns for c in timer.asked[0]] == waits


def test_a_block_drops_its_first_third_and_takes_the_median_of_the_rest() -> None:
    timer = Recorder()

    (sample,) = Sustained(block_ns=90).measure([call("a", 10)], timer, lambda: None)

    # Nine calls of 1..9 us; 4..9 are kept, the lower of the two middle ones is 6.
    assert (sample.span_ns, sample.busy_ns, sample.clock_mhz, sample.calls) == (6000, 5400, 1505, 6)


def test_energy_of_a_block_is_shared_by_all_its_calls() -> None:
    counter = iter([1_000, 181_000])

    (sample,) = Sustained(block_ns=90).measure([call("a", 10)], Recorder(), lambda: next(counter))

    assert sample.joules == pytest.approx(20.0)


def test_a_counter_that_stood_still_is_a_reading_and_one_that_fell_is_an_invalid_block() -> None:
    falling = iter([1_000, 900])

    (still,) = Sustained(block_ns=90).measure([call("a", 10)], Recorder(), lambda: 1_000)
    (fell,) = Sustained(block_ns=90).measure([call("a", 10)], Recorder(), lambda: next(falling))

    # Leaving the zeros out would make the rest, which hold whole steps of the counter, too large.
    assert (still.joules, still.impossible()) == (0.0, "")
    assert fell.impossible().startswith("joules must be a finite number >= 0, got -0.01")


@pytest.mark.parametrize("bad", [float("nan"), 0])
def test_an_invalid_call_among_those_kept_makes_the_block_invalid(bad: float) -> None:
    kept = [Sample(span_ns=10), Sample(span_ns=bad, reason="lost"), Sample(span_ns=10), Sample(span_ns=10)]

    block = block_sample([Sample(span_ns=1), Sample(span_ns=1), *kept], joules=None, drop_third=True)

    assert block.reason == "lost"
    assert block_sample([kept[1], *[Sample(span_ns=10)] * 5], joules=None, drop_third=True).span_ns == 10


def test_rows_under_two_milliseconds_are_boost_only() -> None:
    assert Sustained().why_not(1_999_999) == "a call takes 2.00 ms; rows under 2 ms are measured in boost only"
    assert Sustained().why_not(2_000_000) == ""


def test_a_timer_that_loses_a_sample_is_an_error() -> None:
    class Loses(Recorder):
        def measure(self, calls: Sequence[TimedCall]) -> list[Sample]:
            return super().measure(calls)[1:]

    with pytest.raises(MeasurementError, match="5 samples for 6 calls"):
        Boost().measure([call("a", 1), call("b", 1)], Loses(), lambda: None)


def test_rotation_mixes_the_arms_call_by_call() -> None:
    timer = Recorder()

    samples = Rotation(block_ns=40).measure([call("a", 5), call("b", 10)], timer, lambda: None)

    (asked,) = timer.asked
    assert [c.arm for c in asked] == ["a", "b"] * 4
    # Arm a had the calls of 1, 3, 5, 7 us, of which the last three are kept; b those of 2, 4, 6, 8.
    assert [(s.span_ns, s.calls) for s in samples] == [(5000, 3), (6000, 3)]


def test_regimes_are_found_by_name() -> None:
    assert regime("boost") == Boost()
    assert regime("sustained:0.05s") == Sustained(name="sustained:0.05s", block_ns=50_000_000)
    with pytest.raises(UnknownName, match="regime 'burst' is not known; known: sustained, boost, rotation, sustained:"):
        regime("burst")
