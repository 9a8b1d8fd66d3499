import dataclasses
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness import cupti_session, timers
from harness.arms import Prepared
from harness.cupti_session import PINNED, CuptiSession
from harness.errors import UsageError
from harness.protocols.paired_groups import Measured, Session, measure
from harness.protocols.regimes import Boost, Sustained
from harness.timers import TimedCall
from harness.timers.cupti import COVER, CuptiTimer, cover_ns
from harness.trace import Kind, Ledger, Record
from tests.bench import QuietDevice, machine
from tests.fake_cupti import FakeCupti, FakeGpu, Launched, hours_early, only, zeroed


class Bench:
    """A timer on a fake GPU with its session open."""

    def __init__(self, probe: object = None) -> None:
        self.cupti = FakeCupti()
        self.gpu = FakeGpu(self.cupti)
        self.slept: list[float] = []
        self.session = CuptiSession(self.cupti, synchronize=self.gpu.synchronize, probe=self.gpu.flush)
        self.session.open()
        self.timer = CuptiTimer(self.gpu, self.session, probe=probe, sleep=self.sleep)  # type: ignore[arg-type]
        self.timer.start_row("row")

    def sleep(self, seconds: float) -> None:
        assert self.cupti.is_idle, "an idle gap begins when the device is done"
        self.slept.append(seconds)

    def call(self, arm: str, *kernels_ns: int, api: str = "runtime", **how: int) -> TimedCall:
        def launch() -> None:
            for ns in kernels_ns:
                self.cupti.launch(arm, ns, api=api)

        return TimedCall(arm=arm, launch=launch, **how)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.session.close()
    assert bench.cupti.is_disabled


def test_span_and_busy_of_every_call_come_from_its_own_kernels(bench: Bench) -> None:
    samples = bench.timer.measure([bench.call("a", 20_000), bench.call("b", 7000, 3000), bench.call("c", 900)])

    assert [(s.span_ns, s.busy_ns) for s in samples] == [(20_000, 20_000), (10_000, 10_000), (900, 900)]


def test_every_call_is_flushed_after_its_idle_gap(bench: Bench) -> None:
    call = bench.call("a", 20_000, gap_ns=2_000_000)
    bench.timer.measure([call])  # calibrates
    bench.slept.clear()
    bench.gpu.covers.clear()

    bench.timer.measure([call, bench.call("a", 20_000), call])

    assert bench.slept == [0.002, 0.002]
    assert len(bench.gpu.covers) == 3


