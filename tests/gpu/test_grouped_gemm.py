"""What the grouped GEMM computes, against FP64: group sizes, extents, rows of nobody, NaN of others, accumulation.

Operands and outputs lie among canaries (see :mod:`tests.gpu.ragged`), and outputs hold NaN before each call.
"""

import math
import random

import pytest
import torch

from cake_kernels import grouped_gemm
from cake_kernels.errors import NoProgramError
from tests.gpu.ragged import (
    BF16,
    DEVICE,
    DTYPES,
    FP32,
    OPS,
    Guarded,
    Ragged,
    bits,
    cuda_only,
    kernels_of_slabs,
    ragged,
    same_bits,
)

pytestmark = pytest.mark.gpu

every_op = pytest.mark.parametrize(("op", "dtype"), OPS, ids=["fwd", "dgrad", "wgrad-bf16", "wgrad-fp32"])

SIZES = (0, 1, 7, 63, 64, 65, 127, 128, 129, 16333)
EXTENTS = (2880, 1856, 1032, 72, 8)
RAGGED = (162, 0, 2577, 446, 0, 83)


def check(problem: Ragged, op: str, dtype: torch.dtype) -> None:
    problem.assert_right(op, problem.computed(op, dtype))


# ---- group sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", range(len(SIZES)))
@every_op
def test_every_size_is_right_in_every_position(op, dtype, turn):
    # pytorch/torchtitan#1651, pytorch/ao#4045: nothing is asked of a group's size.
    check(ragged((*SIZES[turn:], *SIZES[:turn]), N=264, K=200), op, dtype)


@cuda_only
@pytest.mark.parametrize("turn", range(len(SIZES)))
@pytest.mark.parametrize("kernel", kernels_of_slabs(), ids=lambda kernel: kernel.name)
def test_every_size_is_right_in_every_position_with_every_kernel(kernel, turn):
    problem = ragged((*SIZES[turn:], *SIZES[:turn]), N=768, K=640)

    problem.assert_right(kernel.op, problem.computed(kernel.op, DTYPES[kernel.out_dtype], config=kernel.config))


@pytest.mark.parametrize("sizes", [(128, 130, 65), (1, 7, 44, 127, 129, 16333), (1,) * 70])
@every_op
def test_a_group_that_ends_inside_a_tile_has_its_own_expert(op, dtype, sizes):
    # deepseek-ai/DeepGEMM#15 and #450: the tile's first row gave the whole tile its expert.
    check(ragged(sizes, N=384, K=512), op, dtype)


@pytest.mark.parametrize("sizes", [(0, 300, 5), (300, 0, 0, 5), (5, 300, 0), (0, 0, 0)])
@every_op
def test_an_expert_without_rows_changes_nothing_and_its_dw_is_zero(op, dtype, sizes):
    # pytorch/pytorch#152668: the backward of an expert without rows hung.
    check(ragged(sizes, N=384, K=256), op, dtype)


@pytest.mark.parametrize("owner", [0, 3, 7])
@every_op
def test_all_rows_may_be_one_experts(op, dtype, owner):
    check(ragged([1000 if expert == owner else 0 for expert in range(8)], N=320, K=384), op, dtype)


@pytest.mark.parametrize("experts", [1, 2, 31, 32, 33, 64, 127, 512, 1024])
@every_op
def test_any_number_of_experts_is_right(op, dtype, experts):
    draw = random.Random(experts)
    sizes = [draw.choice((0, 0, 1, 7, 64, 130)) for _ in range(experts - 1)]

    check(ragged((*sizes, 33), N=136, K=200, nobody=9), op, dtype)


@cuda_only
@every_op
def test_more_experts_than_the_programs_take_are_refused_with_limit_and_value(op, dtype):
    with pytest.raises(NoProgramError, match="needs at most 1024 experts, got 1025"):
        ragged([1] * 1025, N=8, K=8).computed(op, dtype)


