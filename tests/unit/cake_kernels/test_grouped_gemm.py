import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cake_kernels import grouped_gemm
from cake_kernels.grouped_gemm import reference
from cake_kernels.offsets import ends_within

BF16 = torch.bfloat16
# One rounding to BF16 is off by at most 2^-8 of the value. FP32 sums of at most 400 products are off by far less than
# 2^-14 √n of a standard normal sum; 2^-8 of 1 covers that next to zero.
CLOSE = {"rtol": 2**-8, "atol": 2**-8}
# FP32 output: only the summation's error, n ulps of the largest partial sum at the very worst.
CLOSE_FP32 = {"rtol": 2**-20, "atol": 2**-14}

SIZES = [
    (5,),
    (0,),
    (0, 0, 0),
    (0, 1, 7),
    (1, 0, 7),
    (1, 7, 0),
    (7, 1, 0, 0, 1),
    (0, 0, 33, 0),
    (64, 0, 65, 1, 63),
    (1,) * 17,
]


def randn(*size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(BF16)


def inputs(sizes, N=24, K=40, past=0):
    """x, w, g, offs; the ``past`` rows after the last group hold NaN."""
    M = sum(sizes) + past
    x, w, g = randn(M, K, seed=1), randn(len(sizes), N, K, seed=2), randn(M, N, seed=3)
    x[sum(sizes) :], g[sum(sizes) :] = math.nan, math.nan
    return x, w, g, torch.tensor(sizes).cumsum(0, dtype=torch.int32)


def fp64(x, w, g, ends):
    """Y, dX, dW by a loop over experts in FP64; rows of no group are zero."""
    M, E = (g if x is None else x).shape[0], len(ends)
    y = torch.zeros(M, w.shape[1], dtype=torch.float64)
    dx = torch.zeros(M, w.shape[2], dtype=torch.float64)
    dw = torch.zeros(w.shape, dtype=torch.float64)
    for e in range(E):
        rows = slice(ends[e - 1] if e else 0, ends[e])
        y[rows] = x[rows].double() @ w[e].double().t()
        dx[rows] = g[rows].double() @ w[e].double()
        dw[e] = g[rows].double().t() @ x[rows].double()
    return y, dx, dw


@pytest.mark.parametrize("past", [0, 9])
@pytest.mark.parametrize("sizes", SIZES)
def test_values_equal_fp64_and_nan_past_the_end_is_never_read(sizes, past):
    x, w, g, offs = inputs(sizes, past=past)
    y64, dx64, dw64 = fp64(x, w, g, offs.tolist())

    y, dx = grouped_gemm.forward(x, w, offs), grouped_gemm.dgrad(g, w, offs)
    dw, dw32 = grouped_gemm.wgrad(g, x, offs), grouped_gemm.wgrad(g, x, offs, out_dtype=torch.float32)

    assert (y.dtype, dx.dtype, dw.dtype, dw32.dtype) == (BF16, BF16, BF16, torch.float32)
    torch.testing.assert_close(y.double(), y64, **CLOSE)
    torch.testing.assert_close(dx.double(), dx64, **CLOSE)
    torch.testing.assert_close(dw.double(), dw64, **CLOSE)
    torch.testing.assert_close(dw32.double(), dw64, **CLOSE_FP32)


@pytest.mark.parametrize("past", [0, 9])
@pytest.mark.parametrize("sizes", SIZES)
def test_rows_of_no_group_and_dw_of_empty_groups_are_exact_zeros_in_a_poisoned_output(sizes, past):
    x, w, g, offs = inputs(sizes, past=past)
    y, dx, dw = (
        torch.full((x.shape[0], 24), math.nan).to(BF16),
        torch.full_like(x, math.nan),
        torch.full_like(w, math.nan),
    )

    grouped_gemm.forward(x, w, offs, out=y)
    grouped_gemm.dgrad(g, w, offs, out=dx)
    grouped_gemm.wgrad(g, x, offs, out=dw)

    assert not y[sum(sizes) :].any()
    assert not dx[sum(sizes) :].any()
    assert all(not dw[e].any() for e, size in enumerate(sizes) if size == 0)
    assert not any(t.isnan().any() for t in (y, dx, dw))


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    past=st.integers(0, 4),
    N=st.integers(1, 20),
    K=st.integers(1, 20),
)
def test_each_group_is_the_group_alone(sizes, past, N, K):
    x, w, g, offs = inputs(sizes, N=N, K=K, past=past)

    y, dx, dw = grouped_gemm.forward(x, w, offs), grouped_gemm.dgrad(g, w, offs), grouped_gemm.wgrad(g, x, offs)

    start = 0
    for e, size in enumerate(sizes):
        rows = slice(start, start + size)
        start += size
        xe, ge, we = x[rows].float(), g[rows].float(), w[e].float()
        assert torch.equal(y[rows], torch.mm(xe, we.t()).to(BF16))
        assert torch.equal(dx[rows], torch.mm(ge, we).to(BF16))
        assert torch.equal(dw[e], torch.mm(ge.t(), xe).to(BF16))