def test_the_device_is_waited_for_before_every_call_in_boost_and_around_each_block_in_sustained(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A wait on a GPU resets the persisting lines of its L2.
    log: list[str] = []
    wait = bench.cupti.synchronize
    monkeypatch.setattr(bench.cupti, "synchronize", lambda: (log.append("wait"), wait()))

    def arm(name: str) -> TimedCall:
        return TimedCall(arm=name, launch=lambda: (log.append(name), bench.cupti.launch(name, 500)), gap_ns=1000)

    calls = [arm("a"), arm("b")]
    bench.timer.measure(calls)
    log.clear()

    Boost(rounds=2).measure(calls, bench.timer, lambda: None)
    assert log == ["wait", *["wait", "a", "wait", "b"] * 2, "wait"]
    log.clear()

    Sustained(block_ns=3000, min_call_ns=1).measure(calls, bench.timer, lambda: None)
    assert log == ["wait", *["a"] * 3, "wait", "wait", *["b"] * 3, "wait"]


def test_the_ledger_of_a_row_counts_every_record_and_names_the_kernels(bench: Bench) -> None:
    bench.timer.measure([bench.call("a", 2000), bench.call("b", 700, 300)])

    # Two calibrations and two calls: a flush each, one and two kernels each.
    assert bench.timer.ledger.records == Ledger(seen=10, attributed=6, reserved=4)
    assert bench.timer.ledger.kernels == {"a": ((("a", 1),),), "b": ((("b", 2),),)}


def test_a_row_that_starts_again_goes_on_counting_and_another_row_starts_at_nothing(bench: Bench) -> None:
    bench.timer.measure([bench.call("a", 2000)])
    before = bench.timer.ledger

    bench.timer.start_row("row")
    assert bench.timer.ledger == before

    bench.timer.start_row("another")
    assert bench.timer.ledger.records == Ledger()


def test_an_arm_that_launches_another_set_of_kernels_shows_both(bench: Bench) -> None:
    bench.timer.measure([bench.call("a", 2000)])
    bench.timer.measure([bench.call("a", 2000, 2000)])

    assert bench.timer.ledger.kernels == {"a": ((("a", 1),), (("a", 2),))}


def test_a_call_that_lost_some_of_its_records_is_not_timed_from_the_rest(bench: Bench) -> None:
    call = bench.call("a", 7000, 7000, 7000)
    bench.timer.measure([call, call])
    bench.cupti.report = lose("a", 2)

    partial, whole = bench.timer.measure([call, call])

    assert math.isnan(partial.span_ns)
    assert partial.reason == "lost: 1 of the 3 records that calls of its arm have, among them a"
    assert whole.span_ns == 21_000
    assert bench.timer.ledger.kernels == {"a": ((("a", 3),),)}
    # Five calls of three kernels and their flushes, but for the record that is lost.
    assert bench.timer.ledger.records == Ledger(seen=19, attributed=14, reserved=5, lost=1)


def test_of_two_sets_seen_equally_often_the_smaller_is_the_one_that_lost_records(bench: Bench) -> None:
    # Two launches a call: the calibration, which is no sample, loses one, and so does the last of three calls.
    bench.cupti.report = lose("a", 1, 7)

    samples = bench.timer.measure([bench.call("a", 7000, 7000)] * 3)

    assert [s.span_ns for s in samples[:2]] == [14_000, 14_000]
    assert samples[2].reason == "lost: 1 of the 2 records that calls of its arm have, among them a"


def test_calls_that_launch_more_than_usual_or_other_kernels_stand_and_are_listed(bench: Bench) -> None:
    usual, more = bench.call("a", 2000), bench.call("a", 2000, 2000)
    other = TimedCall(arm="a", launch=lambda: bench.cupti.launch("b", 900))

    samples = bench.timer.measure([usual, usual, more, other, usual])

    assert [s.span_ns for s in samples] == [2000, 2000, 4000, 900, 2000]
    assert bench.timer.ledger.kernels == {"a": ((("a", 1),), (("a", 2),), (("b", 1),))}


def test_what_an_arm_usually_launches_is_learned_anew_in_each_row(bench: Bench) -> None:
    bench.timer.measure([bench.call("a", 2000, 2000)])
    bench.timer.start_row("another")

    assert bench.timer.measure([bench.call("a", 2000)])[0].span_ns == 2000


def test_a_call_on_another_stream_that_begins_within_its_flush_has_no_time(bench: Bench) -> None:
    bench.cupti.report = only("b", lambda one: dataclasses.replace(one, start=one.start - 1))

    samples = bench.timer.measure([bench.call(arm, 500) for arm in "abc"])

    assert [s.reason for s in samples] == ["", "overlaps a flush: it began 1 ns before its flush was over", ""]


def test_a_call_on_another_stream_that_runs_into_the_next_flush_has_no_time(bench: Bench) -> None:
    bench.cupti.report = only("ac", lambda one: dataclasses.replace(one, end=one.end + 10_000))

    samples = bench.timer.measure([bench.call(arm, 500) for arm in "abc"])

    # The last call has no flush behind it.
    assert [bool(s.reason) for s in samples] == [True, False, False]
    assert re.fullmatch(r"overlaps a flush: it ran on for \d+ ns after the next flush had begun", samples[0].reason)
    assert samples[2].span_ns == 10_500


def test_kernels_launched_through_the_driver_api_are_timed(bench: Bench) -> None:
    assert bench.timer.measure([bench.call("a", 500, api="driver")])[0].span_ns == 500


def test_launches_outside_of_a_window_belong_to_no_call(bench: Bench) -> None:
    bench.timer.measure([bench.call("a", 500)])
    bench.cupti.launch("checker", 9000)

    assert bench.timer.measure([bench.call("a", 500)])[0].span_ns == 500
    assert bench.timer.ledger.records.orphans == 0


def test_a_call_with_a_record_of_zeros_has_no_time_and_the_others_do(bench: Bench) -> None:
    calls = [bench.call(arm, 500) for arm in "abc"]
    bench.timer.measure(calls)
    bench.cupti.report = only("b", zeroed)

    samples = bench.timer.measure(calls)
    spans = [s.span_ns for s in samples]

    assert (spans[0], math.isnan(spans[1]), spans[2]) == (500, True, 500)
    assert [s.reason for s in samples] == ["", "zero timestamp: 1 of its 1 records", ""]
    assert bench.timer.ledger.records.zero == 1


def test_a_call_with_records_from_before_the_window_has_no_time(bench: Bench) -> None:
    bench.cupti.report = only("b", hours_early)

    samples = bench.timer.measure([bench.call("a", 500), bench.call("b", 500)])

    assert [math.isnan(s.span_ns) for s in samples] == [False, True]


def test_a_call_is_not_cold_when_its_flush_was_not_seen(bench: Bench) -> None:
    bench.cupti.report = only(["flush"], lambda launched: None)

    sample = bench.timer.measure([bench.call("a", 500)])[0]

    assert math.isnan(sample.span_ns)
    assert sample.reason.startswith("its flush: lost: its launch was traced")


def test_dropped_records_refuse_the_whole_window(bench: Bench) -> None:
    calls = [bench.call("a", 500), bench.call("b", 500)]
    bench.timer.measure(calls)

    def drop() -> None:
        bench.cupti.dropped = 2

    samples = bench.timer.measure([*calls, TimedCall(arm="a", launch=drop)])

    assert all(math.isnan(s.span_ns) for s in samples)
    assert bench.timer.ledger.records.dropped == 2


def test_an_unreadable_drop_counter_refuses_the_whole_window(bench: Bench) -> None:
    bench.cupti.dropped = None

    samples = bench.timer.measure([bench.call("a", 500)])

    assert math.isnan(samples[0].span_ns)
    assert samples[0].reason.startswith("cannot tell")


def test_work_of_another_thread_is_blamed_on_the_call_in_whose_time_it_ran(bench: Bench) -> None:
    calls = [bench.call("a", 500), bench.call("b", 500, api="thread"), bench.call("c", 500)]
    samples = bench.timer.measure(calls)

    assert [math.isnan(s.span_ns) for s in samples] == [False, True, False]
    assert samples[1].reason == "1 records without an id ran in its time, the first b"


def test_a_call_that_launches_nothing_says_so(bench: Bench) -> None:
    (sample,) = bench.timer.measure([bench.call("a")])

    assert "launched nothing" in sample.reason


def test_a_call_that_raises_leaves_no_id_behind_and_the_next_window_is_whole(bench: Bench) -> None:
    def fails() -> None:
        bench.cupti.launch("half", 500)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        bench.timer.measure([TimedCall(arm="a", launch=fails)])

    assert bench.timer.measure([bench.call("b", 500)])[0].span_ns == 500
    assert bench.timer.ledger.records.orphans == 0


class Probe:
    def __init__(self) -> None:
        self.bench: Bench | None = None
        self.resolved: list[tuple[int, int]] = []

    def read(self) -> object:
        assert self.bench is not None
        self.bench.cupti.launch("clock probe", 100)
        return self.bench.cupti._correlation

    def clock_mhz(self, before: int, after: int) -> int | None:
        assert self.bench is not None
        assert self.bench.cupti.log[-1] == "activity_get_num_dropped_records", "resolved before the device was done"
        self.resolved.append((before, after))
        return 1980


def test_a_clock_probe_runs_around_each_call_and_is_not_part_of_it() -> None:
    probe = Probe()
    bench = Bench(probe)
    probe.bench = bench

    sample = bench.timer.measure([bench.call("a", 500, 700)])[0]

    assert (sample.span_ns, sample.clock_mhz) == (1200, 1980)
    before, after = probe.resolved[-1]
    assert after - before == 3  # the call's two kernels between
    assert bench.timer.ledger.records == Ledger(seen=10, attributed=4, reserved=6)


def test_an_arm_is_covered_in_full_until_it_is_calibrated_and_then_by_what_it_needs(bench: Bench) -> None:
    many = bench.call("loop", *[1000] * 100, enqueue_ns=500_000)
    one = bench.call("one", 2_000_000, enqueue_ns=500_000)

    bench.timer.measure([many, one])

    # Calibration of each, then the group: 100 kernels of 1 us behind launches of 5 us need a wait, a single one none.
    # It waits as long all the same: rest would give one arm a higher clock than the other.
    assert bench.gpu.covers[-4:] == [750_000, 750_000, *2 * [bench.timer.ledger.cover_ns["loop"]]]
    assert bench.timer.ledger.cover_ns == {"loop": 750_000 - 99_000, "one": 0}


def test_an_arm_whose_calibration_is_refused_stays_covered_in_full(bench: Bench) -> None:
    bench.cupti.report = only("a", zeroed)
    bench.timer.measure([bench.call("a", 1000, 1000, enqueue_ns=40_000)])

    assert bench.timer.ledger.cover_ns == {}
    assert bench.gpu.covers[-2:] == [60_000, 60_000]


def test_with_its_cover_a_loop_has_no_gaps_and_without_it_it_times_the_host(bench: Bench) -> None:
    kernels = [1000] * 100
    uncovered = bench.call("believed fast", *kernels, enqueue_ns=0)
    covered = bench.call("loop", *kernels, enqueue_ns=100 * 5000)

    slow, fast = bench.timer.measure([uncovered, covered])

    assert slow.span_ns > 400_000
    assert (fast.span_ns, fast.busy_ns) == (100_000, 100_000)


def records(durations_ns: list[int]) -> tuple[Record, ...]:
    made, now = [], 1
    for ns in durations_ns:
        made.append(Record(kind=Kind.KERNEL, correlation_id=1, start_ns=now, end_ns=now + ns))
        now += ns
    return tuple(made)


@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=40), st.integers(0, 400_000))
def test_a_covered_call_never_waits_for_a_steady_host(durations_ns: list[int], enqueue_ns: int) -> None:
    cover = cover_ns(enqueue_ns, records(durations_ns))

    pace = enqueue_ns / len(durations_ns)
    free_at: float = max(cover, pace)  # the first kernel may wait: the span begins with it
    for launched, ns in enumerate(durations_ns, start=1):
        assert launched * pace <= free_at + 1e-6
        free_at += ns
    assert 0 <= cover <= math.ceil(COVER * enqueue_ns)


