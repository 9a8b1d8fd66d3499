"""wgrad in the non-deterministic variant, whose last tiles are split: right run after run, whatever is beside it."""

import gc
import random

import pytest
import torch

from cake_kernels import grouped_gemm, grouped_mm
from cake_kernels.errors import NondeterministicError
from cake_kernels.grouped_gemm.sm90 import launch
from cake_kernels.grouped_gemm.sm90.config import kernels, whole_slabs
from harness.probe import Spin
from tests.gpu.ragged import BF16, DEVICE, DTYPES, FP32, Guarded, Ragged, cuda_only, planned, ragged, same_bits
from tests.unit.cake_kernels.conftest import torchs_switch  # noqa: F401 - a fixture

pytestmark = pytest.mark.gpu

RUNS = 1000
RUNS_BESIDE_OTHERS = 50
SPINS = 8
SPIN_NS = 2_000_000
# Of 8 tiles of 256 x 384, or more of another form: fewer than any GPU has clusters, so that the first wave is the tail.
SPLIT = ((3000, 0, 2077), 77)
# What a launch of the same M may have to do next: other tiles are split, or none has enough k-blocks.
OTHERS = ((0, 5154, 5154), (5000, 5000, 5077), (100, 200, 300))

every_dtype = pytest.mark.parametrize("dtype", [BF16, FP32], ids=["bf16", "fp32"])


def small(seed: int = 0, N: int = 512, K: int = 768) -> Ragged:
    sizes, nobody = SPLIT
    return ragged(sizes, N=N, K=K, nobody=nobody, seed=seed)


def several_waves() -> Ragged:
    """64 tiles an expert: on 132 SMs a full wave, and a tail of 60 tiles."""
    return ragged((3000, 3001, 2999), N=2048, K=1536)


def prepared(problem: Ragged, out: torch.Tensor, *, accumulate: bool = False) -> grouped_gemm.Prepared:
    options = {"out_dtype": out.dtype, "out": out, "accumulate": accumulate, "deterministic": False}
    return grouped_gemm.prepare_wgrad(problem.g, problem.x, problem.offs, **options)


def computed(problem: Ragged, dtype: torch.dtype) -> torch.Tensor:
    return grouped_gemm.wgrad(problem.g, problem.x, problem.offs, out_dtype=dtype, deterministic=False)


def bound(problem: Ragged, out: torch.Tensor) -> launch._Bound:
    """Return a launch of the program's kernel whose workspace can be looked at."""
    made = launch.prepare("wgrad", problem.g, problem.x, problem.offs, out, accumulate=False, variant="nondet")
    assert isinstance(made, launch._Bound)
    return made


def run(made: launch._Bound) -> None:
    made(torch.cuda.current_stream().cuda_stream)


def change(held: Ragged, new: Ragged) -> None:
    """Write the values of ``new`` where those of ``held`` are."""
    held.x.copy_(new.x)
    held.g.copy_(new.g)
    held.offs.copy_(new.offs)


@cuda_only
@pytest.mark.parametrize("problem", [small(), several_waves()], ids=["less than a wave", "several waves"])
def test_these_problems_are_split(problem):
    assert planned(problem, "nondet").placement == "split"


@pytest.mark.parametrize(
    "kernel",
    [kernel for dtype in DTYPES for kernel in kernels("wgrad", dtype, "nondet")],
    ids=lambda kernel: kernel.name,
)
def test_each_kernel_is_right(kernel):
    N, K = (768, 768) if kernel.whole_slabs else (1032, 328)
    assert whole_slabs("wgrad", N=N, K=K) == kernel.whole_slabs
    problem, dtype = small(N=N, K=K), DTYPES[kernel.out_dtype]
    out = problem.output("wgrad", dtype)
    old = Guarded.randn((problem.E, N, K), dtype, seed=11).inner if kernel.accumulate else None
    if old is not None:
        out.inner.copy_(old)

    problem.run("wgrad", out.inner, accumulate=kernel.accumulate, config=kernel.config)

    problem.assert_right("wgrad", out.inner, old=old)
    out.assert_intact()


@every_dtype
@pytest.mark.parametrize("problem", [small(), several_waves()], ids=["less than a wave", "several waves"])
def test_a_thousand_runs_are_right(problem, dtype):
    out = problem.output("wgrad", dtype)
    call = prepared(problem, out.inner)

    for _ in range(RUNS if DEVICE.type == "cuda" else 2):
        out.inner.fill_(torch.nan)

        problem.assert_right("wgrad", call.launch())

    out.assert_intact()


