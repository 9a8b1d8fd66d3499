"""The workspace of a wgrad whose last tiles are split, in both variants: whatever it held, whoever had it before.

In the deterministic variant each result also has the bits of the same call on its own.
"""

import gc
import random

import pytest
import torch

from cake_kernels import grouped_gemm
from cake_kernels.grouped_gemm.sm90 import launch
from cake_kernels.registry import Variant
from tests.gpu.ragged import BF16, DEVICE, FP32, Ragged, cuda_only, planned, ragged, same_bits

pytestmark = pytest.mark.gpu

RUNS = 20
RUNS_BESIDE_OTHERS = 50
# Of 8 tiles of 256 x 384, or more of another form: fewer than any GPU has clusters, so that the first wave is the tail.
SPLIT = ((3000, 0, 2077), 77)
# What a launch of the same M may have to do next: other tiles are split, or none has enough k-blocks.
OTHERS = ((0, 5154, 5154), (5000, 5000, 5077), (100, 200, 300))
BLOCKS = 32
"""Of memory for each part of a workspace, more than the allocator has left from elsewhere to hand out first."""

every_dtype = pytest.mark.parametrize("dtype", [BF16, FP32], ids=["bf16", "fp32"])
every_variant = pytest.mark.parametrize("variant", ["det", "nondet"])


def small(seed: int = 0, N: int = 512, K: int = 768) -> Ragged:
    sizes, nobody = SPLIT
    return ragged(sizes, N=N, K=K, nobody=nobody, seed=seed)


def prepared(
    problem: Ragged, out: torch.Tensor, variant: Variant, *, accumulate: bool = False
) -> grouped_gemm.Prepared:
    options = {"out_dtype": out.dtype, "out": out, "accumulate": accumulate, "deterministic": variant == "det"}
    return grouped_gemm.prepare_wgrad(problem.g, problem.x, problem.offs, **options)


def computed(problem: Ragged, dtype: torch.dtype, variant: Variant) -> torch.Tensor:
    return grouped_gemm.wgrad(problem.g, problem.x, problem.offs, out_dtype=dtype, deterministic=variant == "det")


def bound(problem: Ragged, out: torch.Tensor, variant: Variant) -> launch._Bound:
    """Return a launch of the program's kernel whose workspace can be looked at."""
    made = launch.prepare("wgrad", problem.g, problem.x, problem.offs, out, accumulate=False, variant=variant)
    assert isinstance(made, launch._Bound)
    return made


def run(made: launch._Bound) -> None:
    made(torch.cuda.current_stream().cuda_stream)


def alone(problem: Ragged, dtype: torch.dtype) -> torch.Tensor:
    """Return what the deterministic variant computes in a workspace that no launch had before."""
    launch._FREE.clear()
    result = computed(problem, dtype, "det")
    launch._FREE.clear()
    return result


def assert_result(problem: Ragged, out: torch.Tensor, expected: torch.Tensor, variant: Variant) -> None:
    """``out`` is right, and in the deterministic variant it has the bits of ``expected``."""
    problem.assert_right("wgrad", out)
    if variant == "det":
        assert same_bits(out, expected)


def change(held: Ragged, new: Ragged) -> None:
    """Write the values of ``new`` where those of ``held`` are."""
    held.x.copy_(new.x)
    held.g.copy_(new.g)
    held.offs.copy_(new.offs)


def captured(call):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def steps(held: Ragged) -> list[Ragged]:
    """Return problems of other sizes and values for the tensors of ``held``, the last one of its sizes again."""
    every = enumerate([held.offs_values, *OTHERS, held.offs_values], start=1)
    return [Ragged(offs_values=values, M=held.M, N=held.N, K=held.K, seed=seed) for seed, values in every]


def overlaps(one: torch.Tensor, place: range) -> bool:
    return one.data_ptr() < place.stop and place.start < one.data_ptr() + one.nbytes


@every_variant
def test_this_problem_is_split(variant):
    assert planned(small(), variant).placement == "split"


@every_variant
@every_dtype
def test_other_sizes_after_each_other_are_right(dtype, variant):
    held = small()
    out = held.output("wgrad", dtype)
    call = prepared(held, out.inner, variant)

    for new in steps(held):
        change(held, new)
        out.inner.fill_(torch.nan)

        assert_result(new, call.launch(), alone(new, dtype), variant)