def lose(name: str, *which: int) -> Callable[[Launched], Launched | None]:
    """Return a report that loses the records of these launches of ``name``, from 1."""
    count = itertools.count(1)
    return lambda launched: None if launched.name == name and next(count) in which else launched


def group(bench: Bench, report: Callable[[], None], **arms: str) -> Measured:
    out = torch.empty(1)

    def prepared(arm: str, api: str) -> Prepared:
        def launch() -> torch.Tensor:
            bench.cupti.launch(arm, 1000, api=api)
            return out

        return Prepared(launch=launch, out=out)

    report()
    return measure(
        {arm: prepared(arm, api) for arm, api in arms.items()},
        Boost(rounds=1),
        Session(timer=bench.timer, device=bench.gpu, groups=6),
        floor_ns=1,
        case_id="row",
    )


def test_when_cupti_fails_for_one_arm_of_three_that_arm_has_no_time_by_any_clock(bench: Bench) -> None:
    # tile-ai/TileOPs#1792: no fallback to events in silence.
    def break_b() -> None:
        bench.cupti.report = only("b", zeroed)

    row = group(bench, break_b, a="runtime", b="driver", c="runtime")

    assert set(row.failures) == {"b"}
    assert row.failures["b"].endswith("0 accepted: zero timestamp: 1 of its 1 records")
    assert set(row.samples.arm) == {"a", "c"}
    assert len(row.discarded) == 7
    assert set(row.samples.span_ns) == set(row.samples.busy_ns) == {1000}


