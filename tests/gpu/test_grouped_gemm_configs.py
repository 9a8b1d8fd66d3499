"""Every kernel that a program may launch, on problems that others are chosen for too: values, NaN of others, bits."""

import math
from dataclasses import replace

import pytest
import torch

from cake_kernels.grouped_gemm.sm90.config import CONFIGS, Kernel, choose, kernels, whole_slabs
from tests.gpu.ragged import DTYPES, FP32, OPS, Guarded, Ragged, ragged, same_bits

pytestmark = pytest.mark.gpu

KERNELS = [kernel for op, dtype in OPS for kernel in kernels(op, "fp32" if dtype is FP32 else "bf16")]
SIZES = (300, 0, 17, 1283, 64, 192, 0, 1, 385, 513, 2)
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


@each_kernel
def test_a_group_has_the_bits_that_it_has_alone(kernel, N, K):
    problem = ragged(SIZES, N=N, K=K, nobody=NOBODY)
    old = old_values(kernel, problem)
    together = run(kernel, problem, old)

    for expert, rows in enumerate(problem.groups):
        if rows.start == rows.stop:
            continue
        one = Ragged(offs_values=(rows.stop - rows.start,), M=rows.stop - rows.start, N=N, K=K)
        # Its own rows and weight, still where they lie among the others'.
        one.__dict__.update(x=problem.x[rows], g=problem.g[rows], w=problem.w[expert : expert + 1])
        alone = run(kernel, one, None if old is None else old[expert : expert + 1])

        assert same_bits(alone, together[expert : expert + 1] if kernel.op == "wgrad" else together[rows])


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