def padded(values, pad):
    """The same values at rows, and experts, that are ``pad`` elements further apart; what lies between holds 7."""
    *outer, columns = values.shape
    wide = torch.full((*outer, columns + pad), 7.0, dtype=values.dtype)
    wide[..., :columns] = values
    return wide[..., :columns], wide[..., columns:]


@settings(max_examples=80, deadline=None)
@given(
    ends=st.lists(st.integers(-3, 14), max_size=5),
    M=st.integers(0, 11),
    N=st.integers(1, 9),
    K=st.integers(1, 9),
    pad=st.integers(0, 3),
    unread=st.integers(-(2**31), 2**31 - 1),
    as_indptr=st.booleans(),
)
def test_any_ends_any_rows_any_padding_give_what_a_loop_gives(ends, M, N, K, pad, unread, as_indptr):
    E, read = len(ends), ends_within(ends, M)
    x, w, g = randn(M, K, seed=1), randn(E, N, K, seed=2), randn(M, N, seed=3)
    past = read[-1] if read else 0
    y64, dx64, dw64 = fp64(x, w, g, read)
    x[past:], g[past:] = math.nan, math.nan
    (x, _), (w, _), (g, _) = padded(x, pad), padded(w, pad), padded(g, pad)
    (y, y_pad), (dx, dx_pad), (dw, dw_pad) = (padded(torch.full_like(t, math.nan), pad) for t in (g, x, w))
    if as_indptr:
        groups = {"indptr": torch.tensor([unread, *ends], dtype=torch.int32)}
    else:
        groups = {"offs": torch.tensor(ends, dtype=torch.int32)}

    grouped_gemm.forward(x, w, **groups, out=y)
    grouped_gemm.dgrad(g, w, **groups, out=dx)
    grouped_gemm.wgrad(g, x, **groups, out=dw)

    torch.testing.assert_close(y.double(), y64, **CLOSE)
    torch.testing.assert_close(dx.double(), dx64, **CLOSE)
    torch.testing.assert_close(dw.double(), dw64, **CLOSE)
    assert not y[past:].any()
    assert not dx[past:].any()
    assert all(bool((t == 7).all()) for t in (y_pad, dx_pad, dw_pad))


def test_without_rows_y_and_dx_are_empty_and_dw_is_zeros():
    x, w, g, offs = inputs((0, 0))
    dw = torch.full_like(w, math.nan)

    assert grouped_gemm.forward(x, w, offs).shape == (0, 24)
    assert grouped_gemm.dgrad(g, w, offs).shape == (0, 40)
    assert torch.equal(grouped_gemm.wgrad(g, x, offs, out=dw), torch.zeros(2, 24, 40, dtype=BF16))


def test_without_rows_an_accumulating_call_leaves_every_bit():
    x, w, g, offs = inputs((0, 0))
    dw = torch.full_like(w, -0.0)

    grouped_gemm.wgrad(g, x, offs, accumulate=True, out=dw)

    assert dw.signbit().all()


def test_without_experts_every_row_is_nobodys_and_dw_is_empty():
    x, w, g, offs = inputs((), past=5)

    assert torch.equal(grouped_gemm.forward(x, w, offs), torch.zeros(5, 24, dtype=BF16))
    assert torch.equal(grouped_gemm.dgrad(g, w, offs), torch.zeros(5, 40, dtype=BF16))
    assert grouped_gemm.wgrad(g, x, offs).shape == (0, 24, 40)
    assert torch.equal(grouped_gemm.forward(x, w, indptr=torch.zeros(1, dtype=torch.int32)), torch.zeros(5, 24))


@pytest.mark.parametrize("ends", [(5, 2, 8), (-3, 4, 99), (99, 1, 2), (-1, -2, -3), (0, 0, 10)])
def test_broken_offs_are_read_as_their_running_maximum_within_the_rows(ends):
    x, w, g = randn(10, 40, seed=1), randn(3, 24, 40, seed=2), randn(10, 24, seed=3)
    y64, dx64, dw64 = fp64(x, w, g, ends_within(ends, 10))
    offs = torch.tensor(ends, dtype=torch.int32)

    torch.testing.assert_close(grouped_gemm.forward(x, w, offs).double(), y64, **CLOSE)
    torch.testing.assert_close(grouped_gemm.dgrad(g, w, offs).double(), dx64, **CLOSE)
    torch.testing.assert_close(grouped_gemm.wgrad(g, x, offs).double(), dw64, **CLOSE)


def test_one_rounding_at_the_store_not_one_a_product():
    # 1 + 3 · 2^-9 lies between the BF16 neighbours 1 and 1 + 2^-7, nearer to the upper. Rounding after each product
    # would stay at 1: 2^-9 alone is below half a unit.
    x, w = torch.tensor([[1.0, 1.0, 1.0, 1.0]]).to(BF16), torch.tensor([[[1.0, 2**-9, 2**-9, 2**-9]]]).to(BF16)

    y = grouped_gemm.forward(x, w, torch.tensor([1], dtype=torch.int32))

    assert y.item() == 1 + 2**-7


