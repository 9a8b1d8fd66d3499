"""How a grouped GEMM is launched: on any stream, without waiting or allocating, in a CUDA graph whose sizes change."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from cake_kernels import grouped_gemm
from cake_kernels.errors import DriverError
from cake_kernels.grouped_gemm.sm90.config import NARROW
from cake_kernels.grouped_gemm.sm90.launch import prepare
from harness.probe import Spin
from tests.gpu.ragged import BF16, DEVICE, OPS, Guarded, Ragged, cuda_only, same_bits

pytestmark = [pytest.mark.gpu, cuda_only]

every_op = pytest.mark.parametrize(("op", "dtype"), OPS, ids=["fwd", "dgrad", "wgrad-bf16", "wgrad-fp32"])

M, N, K, E = 1000, 776, 392, 6
STEPS = (
    (100, 350, 351, 700, 913, 1000),
    (0, 0, 0, 0, 0, 0),  # all empty
    (0, 0, 1000, 1000, 1000, 1000),  # all rows in one
    (1, 2, 3, 4, 5, 6),  # most rows are nobody's
    (128, 128, 256, 256, 900, 999),
    (500, 100, 2000, -3, 7, 8),  # out of order and out of range
)


def step(values: tuple[int, ...], seed: int = 0) -> Ragged:
    return Ragged(offs_values=values, M=M, N=N, K=K, seed=seed)


def prepared(problem: Ragged, op: str, out: torch.Tensor) -> grouped_gemm.Prepared:
    a, b = problem.operands(op)
    if op == "wgrad":
        return grouped_gemm.prepare_wgrad(a, b, problem.offs, out_dtype=out.dtype, out=out)
    return {"fwd": grouped_gemm.prepare_forward, "dgrad": grouped_gemm.prepare_dgrad}[op](a, b, problem.offs, out=out)


def public(problem: Ragged, op: str, dtype: torch.dtype) -> torch.Tensor:
    a, b = problem.operands(op)
    if op == "wgrad":
        return grouped_gemm.wgrad(a, b, problem.offs, out_dtype=dtype)
    return {"fwd": grouped_gemm.forward, "dgrad": grouped_gemm.dgrad}[op](a, b, problem.offs)


def change(held: Ragged, new: Ragged, op: str) -> None:
    """Write the values of ``new`` where those of ``held`` are."""
    for old, fresh in zip(held.operands(op), new.operands(op), strict=True):
        old.copy_(fresh)
    held.offs.copy_(new.offs)


def captured(launch: Callable[[], object]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    """Have torch raise where it would wait for the device."""
    set_sync_debug_mode("error")
    try:
        yield
    finally:
        set_sync_debug_mode("default")


def set_sync_debug_mode(mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that this is a prototype
        torch.cuda.set_sync_debug_mode(mode)


@every_op
def test_a_graph_is_captured_once_and_replayed_for_other_sizes_and_values(op, dtype):
    # pytorch/pytorch#146328, deepseek-ai/DeepGEMM#235: sizes that are read on the host cannot change in a graph.
    held = step(STEPS[0])
    out = held.output(op, dtype)
    launch = prepared(held, op, out.inner).launch
    graph = captured(launch)

    for seed, values in enumerate(STEPS):
        new = step(values, seed=seed)
        change(held, new, op)
        out.inner.fill_(torch.nan)
        graph.replay()

        new.assert_right(op, out.inner)
        assert same_bits(out.inner, new.computed(op, dtype))
    out.assert_intact()


@every_op
def test_a_prepared_call_is_right_for_other_sizes_and_values(op, dtype):
    held = step(STEPS[0])
    out = held.output(op, dtype)
    call = prepared(held, op, out.inner)

    for seed, values in enumerate(STEPS):
        new = step(values, seed=seed)
        change(held, new, op)
        out.inner.fill_(torch.nan)

        new.assert_right(op, call.launch())


@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_a_graph_that_accumulates_adds_at_each_replay(dtype):
    problem = step(STEPS[0])
    out = Guarded.randn((E, N, K), dtype, seed=9)
    a, b = problem.operands("wgrad")
    call = grouped_gemm.prepare_wgrad(a, b, problem.offs, out_dtype=dtype, out=out.inner, accumulate=True)
    graph = captured(call.launch)

    for _ in range(2):
        old = out.inner.clone()
        graph.replay()

        problem.assert_right("wgrad", out.inner, old=old)


@every_op
def test_the_public_function_can_be_captured_after_one_call(op, dtype):
    held = step(STEPS[0])
    public(held, op, dtype)
    outs = []
    graph = captured(lambda: outs.append(public(held, op, dtype)))

    new = step(STEPS[4], seed=1)
    change(held, new, op)
    graph.replay()

    new.assert_right(op, outs[0])


def test_a_kernel_that_is_not_loaded_is_refused_inside_a_capture():
    problem = step(STEPS[0])
    out = problem.output("fwd")
    x, w, offs = problem.x, problem.w, problem.offs  # made here, since a capture allows no random numbers
    unseen = replace(NARROW, band=7)
    counter = torch.zeros((), device=DEVICE)

    def launch() -> None:
        counter.add_(1)  # torch warns of a graph without nodes
        with pytest.raises(DriverError, match="must be loaded before a CUDA graph is captured"):
            prepare("fwd", x, w, offs, out.inner, accumulate=False, config=unseen)

    captured(launch).replay()

    assert counter.item() == 1


@every_op
def test_neither_a_call_nor_a_launch_waits_for_the_device(op, dtype):
    # tgale96/grouped_gemm#21.
    problem = step(STEPS[0])
    out = problem.output(op, dtype)
    public(problem, op, dtype)
    spin, done = Spin(DEVICE), torch.cuda.Event()
    spin.launch(0)
    torch.cuda.synchronize()

    spin.launch(500_000_000)
    with waiting_is_an_error():
        call = prepared(problem, op, out.inner)
        call.launch()
        result = public(problem, op, dtype)
    done.record()

    assert not done.query()  # torch knows of its own waits alone: the device has been busy all the time
    problem.assert_right(op, out.inner)
    problem.assert_right(op, result)


@every_op
def test_a_launch_goes_to_the_current_stream_and_is_ordered_by_it(op, dtype):
    problem = step(STEPS[0])
    out = problem.output(op, dtype)
    call = prepared(problem, op, out.inner)
    stream, spin = torch.cuda.Stream(), Spin(DEVICE)
    spin.launch(0)
    out.inner.neg_()
    problem.operands(op)[0].neg_().neg_()  # what is used for the first time is loaded, which waits for the device
    call.launch()
    torch.cuda.synchronize()

    with torch.cuda.stream(stream):
        spin.launch(500_000_000, stream.cuda_stream)
        problem.operands(op)[0].neg_()
        call.launch()
        out.inner.neg_()

    assert not stream.query()
    assert torch.cuda.current_stream().query()
    stream.synchronize()
    # Of the new operands, and changed in sign after the launch: ahead of either the sign would be another.
    assert same_bits(-out.inner, problem.computed(op, dtype))


@every_op
def test_a_launch_allocates_nothing(op, dtype):
    problem = step(STEPS[0])
    call = prepared(problem, op, problem.output(op, dtype).inner)
    call.launch()
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0], torch.cuda.memory_stats()["allocation.all.allocated"]

    for _ in range(100):
        call.launch()
    torch.cuda.synchronize()

    assert (torch.cuda.mem_get_info()[0], torch.cuda.memory_stats()["allocation.all.allocated"]) == before


@every_op
def test_the_torch_operator_gives_the_bits_of_the_function(op, dtype):
    problem = step(STEPS[0])
    a, b = problem.operands(op)
    operators = getattr(torch.ops, grouped_gemm.ops.NAMESPACE)

    if op == "wgrad":
        out = operators.wgrad(a, b, problem.offs, out_dtype=dtype)
    else:
        out = {"fwd": operators.forward, "dgrad": operators.dgrad}[op](a, b, problem.offs)

    assert same_bits(out, public(problem, op, dtype))