def test_a_record_lost_once_costs_its_group_and_nothing_else(bench: Bench) -> None:
    seen = 0

    def lose_one() -> None:
        def report(launched):  # type: ignore[no-untyped-def]
            nonlocal seen
            seen += launched.name == "a"
            return None if launched.name == "a" and seen == 7 else launched

        bench.cupti.report = report

    row = group(bench, lose_one, a="runtime", b="driver")

    assert row.failures == {}
    assert len(row.discarded) == 1
    assert len(row.samples) == 12
    assert row.records["lost"] == 1
    assert row.kernels == {"a": (("a x 1",),), "b": (("b x 1",),)}


def test_a_group_with_a_call_that_lost_some_of_its_records_is_measured_again(bench: Bench) -> None:
    out = torch.empty(1)

    def launch() -> torch.Tensor:
        bench.cupti.launch("a", 1000)
        bench.cupti.launch("a", 1000)
        return out

    # Four calls warm up untraced and one calibrates: the eleventh launch is the first of the first group.
    bench.cupti.report = lose("a", 12)
    session = Session(timer=bench.timer, device=bench.gpu, groups=6)

    row = measure({"a": Prepared(launch=launch, out=out)}, Boost(rounds=1), session, floor_ns=1, case_id="row")

    assert [d.reason for d in row.discarded] == ["lost: 1 of the 2 records that calls of its arm have, among them a"]
    assert set(row.samples.span_ns) == {2000}
    assert row.records["lost"] == 1


