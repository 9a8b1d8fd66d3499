"""The deterministic programs give the same bits: run after run, beside other work, whatever memory held before."""

import random

import pytest
import torch

from cake_kernels.grouped_gemm.sm90.config import NARROW
from harness.probe import Spin
from tests.gpu.ragged import BF16, DEVICE, OPS, Ragged, bits, cuda_only, ragged, same_bits

pytestmark = pytest.mark.gpu

every_op = pytest.mark.parametrize(("op", "dtype"), OPS, ids=["fwd", "dgrad", "wgrad-bf16", "wgrad-fp32"])

REPEATS = 50
SPINS = 8
SPIN_NS = 3_000_000


def skewed(seed: int = 0) -> Ragged:
    """Groups from empty to many tiles, several waves of them on every device, off the grid of tiles."""
    sizes = (5000, 0, 1, 2577, 64, 700, 129, 9000, 0, 33, 4001)
    return ragged(sizes, N=1160, K=1096, nobody=77, seed=seed)


@every_op
def test_fifty_runs_give_the_same_bits(op, dtype):
    problem = skewed()
    first = problem.computed(op, dtype)
    out = problem.output(op, dtype)
    unequal = torch.zeros((), dtype=torch.int64, device=DEVICE)

    for _ in range(REPEATS):
        problem.run(op, out.inner)
        unequal += (bits(out.inner) != bits(first)).sum()
        out.inner.fill_(torch.nan)

    assert int(unequal) == 0


@cuda_only
@every_op
def test_bits_do_not_depend_on_how_many_sms_are_free(op, dtype):
    problem = skewed()
    first = problem.computed(op, dtype)
    out = problem.output(op, dtype)
    # A thread that spins holds registers of its SM, so that no block of ours fits beside it.
    spin, streams = Spin(DEVICE), [torch.cuda.Stream() for _ in range(SPINS)]
    spin.launch(0)
    torch.cuda.synchronize()

    for held in range(1, SPINS + 1):
        for stream in streams[:held]:
            spin.launch(SPIN_NS, stream.cuda_stream)
        out.inner.fill_(torch.nan)
        problem.run(op, out.inner)
        torch.cuda.synchronize()

        assert same_bits(out.inner, first), f"with {held} SMs held"


@cuda_only
@every_op
def test_bits_do_not_depend_on_a_second_launch_beside_it(op, dtype):
    problem, other = skewed(), skewed(seed=1)
    first, first_other = problem.computed(op, dtype), other.computed(op, dtype)
    outs = [one.output(op, dtype) for one in (problem, other)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()

    for _ in range(5):
        for one, out, stream in zip((problem, other), outs, streams, strict=True):
            with torch.cuda.stream(stream):
                out.inner.fill_(torch.nan)
                one.run(op, out.inner)
        torch.cuda.synchronize()

        assert same_bits(outs[0].inner, first)
        assert same_bits(outs[1].inner, first_other)


@every_op
def test_bits_do_not_depend_on_what_the_allocator_hands_out(op, dtype):
    first = skewed().computed(op, dtype)
    draw = random.Random(0)
    for turn in range(4):
        dirt = [
            torch.full((draw.randrange(1, 1 << 22),), (torch.nan, 3e38, -1.0)[n % 3], dtype=BF16, device=DEVICE)
            for n in range(12)
        ]
        del dirt[:: 1 + turn % 2]

        assert same_bits(skewed().computed(op, dtype), first)  # operands and output in other memory


@every_op
def test_a_groups_bits_do_not_depend_on_the_sizes_before_it(op, dtype):
    def of_the_last_group(sizes: tuple[int, ...]) -> torch.Tensor:
        problem = ragged((*sizes, 700), N=768, K=640)
        rows = problem.groups[-1]
        base = ragged((700,), N=768, K=640, seed=5)
        problem.x[rows], problem.g[rows], problem.w[-1] = base.x, base.g, base.w[0]
        out = problem.computed(op, dtype, config=NARROW)  # another M may get another configuration
        return out[-1] if op == "wgrad" else out[rows]

    first = of_the_last_group((0, 0, 0))

    assert same_bits(of_the_last_group((1, 0, 64)), first)
    assert same_bits(of_the_last_group((1000, 385, 7)), first)