@pytest.mark.parametrize("out_dtype", [BF16, torch.float32])
def test_accumulate_adds_in_fp32_and_rounds_once(out_dtype):
    sizes = (3, 0, 5)
    x, _, g, offs = inputs(sizes)
    old = randn(3, 24, 40, seed=4).to(out_dtype)
    out = old.clone()

    returned = grouped_gemm.wgrad(g, x, offs, out_dtype=out_dtype, accumulate=True, out=out)

    fresh = grouped_gemm.wgrad(g, x, offs, out_dtype=torch.float32)
    assert returned is out
    assert torch.equal(out, (old.float() + fresh).to(out_dtype))


@pytest.mark.parametrize("out_dtype", [BF16, torch.float32])
def test_accumulate_leaves_the_bits_of_an_empty_group(out_dtype):
    x, _, g, offs = inputs((0, 4))
    out = torch.full((2, 24, 40), -0.0, dtype=out_dtype)

    grouped_gemm.wgrad(g, x, offs, out_dtype=out_dtype, accumulate=True, out=out)

    assert out[0].signbit().all()


def test_out_is_written_returned_and_may_be_row_padded_with_its_padding_untouched():
    x, w, g, offs = inputs((2, 3))
    wide_y, wide_dx = torch.full((5, 32), 7.0).to(BF16), torch.full((5, 64), 7.0).to(BF16)
    wide_dw = torch.full((2, 30, 48), 7.0)
    y, dx, dw = wide_y[:, :24], wide_dx[:, :40], wide_dw[:, :24, :40]

    assert grouped_gemm.forward(x, w, offs, out=y) is y
    assert grouped_gemm.dgrad(g, w, offs, out=dx) is dx
    assert grouped_gemm.wgrad(g, x, offs, out_dtype=torch.float32, out=dw) is dw

    assert torch.equal(y, grouped_gemm.forward(x, w, offs))
    assert torch.equal(dx, grouped_gemm.dgrad(g, w, offs))
    assert torch.equal(dw, grouped_gemm.wgrad(g, x, offs, out_dtype=torch.float32))
    assert (wide_y[:, 24:] == 7).all()
    assert (wide_dx[:, 40:] == 7).all()
    assert (wide_dw[:, 24:] == 7).all()
    assert (wide_dw[:, :, 40:] == 7).all()


def test_row_padded_inputs_give_the_same_bits():
    x, w, g, offs = inputs((2, 3))
    xp, gp = torch.full((5, 64), math.nan).to(BF16), torch.full((5, 64), math.nan).to(BF16)
    wp = torch.full((2, 30, 48), math.nan).to(BF16)
    xp[:, :40], gp[:, :24], wp[:, :24, :40] = x, g, w
    xp, gp, wp = xp[:, :40], gp[:, :24], wp[:, :24, :40]

    assert torch.equal(grouped_gemm.forward(xp, wp, offs), grouped_gemm.forward(x, w, offs))
    assert torch.equal(grouped_gemm.dgrad(gp, wp, offs), grouped_gemm.dgrad(g, w, offs))
    assert torch.equal(grouped_gemm.wgrad(gp, xp, offs), grouped_gemm.wgrad(g, x, offs))


def test_inputs_are_not_written():
    x, w, g, offs = inputs((2, 3), past=1)
    before = [t.clone() for t in (x, w, g, offs)]

    grouped_gemm.forward(x, w, offs)
    grouped_gemm.dgrad(g, w, offs)
    grouped_gemm.wgrad(g, x, offs)

    for tensor, old in zip((x, w, g, offs), before, strict=True):
        assert torch.equal(tensor.nan_to_num(9.0), old.nan_to_num(9.0))


def test_no_gradient_flows():
    x, w, _, offs = inputs((2, 3))

    assert not grouped_gemm.forward(x.requires_grad_(), w.requires_grad_(), offs).requires_grad


def test_on_the_cpu_both_variants_are_the_reference_bit_for_bit():
    x, w, g, offs = inputs((2, 0, 3))
    for deterministic in (True, False):
        assert torch.equal(grouped_gemm.forward(x, w, offs, deterministic=deterministic), reference.forward(x, w, offs))
        assert torch.equal(grouped_gemm.dgrad(g, w, offs, deterministic=deterministic), reference.dgrad(g, w, offs))
        assert torch.equal(grouped_gemm.wgrad(g, x, offs, deterministic=deterministic), reference.wgrad(g, x, offs))


def test_the_callers_autocast_does_not_round_the_sums():
    x, _, g, offs = inputs((33, 7))

    plain = grouped_gemm.wgrad(g, x, offs, out_dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        under = grouped_gemm.wgrad(g, x, offs, out_dtype=torch.float32)

    assert torch.equal(under, plain)