@every_variant
@every_dtype
def test_nan_does_not_come_back_from_the_workspace(dtype, variant):
    problem = small()
    expected = alone(problem, dtype)
    out = problem.output("wgrad", dtype)
    call = prepared(problem, out.inner, variant)
    kept = problem.x[5].clone()

    problem.x[5] = torch.nan
    call.launch()
    spoilt = out.inner[0].isnan().all()
    problem.x[5] = kept
    call.launch()

    assert spoilt
    assert_result(problem, out.inner, expected, variant)


@cuda_only
@every_variant
@every_dtype
def test_a_launch_leaves_tickets_of_zeros_and_zeros_where_sums_were(dtype, variant):
    problem = small()
    made = bound(problem, problem.output("wgrad", dtype).inner, variant)
    made.workspace.slots.zero_()

    for _ in range(RUNS):
        run(made)

    assert not made.workspace.tickets.any()
    assert made.workspace.slots.any() == (variant == "det")  # partial sums stay, sums do not


@cuda_only
@every_variant
@every_dtype
def test_what_the_workspaces_memory_held_before_changes_nothing(dtype, variant):
    problem = small()
    expected = alone(problem, dtype)
    out = problem.output("wgrad", dtype)
    first = bound(problem, out.inner, variant).workspace
    bytes_of = first.slots.nbytes, first.tickets.nbytes
    del first
    gc.collect()
    launch._FREE.clear()  # which the next call would take
    sizes = [size for size in bytes_of for _ in range(BLOCKS)]
    dirt = [torch.randint(0, 256, (size,), dtype=torch.uint8, device=DEVICE) for size in sizes]
    places = [range(block.data_ptr(), block.data_ptr() + block.nbytes) for block in dirt]
    del dirt

    made = bound(problem, out.inner, variant)

    for part in (made.workspace.slots, made.workspace.tickets):
        assert any(overlaps(part, place) for place in places)
    for _ in range(RUNS):
        out.inner.fill_(torch.nan)
        run(made)
        assert_result(problem, out.inner, expected, variant)


@cuda_only
@every_dtype
def test_slots_may_hold_anything_before_each_launch_and_when_they_are_handed_over(dtype):
    problem = small()
    expected = alone(problem, dtype)
    out = problem.output("wgrad", dtype)
    slots = bound(problem, out.inner, "det").workspace.slots

    for _ in range(RUNS):
        slots.view(torch.uint8).random_(0, 256)
        made = bound(problem, out.inner, "det")
        assert made.workspace.slots is slots
        out.inner.fill_(torch.nan)
        run(made)
        assert_result(problem, out.inner, expected, "det")
        del made


@cuda_only
@every_variant
@every_dtype
def test_a_graph_that_is_destroyed_between_replays_of_another_changes_nothing(dtype, variant):
    held = small()
    out = held.output("wgrad", dtype)
    call = prepared(held, out.inner, variant)
    kept, draw = captured(call.launch), random.Random(0)

    for new in steps(held):
        expected = alone(new, dtype)
        change(held, new)
        other = captured(call.launch)
        for graph in draw.sample([kept, other], 2):
            out.inner.fill_(torch.nan)
            graph.replay()
            assert_result(new, out.inner, expected, variant)
        del other, graph
        gc.collect()

        out.inner.fill_(torch.nan)
        kept.replay()

        assert_result(new, out.inner, expected, variant)


@cuda_only
@every_variant
@every_dtype
def test_the_public_function_in_a_graph_has_a_workspace_of_the_graphs_own(dtype, variant):
    problem = small()
    expected = alone(problem, dtype)
    computed(problem, dtype, variant)
    outs: list[torch.Tensor] = []
    kept = captured(lambda: outs.append(computed(problem, dtype, variant)))
    other = captured(lambda: computed(problem, dtype, variant))

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

        assert_result(problem, outs[0], expected, variant)


@cuda_only
@every_variant
@every_dtype
def test_calls_on_two_streams_at_once_are_right(dtype, variant):
    problems = small(), small(seed=1)
    expected = [alone(problem, dtype) for problem in problems]
    outs = [problem.output("wgrad", dtype) for problem in problems]
    calls = [prepared(problem, out.inner, variant) for problem, out in zip(problems, outs, strict=True)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()

    for _ in range(RUNS_BESIDE_OTHERS):
        made = []
        for problem, call, out, stream in zip(problems, calls, outs, streams, strict=True):
            with torch.cuda.stream(stream):
                out.inner.fill_(torch.nan)
                call.launch()
                # Its workspace is free, for this stream, once it is enqueued.
                made.append(computed(problem, dtype, variant))
        torch.cuda.synchronize()

        for results in (made, [out.inner for out in outs]):
            for problem, result, bits in zip(problems, results, expected, strict=True):
                assert_result(problem, result, bits, variant)
