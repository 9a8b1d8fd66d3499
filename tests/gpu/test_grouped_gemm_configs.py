"""Every kernel that a program may launch, on problems that others are chosen for too: values, NaN of others, bits."""

import math
from dataclasses import replace

import pytest
import torch

from cake_kernels.grouped_gemm.sm90.config import CONFIGS, Kernel, choose, kernels, whole_slabs
from tests.gpu.ragged import DTYPES, FP32, OPS, Guarded, Ragged, bits, planned, ragged, same_bits, sm_count

pytestmark = pytest.mark.gpu

KERNELS = [kernel for op, dtype in OPS for kernel in kernels(op, "fp32" if dtype is FP32 else "bf16")]
SIZES = (300, 0, 17, 1283, 64, 192, 0, 1, 385, 513, 2)
FEW_SIZES = (128, 130, 65)
NOBODY = 100
# (N, K): on the grid of all tiles, on that of slabs, off every grid, off it on one side, less than a tile.
SHAPES = ((768, 768), (320, 448), (1032, 328), (768, 328), (328, 768), (64, 128), (72, 8))

each_kernel = pytest.mark.parametrize(
    ("kernel", "N", "K"),
    [
        pytest.param(kernel, N, K, id=f"{kernel.name}-{N}x{K}")
        for kernel in KERNELS
        for N, K in SHAPES
        if whole_slabs(kernel.op, N=N, K=K) == kernel.whole_slabs
    ],
)


def run(kernel: Kernel, problem: Ragged, old: torch.Tensor | None = None) -> torch.Tensor:
    """Compute into an output of NaN, or onto ``old`` where the kernel accumulates, and see its guards intact."""
    out = problem.output(kernel.op, DTYPES[kernel.out_dtype])
    if kernel.accumulate:
        out.inner.copy_(old)
    problem.run(kernel.op, out.inner, accumulate=kernel.accumulate, config=kernel.config)
    out.assert_intact()
    return out.inner


def old_values(kernel: Kernel, problem: Ragged) -> torch.Tensor | None:
    if not kernel.accumulate:
        return None
    return Guarded.randn((problem.E, problem.N, problem.K), DTYPES[kernel.out_dtype], seed=11).inner


def alone(problem: Ragged, expert: int) -> Ragged:
    """Return one group's problem: its own rows and weight, still where they lie among the others'."""
    rows = problem.groups[expert]
    size = rows.stop - rows.start
    one = Ragged(offs_values=(size,), M=size, N=problem.N, K=problem.K)
    one.__dict__.update(x=problem.x[rows], g=problem.g[rows], w=problem.w[expert : expert + 1])
    return one


def is_split(kernel: Kernel, problem: Ragged, expert: int) -> torch.Tensor:
    """Return [N, K] of bools: whether wgrad of ``problem`` splits the tile of an element of the expert's dW."""
    made = planned(problem, config=kernel.config)
    split = torch.zeros(problem.N, problem.K, dtype=torch.bool, device=problem.x.device)
    for tile in map(made.walk.tile, made.tickets):
        if made.walk.groups[tile.group].expert == expert:
            area = made.walk.area(tile)
            split[area.rows.start : area.rows.stop, area.columns.start : area.columns.stop] = True
    return split


@each_kernel
def test_each_kernel_is_right(kernel, N, K):
    problem = ragged(SIZES, N=N, K=K, nobody=NOBODY)
    old = old_values(kernel, problem)

    out = run(kernel, problem, old)

    problem.assert_right(kernel.op, out, old=old)


@each_kernel
def test_nan_of_one_group_changes_no_bit_of_another(kernel, N, K):
    problem = ragged(SIZES, N=N, K=K, nobody=NOBODY)
    old = old_values(kernel, problem)
    clean = run(kernel, problem, old)
    mine = problem.groups[3]

    problem.x[mine] = math.nan
    problem.g[mine] = math.nan
    out = run(kernel, problem, old)

    part = 3 if kernel.op == "wgrad" else mine
    assert out[part].isnan().all()
    out[part] = clean[part]
    assert same_bits(out, clean)


