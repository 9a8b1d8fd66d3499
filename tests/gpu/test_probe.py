"""The probe, the flush and the spin on a GPU."""

from itertools import pairwise

import pytest
import torch

from harness.probe import ClockProbe, ReadFlush, Spin, clock_mhz

pytestmark = pytest.mark.gpu

VECTOR_WORDS = 4


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def probes(probe: ClockProbe, count: int) -> list[torch.Tensor]:
    return list(torch.zeros(count, 2, probe.slots, dtype=torch.int64, device=probe.device).unbind(0))


def test_every_sm_is_probed_once_behind_other_work(device: torch.device) -> None:
    probe = ClockProbe(device)
    x = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    out = probes(probe, 50)
    for one in out:
        x @ x
        probe.record(one)

    assert [int((one != 0).sum()) for one in out] == 50 * [2 * probe.slots]


def test_the_clock_under_load_is_one_that_the_device_can_have(device: torch.device) -> None:
    probe = ClockProbe(device)
    x = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    before, after = probes(probe, 2)
    for _ in range(20):
        x @ x
    probe.record(before)
    x @ x
    probe.record(after)

    mhz = clock_mhz(before.cpu(), after.cpu())

    print(f"SM clock under load: {mhz} MHz")
    assert 200 <= mhz <= 2100


def test_a_probe_writes_its_own_tensor_alone(device: torch.device) -> None:
    probe = ClockProbe(device)
    before, out, after = probes(probe, 3)

    probe.record(out)

    assert int((before != 0).sum()) == int((after != 0).sum()) == 0


@pytest.mark.parametrize(
    "out",
    [
        lambda slots: torch.zeros(2, slots, dtype=torch.int32, device="cuda"),
        lambda slots: torch.zeros(2, slots - 1, dtype=torch.int64, device="cuda"),
        lambda slots: torch.zeros(2, slots, dtype=torch.int64),
        lambda slots: torch.zeros(slots, 2, dtype=torch.int64, device="cuda").T,
    ],
    ids=["int32", "too short", "on the host", "not contiguous"],
)
def test_a_tensor_that_a_probe_cannot_fill_is_refused(device: torch.device, out: object) -> None:
    probe = ClockProbe(device)

    with pytest.raises(ValueError, match="out must be"):
        probe.record(out(probe.slots))  # type: ignore[operator]


def test_a_spin_lasts_what_it_is_told(device: torch.device) -> None:
    spin = Spin(device)
    spin.launch(1)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(12)]
    spin.launch(5_000_000)  # the queue fills meanwhile, so that the events enclose the device's work alone
    events[0].record()
    for event in events[1:]:
        spin.launch(1_000_000)
        event.record()
    torch.cuda.synchronize()

    us = [1000 * first.elapsed_time(last) for first, last in pairwise(events)]

    print("spins of 1000 us by events:", [round(t, 2) for t in us])
    # No shorter than told; longer by the launch of the next spin, some 4.5 us of each event's distance.
    assert all(999 <= t <= 1010 for t in us)


def test_a_stream_can_be_named(device: torch.device) -> None:
    probe, spin = ClockProbe(device), Spin(device)
    (out,) = probes(probe, 1)
    spin.launch(0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())

    spin.launch(20_000_000, side.cuda_stream)
    probe.record(out, side.cuda_stream)

    assert not side.query()
    assert torch.cuda.current_stream().query()
    side.synchronize()
    assert int((out != 0).sum()) == 2 * probe.slots


def test_a_flush_reads_every_vector_once(device: torch.device) -> None:
    flush = ReadFlush(device, 16)
    flush.launch()
    threads = 4 * 512 * torch.cuda.get_device_properties(device).multi_processor_count
    # Eight loads of the unrolled loop, two of the loop behind it, the last of them by some threads only.
    vectors = 9 * threads + threads // 3
    flush = ReadFlush(device, 16 * vectors)
    words = flush.buffer.view(torch.int32).view(vectors, VECTOR_WORDS)

    for turn in range(10):
        for word in range(VECTOR_WORDS):
            flush.sink.zero_()
            mine = words[turn * threads : (turn + 1) * threads]
            mine[:, word] = 1
            flush.launch()

            # Each thread that meets a single one, once, counts; one that skips it or meets it twice does not.
            assert flush.sink.item() == len(mine)
            mine.zero_()


def test_every_pass_of_a_flush_reads_again(device: torch.device) -> None:
    flush = ReadFlush(device, 1 << 20)
    words = flush.buffer.view(torch.int32)
    words[0] = (2**32 // 3 * 2 + 1) - 2**32  # a third of one: three passes sum to 1 modulo 2**32, one or two do not

    seen = []
    for repeat in (1, 2, 3):
        flush.sink.zero_()
        flush.launch(repeat)
        seen.append(flush.sink.item())

    assert seen == [0, 0, 1]


def test_a_flush_covers_four_times_the_l2_and_writes_nothing(device: torch.device) -> None:
    flush = ReadFlush(device)
    flush.launch(repeat=3)

    assert flush.num_bytes == 4 * torch.cuda.get_device_properties(device).L2_cache_size
    assert int(flush.buffer.max()) == 0
    assert flush.sink.item() == 0


def test_how_fast_a_flush_reads(device: torch.device) -> None:
    flush, spin = ReadFlush(device), Spin(device)
    flush.launch()
    for repeat in (1, 10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        spin.launch(1_000_000)
        start.record()
        flush.launch(repeat)
        end.record()
        torch.cuda.synchronize()
        seconds = start.elapsed_time(end) / 1000
        print(f"flush of {flush.num_bytes} bytes x {repeat}: {1e6 * seconds:.1f} us,", end=" ")
        print(f"{repeat * flush.num_bytes / seconds / 1e12:.2f} TB/s")


def test_all_three_can_be_captured(device: torch.device) -> None:
    probe, flush, spin = ClockProbe(device), ReadFlush(device), Spin(device)
    before, after = probes(probe, 2)
    probe.record(before)
    flush.launch()
    spin.launch(0)
    torch.cuda.synchronize()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        probe.record(before)
        flush.launch(repeat=2)
        spin.launch(200_000)
        probe.record(after)
    graph.replay()

    between_ns = (after[1] - before[1]).min().item()
    assert between_ns >= 200_000
    assert 200 <= clock_mhz(before.cpu(), after.cpu()) <= 2100