@every_op
def test_zero_groups_get_zeros_where_the_allocator_hands_out_nan(op, dtype):
    # pytorch/pytorch#172439: what nobody wrote was the gradient of an empty group.
    problem = ragged(RAGGED, N=768, K=2048, nobody=37)
    a, b = (tensor.contiguous() for tensor in problem.operands(op))
    form = {"fwd": (problem.M, 768), "dgrad": (problem.M, 2048), "wgrad": (6, 768, 2048)}[op]
    poison = torch.full(form, math.nan, dtype=dtype, device=DEVICE)
    del poison  # the block that the call is given next

    if op == "wgrad":
        out = grouped_gemm.wgrad(a, b, problem.offs, out_dtype=dtype)
    else:
        out = {"fwd": grouped_gemm.forward, "dgrad": grouped_gemm.dgrad}[op](a, b, problem.offs)

    problem.assert_right(op, out)


# ---- extents -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", EXTENTS)
@pytest.mark.parametrize("N", EXTENTS)
@every_op
def test_extents_off_the_grid_of_tiles_are_right(op, dtype, N, K):
    check(ragged((130, 0, 1, 257), N=N, K=K, nobody=3), op, dtype)


# ---- rows of nobody ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nobody", [1, 63, 64, 300, 5000])
@every_op
def test_rows_past_the_last_end_are_zeros_and_their_nan_is_not_read(op, dtype, nobody):
    # pytorch/pytorch#154557, pytorch/torchtitan#1237: these rows were whatever memory held.
    check(ragged((200, 0, 77), N=384, K=256, nobody=nobody), op, dtype)


@every_op
def test_rows_may_all_be_nobodys(op, dtype):
    check(ragged((0, 0, 0), N=384, K=256, nobody=500), op, dtype)


@pytest.mark.parametrize("experts", [1, 128])
@every_op
def test_a_padded_buffer_is_right_step_after_step(op, dtype, experts):
    # NVIDIA/TransformerEngine#3484, pytorch/pytorch#193633: NaN of the padding reached dW, in the second step there.
    M, N, K = 2000, 256, 192
    out = None
    for step in range(3):
        draw = random.Random(step)
        cuts = sorted(draw.randrange(M - 100 * step) for _ in range(experts))
        problem = Ragged(offs_values=tuple(cuts), M=M, N=N, K=K, seed=step)
        out = out or problem.output(op, dtype)  # later steps find the values of the step before
        problem.run(op, out.inner)

        problem.assert_right(op, out.inner)
    out.assert_intact()


# ---- offs that nobody should write ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ends",
    [
        (300, 100, 500, 200, 600),
        (-5, -1, 300, -7, 600),
        (300, 100_000, 20, 600),
        (2**31 - 1, 0, 2**31 - 1),
        (-(2**31), -(2**31), 10),
        (-3, -2, -1),
        (601,) * 40,
        (*range(40, 0, -1), 650),
    ],
    ids=["fall", "negative", "past M", "largest", "smallest", "all negative", "all past M", "fall over a warp"],
)
@every_op
def test_offs_that_fall_or_leave_the_rows_are_read_as_documented(op, dtype, ends):
    check(Ragged(offs_values=ends, M=600, N=264, K=136), op, dtype)


# ---- NaN of others -------------------------------------------------------------------------------------------------


def spoil(problem: Ragged, rows: slice) -> None:
    problem.x[rows] = math.nan
    problem.g[rows] = math.nan


@pytest.mark.parametrize("expert", [0, 2, 3, 5])
@every_op
def test_nan_rows_of_a_group_reach_no_other_group(op, dtype, expert):
    sizes = (65, 0, 100, 1, 0, 191, 64)
    clean = ragged(sizes, N=392, K=264).computed(op, dtype)
    problem = ragged(sizes, N=392, K=264)
    mine = problem.groups[expert]

    spoil(problem, mine)
    out = problem.computed(op, dtype)

    if op == "wgrad":
        assert out[expert].isnan().all()
        assert all(same_bits(out[e], clean[e]) for e in range(problem.E) if e != expert)
    else:
        assert out[mine].isnan().all()
        assert same_bits(out[: mine.start], clean[: mine.start])
        assert same_bits(out[mine.stop :], clean[mine.stop :])