@pytest.mark.parametrize("sizes", [SIZES, FEW_SIZES], ids=["many groups", "few groups"])
@each_kernel
def test_a_group_of_whole_tiles_has_the_bits_that_it_has_alone(kernel, N, K, sizes):
    problem = ragged(sizes, N=N, K=K, nobody=NOBODY)
    old = old_values(kernel, problem)
    together = run(kernel, problem, old)
    ones = {expert: alone(problem, expert) for expert, size in enumerate(sizes) if size}
    if kernel.op == "wgrad":  # the bits of a split tile depend on the other groups: docs/tail.md, "Bits"
        assert not any(planned(one, config=kernel.config).tickets for one in (problem, *ones.values()))

    for expert, one in ones.items():
        out = run(kernel, one, None if old is None else old[expert : expert + 1])

        part = slice(expert, expert + 1) if kernel.op == "wgrad" else problem.groups[expert]
        assert same_bits(out, together[part])


@pytest.mark.parametrize(
    "kernel", [kernel for kernel in KERNELS if kernel.op == "wgrad"], ids=lambda kernel: kernel.name
)
def test_whole_tiles_beside_split_ones_have_the_bits_that_they_have_alone(kernel):
    # A little more than half as many tiles a group as SMs: two groups fill a wave, and what they have more is split.
    edge = 64 if kernel.whole_slabs else 8
    N, K = 10 * kernel.config.tile_rows - edge, (sm_count() // 20 + 1) * kernel.config.tile_cols - edge
    problem = ragged((1530, 0, 1500), N=N, K=K, nobody=NOBODY)
    assert whole_slabs("wgrad", N=N, K=K) == kernel.whole_slabs
    old = old_values(kernel, problem)
    together = run(kernel, problem, old)
    problem.assert_right("wgrad", together, old=old)
    split_elements = 0

    for expert in (0, 2):
        one, old_of_one = alone(problem, expert), None if old is None else old[expert : expert + 1]
        out = run(kernel, one, old_of_one)
        one.assert_right("wgrad", out, old=old_of_one)

        split = is_split(kernel, problem, expert) | is_split(kernel, one, 0)
        assert torch.equal(bits(out[0])[~split], bits(together[expert])[~split])
        assert not split.all()
        split_elements += int(split.sum())

    assert split_elements > 0


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel.accumulate], ids=lambda kernel: kernel.name)
def test_an_accumulating_kernel_keeps_the_bits_of_an_expert_without_rows(kernel):
    N, K = next(shape for shape in SHAPES if whole_slabs("wgrad", N=shape[0], K=shape[1]) == kernel.whole_slabs)
    problem = ragged(SIZES, N=N, K=K, nobody=NOBODY)
    empty = [expert for expert, size in enumerate(SIZES) if size == 0]
    old = problem.output("wgrad", DTYPES[kernel.out_dtype]).inner.zero_()
    old[empty] = math.nan

    out = run(kernel, problem, old)

    assert same_bits(out[empty], old[empty])
    problem.assert_right("wgrad", out, experts=[expert for expert, size in enumerate(SIZES) if size])


@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_the_programs_list_each_configuration_that_is_chosen(op):
    chosen = {
        choose(op, M=M, N=N, K=K, E=E)
        for M in (100, 10_000, 200_000)
        for E in (1, 8, 512)
        for N in (8, 256, 768, 1032, 2880, 4096, 6144)
        for K in (8, 256, 768, 1032, 2880, 4096, 6144)
    }

    listed = {kernel.config for kernel in KERNELS if kernel.op == op}
    assert chosen <= listed
    assert {replace(config, tail="plain") for config in listed} <= set(CONFIGS)
