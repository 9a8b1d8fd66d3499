"""The deterministic programs give the same bits: run after run, beside other work, whatever memory held before."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from cake_kernels.grouped_gemm.sm90.config import NARROW, STRAIGHT, SWAPPED, choose
from harness.probe import Spin
from tests.gpu.ragged import (
    BF16,
    DEVICE,
    FP32,
    OPS,
    Guarded,
    Ragged,
    bits,
    cuda_only,
    planned,
    ragged,
    same_bits,
    sm_count,
)

pytestmark = pytest.mark.gpu

every_op = pytest.mark.parametrize(("op", "dtype"), OPS, ids=["fwd", "dgrad", "wgrad-bf16", "wgrad-fp32"])

REPEATS = 50
SPINS = 8
SPIN_NS = 2_000_000


def whole(seed: int = 0) -> Ragged:
    """Groups from empty to many tiles, several waves of them on every device, off the grid of tiles."""
    sizes = (5000, 0, 1, 2577, 64, 700, 129, 9000, 0, 33, 4001)
    return ragged(sizes, N=1160, K=1096, nobody=77, seed=seed)


def narrow(seed: int = 0) -> Ragged:
    return ragged((3000, 0, 2077), N=1032, K=328, nobody=77, seed=seed)


def swapped(seed: int = 0) -> Ragged:
    return ragged((162, 0, 2577, 446, 0, 83), N=576, K=2048, seed=seed)


def straight(seed: int = 0) -> Ragged:
    return ragged((3000, 3001, 2999), N=2048, K=1536, seed=seed)


Problem = Callable[..., Ragged]

each_problem = pytest.mark.parametrize("problem", [whole, narrow, swapped, straight])


@pytest.mark.parametrize(
    ("problem", "config", "placement"),
    [(whole, NARROW, "slack"), (narrow, NARROW, "split"), (swapped, SWAPPED, "split"), (straight, STRAIGHT, "split")],
)
def test_wgrad_of_these_problems_is_whole_or_split_in_each_configuration(problem, config, placement):
    made = problem()
    chosen = choose("wgrad", M=made.M, N=made.N, K=made.K, E=made.E, sms=sm_count())

    assert (chosen.tile_m, chosen.tile_n, chosen.swap) == (config.tile_m, config.tile_n, config.swap)
    assert planned(made, "det").placement == placement


@each_problem
@every_op
def test_fifty_runs_give_the_same_bits(op, dtype, problem):
    # vllm-project/vllm#56887, NVIDIA/TransformerEngine#3407.
    made = problem()
    first = made.computed(op, dtype)
    out = made.output(op, dtype)
    unequal = torch.zeros((), dtype=torch.int64, device=DEVICE)

    for _ in range(REPEATS):
        made.run(op, out.inner)
        unequal += (bits(out.inner) != bits(first)).sum()
        out.inner.fill_(torch.nan)

    assert int(unequal) == 0


@cuda_only
@each_problem
@every_op
def test_fifty_runs_give_the_same_bits_while_a_stream_beside_holds_sms(op, dtype, problem):
    made = problem()
    first = made.computed(op, dtype)
    out = made.output(op, dtype)
    # A thread that spins holds registers of its SM, so that no block of ours fits beside it.
    spin, streams = Spin(DEVICE), [torch.cuda.Stream() for _ in range(SPINS)]
    spin.launch(0)
    torch.cuda.synchronize()

    for turn in range(REPEATS):
        held = 1 + turn % SPINS
        for stream in streams[:held]:
            spin.launch(SPIN_NS, stream.cuda_stream)
        out.inner.fill_(torch.nan)
        made.run(op, out.inner)
        torch.cuda.synchronize()

        assert same_bits(out.inner, first), f"with {held} SMs held"


@cuda_only
@each_problem
@every_op
def test_bits_do_not_depend_on_a_second_launch_beside_it(op, dtype, problem):
    problems = problem(), problem(seed=1)
    firsts = [one.computed(op, dtype) for one in problems]
    outs = [one.output(op, dtype) for one in problems]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()

    for _ in range(5):
        for one, out, stream in zip(problems, outs, streams, strict=True):
            with torch.cuda.stream(stream):
                out.inner.fill_(torch.nan)
                one.run(op, out.inner)
        torch.cuda.synchronize()

        assert [same_bits(out.inner, first) for out, first in zip(outs, firsts, strict=True)] == [True, True]


@each_problem
@every_op
def test_fifty_runs_give_the_same_bits_whatever_the_allocator_hands_out(op, dtype, problem):
    first = problem().computed(op, dtype)
    draw = random.Random(0)
    for turn in range(REPEATS):
        dirt = [
            torch.full((draw.randrange(1, 1 << 22),), (torch.nan, 3e38, -1.0)[n % 3], dtype=BF16, device=DEVICE)
            for n in range(12)
        ]
        del dirt[:: 1 + turn % 2]

        assert same_bits(problem().computed(op, dtype), first)  # operands and output in other memory


@pytest.mark.parametrize("problem", [narrow, swapped, straight])
@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_what_a_split_tail_adds_to_an_output_is_right_and_the_same_run_after_run(dtype, problem):
    made = problem()
    out = made.output("wgrad", dtype)
    old = Guarded.randn((made.E, made.N, made.K), dtype, seed=7).inner
    out.inner.copy_(old)
    first = made.run("wgrad", out.inner, accumulate=True).clone()
    made.assert_right("wgrad", first, old=old)

    for _ in range(REPEATS):
        out.inner.copy_(old)

        assert same_bits(made.run("wgrad", out.inner, accumulate=True), first)

    out.assert_intact()


@every_op
@pytest.mark.parametrize(
    ("config", "N", "K"), [(NARROW, 776, 648), (NARROW, 768, 640), (STRAIGHT, 768, 640), (SWAPPED, 768, 640)]
)
def test_a_groups_bits_do_not_depend_on_the_sizes_before_it_where_its_tiles_are_whole(op, dtype, config, N, K):
    # deepseek-ai/DeepGEMM#450.
    if op == "wgrad":
        config = replace(config, tail="slots")  # as the program has it

    def of_the_last_group(sizes: tuple[int, ...]) -> torch.Tensor:
        problem = ragged((*sizes, 700), N=N, K=K)
        rows = problem.groups[-1]
        base = ragged((700,), N=N, K=K, seed=5)
        problem.x[rows], problem.g[rows], problem.w[-1] = base.x, base.g, base.w[0]
        if op == "wgrad":  # the bits of a split tile depend on the other groups: docs/tail.md, "Bits"
            assert not planned(problem, config=config).tickets
        out = problem.computed(op, dtype, config=config)  # another M may get another configuration
        return out[-1] if op == "wgrad" else out[rows]

    first = of_the_last_group((0, 0, 0))

    assert same_bits(of_the_last_group((1, 0, 64)), first)
    assert same_bits(of_the_last_group((1000, 385, 7)), first)
