"""A machine's rates: what is timed, by whose timer, what cannot become a rate."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from harness.devices import Cpu
from harness.errors import MeasurementError
from harness.machine import read_machine
from harness.model.run import Rates
from harness.model.sample import Sample
from harness.monitor import Monitor
from harness.protocols.paired_groups import Session
from harness.protocols.rates import WORK, Work, measure_rates
from harness.timers import TimedCall
from harness.timers.cpu import CpuTimer
from tests.bench import FunctionTimer, QuietDevice, machine

MIB = 1 << 20
PER_DEVICE = dict(WORK)
DENSE_SIZE = 128
DENSE_FLOPS = 2 * DENSE_SIZE**3


def test_what_is_measured_on_each_kind_of_device() -> None:
    assert PER_DEVICE["cpu"] == Work(read_caches=4, dense_size=1024)
    assert PER_DEVICE["cuda"] == Work(read_caches=32, dense_size=8192)


@pytest.fixture(autouse=True)
def a_small_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU without BF16 instructions takes seconds for one of the size that is measured."""
    monkeypatch.setitem(WORK, "cpu", replace(WORK["cpu"], dense_size=DENSE_SIZE))


class SpyTimer(FunctionTimer):
    """Remembers the rows and calls that it was given, and what each call returned."""

    def __init__(self, span_ns: Callable[[int, str], float]) -> None:
        super().__init__(span_ns)
        self.rows: list[str] = []
        self.windows: list[tuple[TimedCall, ...]] = []

    def start_row(self, case_id: str) -> None:
        super().start_row(case_id)
        self.rows.append(case_id)

    def measure(self, calls: Sequence[TimedCall]) -> list[Sample]:
        self.windows.append(tuple(calls))
        return super().measure(calls)


def measured(timer: FunctionTimer, device: QuietDevice | None = None, monitor: Monitor | None = None) -> Rates:
    session = Session(timer=timer, device=device or QuietDevice(), groups=99, monitor=monitor)
    return measure_rates(session, machine=2, seed=0)


def test_each_rate_is_its_amount_over_the_median_of_eight_groups_of_three_calls() -> None:
    # Three calls a group, whose median is the group's: 8 groups of 1000 + 10 * group.
    timer = SpyTimer(lambda index, arm: (1 if arm == "plain_read" else 7) * (1000 + 10 * (index // 3)))

    rates = measured(timer)

    assert rates.machine == 2
    assert rates.plain_read.samples.span_ns == (1000, 1010, 1020, 1030, 1040, 1050, 1060, 1070)
    assert rates.plain_read.samples.calls == (3,) * 8
    assert rates.plain_read.amount == 4 * MIB
    assert rates.plain_read.per_s == 1e9 * 4 * MIB / 1035
    assert set(rates.dense_mm.samples.arm) == {"dense_mm"}
    assert rates.dense_mm.amount == DENSE_FLOPS
    assert rates.dense_mm.per_s == 1e9 * DENSE_FLOPS / 7245


def test_they_are_timed_as_rows_in_boost_by_the_sessions_timer_one_after_the_other() -> None:
    timer = SpyTimer(lambda index, arm: 10**6)

    measured(timer)

    assert timer.rows == ["boost rate plain_read", "boost rate dense_mm"]
    assert [{call.arm for call in window} for window in timer.windows] == [{"plain_read"}] * 8 + [{"dense_mm"}] * 8
    assert all(call.gap_ns > 0 for window in timer.windows for call in window)


def test_the_read_reads_its_whole_buffer_and_the_product_is_that_of_the_seeds_normal_factors() -> None:
    timer = SpyTimer(lambda index, arm: 10**6)
    device = Cpu(machine())

    measure_rates(Session(timer=timer, device=device, groups=6), machine=0, seed=5)

    read, product = (timer.windows[place][0].launch() for place in (0, -1))
    assert isinstance(read, torch.Tensor)
    assert isinstance(product, torch.Tensor)
    generator = torch.Generator().manual_seed(5)
    a, b = (torch.empty(DENSE_SIZE, DENSE_SIZE, dtype=torch.bfloat16).normal_(generator=generator) for _ in range(2))
    assert int(read) == MIB  # 4 MiB of ones in FP32
    assert torch.equal(product, torch.mm(a, b))
    assert float(product.float().std()) == pytest.approx(math.sqrt(DENSE_SIZE), rel=0.05)


def test_a_cpu_has_both_rates_by_its_own_timer() -> None:
    device = Cpu(replace(read_machine("cpu"), cache_bytes=8 * MIB))
    timer = CpuTimer(device, clock=time.perf_counter_ns, sleep=time.sleep)

    rates = measure_rates(Session(timer=timer, device=device, groups=6), machine=0, seed=0)

    assert rates.plain_read.amount == 32 * MIB
    assert min(rates.plain_read.samples.span_ns) >= 1
    assert device.machine.peak_flops is not None
    assert 0 < rates.dense_mm.per_s <= device.machine.peak_flops


def test_a_sample_that_can_be_no_time_is_measured_again_and_stays_in_the_record() -> None:
    rates = measured(FunctionTimer(lambda index, arm: math.nan if (index, arm) == (4, "dense_mm") else 500))

    (thrown,) = rates.dense_mm.discarded
    assert (thrown.group, thrown.arm, thrown.reason) == (1, "dense_mm", "span_ns must be finite, got nan")
    assert len(rates.dense_mm.samples) == 8
    assert rates.plain_read.discarded == ()


@pytest.mark.parametrize(
    ("timer", "device", "message"),
    [
        (
            FunctionTimer(lambda index, arm: 0 if arm == "plain_read" else 500),
            QuietDevice(),
            "--floors: plain_read has no time: 9 groups discarded, 0 accepted: span_ns must be at least 1, got 0;"
            " without its rate there is no floor, so mend that or leave out --floors",
        ),
        (
            FunctionTimer(lambda index, arm: 500),
            QuietDevice(facts=machine(peak_flops=1e12)),
            "--floors: dense_mm has no time: took 500 ns, below the 4194 ns that",
        ),
        (
            FunctionTimer(lambda index, arm: 500),
            QuietDevice(facts=replace(machine(), peak_bytes_per_s=1e9)),
            "--floors: plain_read has no time: took 500 ns, below the 4194304 ns that",
        ),
        (
            FunctionTimer(lambda index, arm: 500),
            QuietDevice(free=4 * MIB - 1),
            "--floors: plain_read needs 0.00 GiB of device memory, 0.00 GiB are free; free some, or leave out --floors",
        ),
        (
            FunctionTimer(lambda index, arm: 500),
            QuietDevice(facts=replace(machine(), cache_bytes=1 << 14), free=80 << 10),
            "--floors: dense_mm needs 0.00 GiB of device memory, 0.00 GiB are free",
        ),
    ],
    ids=["no time", "more FLOPs than the peak", "more bytes than the peak", "no room to read", "no room to multiply"],
)
def test_what_cannot_become_a_rate_says_why(timer: FunctionTimer, device: QuietDevice, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        measured(timer, device)
