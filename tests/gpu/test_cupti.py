"""CUPTI on a GPU. One session serves all tests of this file: a process has only one, and starts no other profiler."""

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import torch

from harness import arms, cupti_session, drop_proof
from harness.clock import RingClock
from harness.cupti_session import CuptiSession, Role, external_id
from harness.devices import Device, open_device
from harness.model.case import Case
from harness.model.shape import Shape
from harness.operands import make_operands
from harness.probe import ClockProbe, Spin
from harness.timers import TimedCall
from harness.timers.cupti import CuptiTimer
from harness.trace import Attribution, Fault, Kind, Refused, Timed, attribute

pytestmark = pytest.mark.gpu

CALL, FLUSH = external_id(Role.CALL), external_id(Role.FLUSH)


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("cuda")


@pytest.fixture(scope="module")
def session(device: Device) -> Iterator[CuptiSession]:
    assert cupti_session.why_not(os.environ) is None
    with CuptiSession(cupti_session.load(), synchronize=device.synchronize, probe=device.flush) as opened:
        print(f"start-up probes: {opened.startup_probes}; APIs that stay traced: {opened.unfiltered or 'none'}")
        yield opened


@pytest.fixture(scope="module")
def x(session: CuptiSession) -> torch.Tensor:
    return torch.ones(1 << 20, device="cuda")


def traced(session: CuptiSession, device: Device, launch: Callable[[], object]) -> Attribution:
    session.start()
    with session.label(FLUSH):
        # Long enough for the host to enqueue what follows: from an empty queue, events would time the host.
        device.flush(cover_ns=1_000_000)
    with session.label(CALL):
        launch()
    trace = session.stop()
    return attribute(trace.records, trace.external, [CALL], trace.window, dropped=trace.dropped, reserved_ids=[FLUSH])


def timed(session: CuptiSession, device: Device, launch: Callable[[], object]) -> Timed:
    """Return the call's records; everything else in the window must be accounted for too."""
    launch()
    found = traced(session, device, launch)
    call = found.calls[CALL]
    assert isinstance(call, Timed), call
    assert isinstance(found.reserved[FLUSH], Timed), found.reserved[FLUSH]
    assert found.orphans == ()
    assert found.ledger.dropped == 0
    assert found.ledger.seen == found.ledger.attributed + found.ledger.reserved
    return call


def prepared(arm: str, groups: int, device: Device, rows: int = 1024, op: str = "fwd") -> Callable[[], object]:
    sizes = (rows,) * groups
    shape = Shape(
        name="test", row_class="adhoc", N=2048, K=2048, group_sizes=sizes, distribution="given", source="a test"
    )
    case = Case(suite="adhoc", op=op, shape=shape, out_dtype="bf16")
    operands = make_operands(case, seed=0, device=device.torch_device)
    return arms.load(arm).prepare(case, operands).launch


@pytest.mark.parametrize("ns", [20_000, 200_000, 2_000_000])
def test_a_kernel_of_known_duration_takes_it_by_cupti_and_by_events(
    session: CuptiSession, device: Device, ns: int
) -> None:
    spin = Spin(device.torch_device)
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def launch() -> None:
        before.record()
        spin.launch(ns)
        after.record()

    span = timed(session, device, launch).span_ns

    by_events = round(1e6 * before.elapsed_time(after))
    print(f"spin {ns} ns: CUPTI {span}, events {by_events}")
    # The kernel reads a timer that steps by up to 1 us, and a record begins before the first instruction. Events add
    # the launch of the kernel and their own step of half a microsecond.
    assert ns - 2_000 <= span <= ns + 10_000
    assert span - 2_000 <= by_events <= span + 20_000


@pytest.mark.parametrize("groups", [1, 8, 32])
def test_a_cublas_loop_is_one_kernel_a_group(session: CuptiSession, device: Device, groups: int) -> None:
    call = timed(session, device, prepared("cublas_loop", groups, device))

    kernels = [r for r in call.records if r.kind is Kind.KERNEL]
    print(f"loop of {groups}: {len(kernels)} kernels, {len(call.records) - len(kernels)} memsets or copies")
    assert len(kernels) == groups
    assert call.busy_ns <= call.span_ns


def test_torch_grouped_mm_is_two_kernels(session: CuptiSession, device: Device) -> None:
    call = timed(session, device, prepared("torch_grouped_mm", 8, device))

    assert [r.kind for r in call.records] == [Kind.KERNEL] * 2, call.names