@pytest.mark.parametrize("op", ["fwd", "dgrad"])
def test_a_nan_row_reaches_no_other_row(op):
    sizes = (65, 100, 191)
    clean = ragged(sizes, N=392, K=264).computed(op)
    problem = ragged(sizes, N=392, K=264)
    spoilt = [0, 64, 65, 100, 164, 165, 355]

    for row in spoilt:
        spoil(problem, slice(row, row + 1))
    out = problem.computed(op)

    kept = [row for row in range(problem.M) if row not in spoilt]
    assert out[spoilt].isnan().all()
    assert same_bits(out[kept], clean[kept])


@pytest.mark.parametrize("op", ["fwd", "dgrad"])
def test_nan_weights_of_an_expert_reach_its_own_rows_alone(op):
    sizes = (65, 0, 100, 191)
    clean = ragged(sizes, N=392, K=264).computed(op)
    problem = ragged(sizes, N=392, K=264)
    mine = problem.groups[2]

    problem.w[1:3] = math.nan  # expert 1 has no rows
    out = problem.computed(op)

    assert out[mine].isnan().all()
    assert same_bits(out[: mine.start], clean[: mine.start])
    assert same_bits(out[mine.stop :], clean[mine.stop :])


@pytest.mark.parametrize(("op", "N", "K"), [("fwd", 8, 264), ("dgrad", 264, 8), ("wgrad", 8, 72), ("wgrad", 72, 8)])
def test_infinities_and_zeros_are_products_like_others(op, N, K):
    problem = ragged((70, 0, 1, 130), N=N, K=K)
    problem.x.zero_()
    problem.g.zero_()
    problem.x[5] = math.inf
    problem.g[5] = math.inf

    out = problem.computed(op)

    if op == "wgrad":
        assert out[0].eq(math.inf).all()
        assert not out[1:].any()
    else:
        # Weights of both signs, so that inf - inf is among the sums.
        assert out[5].isnan().all()
        assert not out[:5].any()
        assert not out[6:].any()


# ---- accumulation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("N", "K"), [(768, 640), (1032, 328), (8, 72), (384, 200)])
@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_accumulation_adds_in_fp32_and_rounds_once(dtype, N, K):
    problem = ragged((65, 0, 300, 1, 128), N=N, K=K, nobody=5)
    out = Guarded.randn((problem.E, N, K), dtype, seed=7)
    old = out.inner.clone()

    problem.run("wgrad", out.inner, accumulate=True)
    problem.assert_right("wgrad", out.inner, old=old)
    once = out.inner.clone()
    problem.run("wgrad", out.inner, accumulate=True)

    problem.assert_right("wgrad", out.inner, old=once)
    out.assert_intact()


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_accumulation_keeps_the_bits_of_an_expert_without_rows(dtype):
    problem = ragged((0, 65, 0, 0, 1, 0), N=264, K=392, nobody=70)
    out = problem.output("wgrad", dtype)  # canaries: NaN whose payload any arithmetic would lose
    rows = [expert for expert, group in enumerate(problem.groups) if group.start < group.stop]
    out.inner[rows] = 0
    before = bits(out.inner).clone()

    problem.run("wgrad", out.inner, accumulate=True)

    empty = [expert for expert in range(problem.E) if expert not in rows]
    assert torch.equal(bits(out.inner)[empty], before[empty])
    problem.assert_right("wgrad", out.inner, experts=rows)


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_accumulation_onto_zeros_is_the_plain_result(dtype):
    problem = ragged((65, 0, 300), N=392, K=264)
    out = problem.output("wgrad", dtype).inner.zero_()

    problem.run("wgrad", out, accumulate=True)

    assert torch.equal(out, problem.computed("wgrad", dtype))
