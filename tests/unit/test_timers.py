import json
import math
from pathlib import Path

import pytest

from harness import timers
from harness.errors import UnknownName, UsageError
from harness.timers import TimedCall
from harness.timers.cpu import CpuTimer
from harness.timers.cuda_event import CudaEventTimer
from tests.bench import QuietDevice


def test_timers_are_their_files() -> None:
    assert {"cpu", "cuda_event", "scripted"} <= set(timers.names())


def test_an_unknown_timer_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="timer 'stopwatch' is not known; known: cpu, "):
        timers.open_timer("stopwatch", QuietDevice())


def test_a_gpu_timer_is_refused_without_a_gpu_and_none_takes_its_place() -> None:
    assert timers.why_not("cuda_event", "cpu") == "it needs a CUDA device; use --timer cpu"
    with pytest.raises(UsageError, match="--timer cuda_event cannot be used here: it needs a CUDA device"):
        timers.open_timer("cuda_event", QuietDevice())


def test_the_cpu_timer_takes_no_argument() -> None:
    with pytest.raises(UsageError, match="--timer cpu takes no argument, got 'fast'"):
        timers.open_timer("cpu:fast", QuietDevice())


def test_the_cpu_timer_flushes_before_and_reads_the_clock_around_the_call() -> None:
    log: list[str] = []
    ticks = iter([100, 350, 1000, 1007])

    class Device(QuietDevice):
        def flush(self, cover_ns: int = 0) -> None:
            log.append("flush")

    def clock() -> int:
        log.append("clock")
        return next(ticks)

    timer = CpuTimer(Device(), clock=clock, sleep=lambda s: log.append(f"sleep {s:g}"))
    call = TimedCall(arm="a", launch=lambda: log.append("call"), gap_ns=2_000_000)

    samples = timer.measure([call, call])

    assert [s.span_ns for s in samples] == [250, 7]
    assert log == ["sleep 0.002", "flush", "clock", "call", "clock"] * 2


def scripted(tmp_path: Path, text: str):  # type: ignore[no-untyped-def]
    path = tmp_path / "script.json"
    path.write_text(text)
    return timers.open_timer(f"scripted:{path}", QuietDevice())


def test_scripted_durations_replay_in_order_and_start_again_with_every_row(tmp_path: Path) -> None:
    timer = scripted(tmp_path, json.dumps({"a": [1, 2, 3], "b": [10]}))
    a, b = TimedCall(arm="a", launch=lambda: None), TimedCall(arm="b", launch=lambda: None)

    timer.start_row("one")
    first = [s.span_ns for s in timer.measure([a, b, a, a, a, b])]
    timer.start_row("two")
    second = [s.span_ns for s in timer.measure([a])]

    assert first == [1, 10, 2, 3, 1, 10]
    assert second == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "must hold an object arm -> durations"),
        ("{", "is no JSON"),
        ('{"a": []}', "a must be a list of at least one duration"),
        ('{"a": ["x"]}', "a: a duration must be a number of ns, got 'x'"),
        ('{"a": [true]}', "got True"),
    ],
)
def test_a_script_of_another_form_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        scripted(tmp_path, text)


def test_a_script_without_the_arm_names_those_it_has(tmp_path: Path) -> None:
    timer = scripted(tmp_path, '{"a": [1]}')
    with pytest.raises(UsageError, match="the script has no arm 'c'; it has a"):
        timer.measure([TimedCall(arm="c", launch=lambda: None)])


def test_scripted_needs_a_file_that_exists(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--timer scripted needs a file"):
        timers.open_timer("scripted", QuietDevice())
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        timers.open_timer(f"scripted:{tmp_path / 'none.json'}", QuietDevice())


class FakeQueue:
    """A device that is as far behind as ``behind`` says, and events that know it."""

    def __init__(self, behind: list[bool]) -> None:
        self.behind = behind
        self.covers: list[int] = []
        self.log: list[str] = []

    def flush(self, cover_ns: int = 0) -> None:
        self.covers.append(cover_ns)
        self.log.append("flush")

    def synchronize(self) -> None:
        self.log.append("wait")

    def event(self) -> "FakeEvent":
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, queue: FakeQueue) -> None:
        self.queue = queue

    def record(self) -> None:
        self.queue.log.append("event")

    def query(self) -> bool:
        return not self.queue.behind.pop(0)

    def elapsed_time(self, end: "FakeEvent") -> float:
        return 1.2345678


def test_events_stand_right_around_the_call_after_idle_and_flush() -> None:
    queue = FakeQueue([True])
    timer = CudaEventTimer(queue, event=queue.event, sleep=lambda s: queue.log.append(f"idle {s:g}"))  # type: ignore[arg-type]
    call = TimedCall(arm="a", launch=lambda: queue.log.append("call"), gap_ns=3_000_000, enqueue_ns=1000)

    (sample,) = timer.measure([call])

    assert queue.log == ["wait", "idle 0.003", "flush", "event", "call", "event", "wait"]
    assert sample.span_ns == 1_234_568
    assert queue.covers == [301_500]


def test_back_to_back_calls_do_not_wait_for_the_device() -> None:
    queue = FakeQueue([True, True])
    timer = CudaEventTimer(queue, event=queue.event)  # type: ignore[arg-type]

    timer.measure([TimedCall(arm="a", launch=lambda: None)] * 2)

    assert queue.log.count("wait") == 1


def test_a_call_before_which_the_queue_ran_dry_is_no_sample_and_the_next_is_covered_for_longer() -> None:
    queue = FakeQueue([False, True])
    timer = CudaEventTimer(queue, event=queue.event)  # type: ignore[arg-type]
    call = TimedCall(arm="a", launch=lambda: None, enqueue_ns=1000)

    (first,) = timer.measure([call])
    (second,) = timer.measure([call])

    assert math.isnan(first.span_ns)
    assert first.reason.startswith("the device was idle before the call was enqueued")
    assert second.span_ns == 1_234_568
    assert queue.covers == [301_500, 603_000]