def installed(monkeypatch: pytest.MonkeyPatch, cupti: FakeCupti) -> None:
    monkeypatch.setattr(cupti_session, "version", lambda name: PINNED[name])
    for variable in cupti_session.PROFILER_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    package = ModuleType("cupti")
    package.cupti = cupti  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupti", package)


def cuda_gpu(cupti: FakeCupti) -> FakeGpu:
    gpu = FakeGpu(cupti)
    gpu.machine = dataclasses.replace(machine(product="NVIDIA H200"), device="cuda")
    return gpu


def test_the_timer_is_found_by_name_and_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    closing: list[Callable[[], None]] = []
    monkeypatch.setattr("atexit.register", closing.append)
    cupti = FakeCupti()
    installed(monkeypatch, cupti)
    monkeypatch.setattr("harness.timers.cupti.Probe", lambda device: None)
    monkeypatch.setattr("harness.timers.cupti.RingClock", lambda probe, device: None)

    timer = timers.open_timer("cupti", cuda_gpu(cupti))
    samples = timer.measure([TimedCall(arm="a", launch=lambda: cupti.launch("a", 500))])
    for close in closing:
        close()

    assert timer.heading == "CUPTI GPU time of one call, cold L2, queue pre-filled where the host is slower"
    assert samples[0].span_ns == 500
    assert cupti.is_disabled


def test_an_argument_is_refused_before_anything_is_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = FakeCupti()
    installed(monkeypatch, cupti)

    with pytest.raises(UsageError, match="--timer cupti takes no argument, got 'x'"):
        timers.open_timer("cupti:x", cuda_gpu(cupti))
    assert "activity_enable" not in cupti.log


def test_without_cupti_the_error_names_the_event_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cupti_session, "PINNED", {"no-such-cupti": "1.0"})

    with pytest.raises(UsageError, match=r"--timer cupti cannot be used here: .* not installed.*--timer cuda_event"):
        timers.open_timer("cupti", cuda_gpu(FakeCupti()))


def test_a_machine_without_a_gpu_is_told_the_cpu_timer() -> None:
    assert timers.why_not("cupti", "cpu") == "it needs a CUDA device; use --timer cpu"
    with pytest.raises(UsageError, match="--timer cupti cannot be used here: it needs a CUDA device"):
        timers.open_timer("cupti", QuietDevice())