@cuda_only
@every_dtype
def test_runs_beside_a_stream_that_holds_sms_are_right(dtype):
    problem = small()
    out = problem.output("wgrad", dtype)
    call = prepared(problem, out.inner)
    # A thread that spins holds registers of its SM, so that no block of ours fits beside it.
    spin, streams = Spin(DEVICE), [torch.cuda.Stream() for _ in range(SPINS)]
    spin.launch(0)
    torch.cuda.synchronize()

    for turn in range(RUNS_BESIDE_OTHERS):
        for stream in streams[: 1 + turn % SPINS]:
            spin.launch(SPIN_NS, stream.cuda_stream)
        out.inner.fill_(torch.nan)
        call.launch()
        torch.cuda.synchronize()

        problem.assert_right("wgrad", out.inner)


@every_dtype
def test_other_sizes_after_each_other_are_right(dtype):
    held = small()
    out = held.output("wgrad", dtype)
    call = prepared(held, out.inner)

    for seed, values in enumerate([held.offs_values, *OTHERS, held.offs_values]):
        new = Ragged(offs_values=values, M=held.M, N=held.N, K=held.K, seed=seed)
        change(held, new)
        out.inner.fill_(torch.nan)

        new.assert_right("wgrad", call.launch())


@every_dtype
def test_nan_does_not_stay_in_the_workspace(dtype):
    problem = small()
    out = problem.output("wgrad", dtype)
    call = prepared(problem, out.inner)
    kept = problem.x[5].clone()

    problem.x[5] = torch.nan
    call.launch()
    spoilt = out.inner[0].isnan().all()
    problem.x[5] = kept
    call.launch()

    assert spoilt
    problem.assert_right("wgrad", out.inner)


@every_dtype
def test_each_launch_that_accumulates_adds_once(dtype):
    problem = small()
    out = Guarded.randn((problem.E, problem.N, problem.K), dtype, seed=9)
    call = prepared(problem, out.inner, accumulate=True)

    for _ in range(3):
        old = out.inner.clone()
        call.launch()

        problem.assert_right("wgrad", out.inner, old=old)
        assert same_bits(out.inner[1], old[1])


@cuda_only
@every_dtype
def test_a_launch_leaves_the_workspace_full_of_zeros(dtype):
    problem = small()
    made = bound(problem, problem.output("wgrad", dtype).inner)

    for _ in range(20):
        run(made)

    assert not made.workspace.slots.any()
    assert not made.workspace.tickets.any()


@cuda_only
@every_dtype
def test_what_the_workspaces_memory_held_before_changes_nothing(dtype):
    problem = small()
    out = problem.output("wgrad", dtype)
    first = bound(problem, out.inner).workspace
    bytes_of = first.slots.nbytes, first.tickets.nbytes
    del first
    gc.collect()
    launch._FREE.clear()  # which the next call would take
    dirt = [torch.randint(0, 256, (n,), dtype=torch.uint8, device=DEVICE) for n in bytes_of]
    places = {block.data_ptr() for block in dirt}
    del dirt

    made = bound(problem, out.inner)

    assert {made.workspace.slots.data_ptr(), made.workspace.tickets.data_ptr()} & places
    for _ in range(20):
        out.inner.fill_(torch.nan)
        run(made)
        problem.assert_right("wgrad", out.inner)


@cuda_only
@every_dtype
def test_a_graph_that_is_destroyed_between_replays_of_another_changes_nothing(dtype):
    held = small()
    out = held.output("wgrad", dtype)
    call = prepared(held, out.inner)
    kept, draw = captured(call.launch), random.Random(0)

    for seed, values in enumerate([held.offs_values, *OTHERS, held.offs_values]):
        new = Ragged(offs_values=values, M=held.M, N=held.N, K=held.K, seed=seed)
        change(held, new)
        other = captured(call.launch)
        for graph in draw.sample([kept, other], 2):
            out.inner.fill_(torch.nan)
            graph.replay()
            new.assert_right("wgrad", out.inner)
        del other, graph
        gc.collect()

        out.inner.fill_(torch.nan)
        kept.replay()

        new.assert_right("wgrad", out.inner)