def kernels_of(call: Timed) -> Counter[str]:
    return Counter(record.name for record in call.records if record.kind is Kind.KERNEL)


def test_with_early_stop_our_step_is_three_kernels_and_without_its_forward_is_launched_again(
    session: CuptiSession, device: Device
) -> None:
    forward, with_stop, without = (
        kernels_of(timed(session, device, prepared("cake_det", 8, device, op=op))) for op in ("fwd", "ckpt ES", "ckpt")
    )

    assert forward.total() == 1
    assert with_stop.total() == 3
    assert without == with_stop + forward


@pytest.mark.parametrize("arm", ["torch_grouped_mm", "cublas_loop_autograd"])
def test_every_launch_of_a_baselines_step_carries_the_id_of_its_call(
    session: CuptiSession, device: Device, arm: str
) -> None:
    # timed() refuses a window with a launch that is nobody's.
    with_stop, without = (
        kernels_of(timed(session, device, prepared(arm, 8, device, op=op))) for op in ("ckpt ES", "ckpt")
    )

    assert without.total() > with_stop.total() >= 6


def test_a_memset_and_a_copy_are_part_of_their_call(session: CuptiSession, device: Device, x: torch.Tensor) -> None:
    memset = ctypes.CDLL("libcuda.so.1").cuMemsetD8Async
    memset.argtypes = (ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p)
    y = torch.empty_like(x)

    def launch() -> None:
        assert memset(x.data_ptr(), 0, 4096, torch.cuda.current_stream().cuda_stream) == 0
        y.copy_(x)

    call = timed(session, device, launch)

    assert [(r.kind, r.bytes) for r in call.records] == [(Kind.MEMSET, 4096), (Kind.MEMCPY, 4 << 20)]


def test_the_nodes_of_a_graph_belong_to_the_call_that_launched_it(
    session: CuptiSession, device: Device, x: torch.Tensor
) -> None:
    y, graph = torch.zeros_like(x), torch.cuda.CUDAGraph()
    torch.add(x, 1, out=y)
    with torch.cuda.graph(graph):
        for _ in range(5):
            torch.add(x, 1, out=y)

    for _ in range(3):
        call = timed(session, device, graph.replay)

        assert len(call.records) == 5
        assert len({r.graph_node for r in call.records}) == 5
        assert len({r.correlation_id for r in call.records}) == 1


def test_a_launch_from_another_thread_is_an_orphan(session: CuptiSession, device: Device, x: torch.Tensor) -> None:
    def launch() -> None:
        thread = threading.Thread(target=lambda: x.add_(1))
        thread.start()
        thread.join()

    found = traced(session, device, launch)

    call = found.calls[CALL]
    assert isinstance(call, Refused)
    assert call.fault is Fault.LAUNCHED_NOTHING
    assert len(found.orphans) == 1


def test_the_timer_gives_every_call_of_a_group_a_time_and_refuses_none(session: CuptiSession, device: Device) -> None:
    # As in runs, a probe stands between a flush and a call, whose first kernel may begin while its predecessor ends.
    timer = CuptiTimer(device, session, probe=RingClock(ClockProbe(device.torch_device), device.torch_device))
    timer.start_row("test")
    # 128 groups of 128 rows: the host is slower than the device, so that the queue must be filled.
    calls = [
        TimedCall(arm=arm, launch=prepared(arm, 128, device, rows=128), gap_ns=1_000_000, enqueue_ns=1_500_000)
        for arm in ("torch_grouped_mm", "cublas_loop")
    ]

    samples = [timer.measure(calls) for _ in range(6)]

    for group in samples:
        print([(s.span_ns, s.busy_ns) for s in group])
        assert all(s.busy_ns is not None and 0 < s.busy_ns <= s.span_ns for s in group)
    print(timer.ledger.cover_ns, timer.ledger.kernels)
    assert [s.reason for group in samples for s in group] == [""] * 12
    assert timer.ledger.records.seen == timer.ledger.records.attributed + timer.ledger.records.reserved
    assert [len(kernels) for kernels in timer.ledger.kernels.values()] == [1, 1]


def test_the_drop_counter_counts_when_records_are_dropped() -> None:
    # In a process of its own: a collector without room for records is of no further use, and may hang.
    proof = drop_proof.prove()

    print(proof)
    assert proof.failure == ""
    assert proof.proved