@cuda_only
@every_dtype
def test_the_public_function_in_a_graph_has_a_workspace_of_the_graphs_own(dtype):
    problem = small()
    computed(problem, dtype)
    outs: list[torch.Tensor] = []
    kept = captured(lambda: outs.append(computed(problem, dtype)))
    other = captured(lambda: computed(problem, dtype))

    for turn in range(10):
        if turn == 5:
            del other
            gc.collect()
            torch.cuda.empty_cache()
        elif turn < 5:
            other.replay()
        outs[0].fill_(torch.nan)
        kept.replay()
        torch.full((1 << 24,), torch.nan, device=DEVICE)  # would land in a workspace that is free

        problem.assert_right("wgrad", outs[0])


@cuda_only
@every_dtype
def test_calls_on_two_streams_at_once_are_right(dtype):
    problems = small(), small(seed=1)
    outs = [problem.output("wgrad", dtype) for problem in problems]
    calls = [prepared(problem, out.inner) for problem, out in zip(problems, outs, strict=True)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()

    for _ in range(RUNS_BESIDE_OTHERS):
        made = []
        for problem, call, out, stream in zip(problems, calls, outs, streams, strict=True):
            with torch.cuda.stream(stream):
                out.inner.fill_(torch.nan)
                call.launch()
                made.append(computed(problem, dtype))  # its workspace is free, for this stream, once it is enqueued
        torch.cuda.synchronize()

        for problem, out, other in zip(problems, outs, made, strict=True):
            problem.assert_right("wgrad", out.inner)
            problem.assert_right("wgrad", other)


@pytest.mark.parametrize("op", ["fwd", "dgrad"])
def test_forward_and_dgrad_have_the_bits_of_the_other_variant(op):
    problem = small()
    function = {"fwd": grouped_gemm.forward, "dgrad": grouped_gemm.dgrad}[op]
    a, b = problem.operands(op)

    one, other = (function(a, b, problem.offs, deterministic=variant) for variant in (True, False))

    assert same_bits(one, other)


def test_grouped_mm_gives_the_product_and_both_gradients():
    problem = small()
    x, w = problem.x.clone().requires_grad_(), problem.w.clone().requires_grad_()

    y = grouped_mm(x, w, problem.offs, deterministic=False)
    y.backward(problem.g)

    problem.assert_right("fwd", y.detach())
    problem.assert_right("dgrad", x.grad)
    problem.assert_right("wgrad", w.grad)


@cuda_only
def test_under_torchs_switch_wgrad_and_the_backward_of_grouped_mm_raise(torchs_switch):  # noqa: F811
    problem = small()
    out = problem.output("wgrad", FP32)
    x, w, g = problem.x.clone().requires_grad_(), problem.w.clone().requires_grad_(), problem.g

    torchs_switch(True)
    options = {"out_dtype": FP32, "out": out.inner, "deterministic": False}
    with pytest.raises(NondeterministicError, match=r"^wgrad\(deterministic=False\)"):
        grouped_gemm.wgrad(g, problem.x, problem.offs, **options)
    y = grouped_mm(x, w, problem.offs, deterministic=False)
    with pytest.raises(NondeterministicError, match=r"^wgrad\(deterministic=False\)"):
        y.backward(g)

    assert out.inner.isnan().all()
    assert (x.grad, w.grad) == (None, None)


@cuda_only
def test_under_torchs_switch_that_warns_only_both_warn_and_are_right(torchs_switch):  # noqa: F811
    problem = small()
    x, w, g = problem.x.clone().requires_grad_(), problem.w.clone().requires_grad_(), problem.g

    torchs_switch(True, warn_only=True)
    with pytest.warns(UserWarning, match=r"^wgrad\(deterministic=False\)"):
        dw = computed(problem, FP32)
    y = grouped_mm(x, w, problem.offs, deterministic=False)
    with pytest.warns(UserWarning, match=r"^wgrad\(deterministic=False\)"):
        y.backward(g)
    torchs_switch(False)  # cuBLAS, which the check computes with, has an objection of its own

    problem.assert_right("wgrad", dw)
    problem.assert_right("fwd", y.detach())
    problem.assert_right("dgrad", x.grad)
    problem.assert_right("wgrad", w.grad)


def captured(launch):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph
