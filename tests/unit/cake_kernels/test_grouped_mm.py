import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cake_kernels import grouped_gemm, grouped_mm
from cake_kernels.errors import ArgumentError, NoProgramError
from cake_kernels.offsets import ends_within

BF16, FP32, FP16 = torch.bfloat16, torch.float32, torch.float16

REL_L2 = {BF16: 3e-3, FP32: 1e-5}
"""One rounding to BF16 costs at most 2^-8 / √3 = 2.3e-3 of the norm; short FP32 sums cost next to nothing."""

WORST_ROUNDING = 2**-8 * 1.001
"""Few values may all be rounded by the most that there is."""


def randn(*size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(BF16)


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


@dataclass(kw_only=True)
class Inputs:
    """x, w, g, which may have any layout, and the FP64 results of their values; rows of nobody are NaN in x and g."""

    ends: tuple[int, ...] = (4, 4, 9)
    M: int = 10
    N: int = 24
    K: int = 16

    def __post_init__(self):
        E, read = len(self.ends), ends_within(self.ends, self.M)
        self.offs = int32(*self.ends)
        self.x, self.w = randn(self.M, self.K, seed=1), randn(E, self.N, self.K, seed=2)
        self.g = randn(self.M, self.N, seed=3)
        self.past = (0, *read)[-1]
        self.x[self.past :] = self.g[self.past :] = math.nan
        self.groups = [slice(*pair) for pair in pairwise((0, *read))]

    def leaves(self):
        return self.x.clone().requires_grad_(), self.w.clone().requires_grad_()

    def fp64(self, g=None):
        """Y, dX, dW, and zeros where nobody owns a row."""
        x, w, g = self.x.double(), self.w.double(), (self.g if g is None else g).double()
        y, dx, dw = torch.zeros_like(g), torch.zeros_like(x), torch.zeros_like(w)
        for e, rows in enumerate(self.groups):
            y[rows], dx[rows], dw[e] = x[rows] @ w[e].t(), g[rows] @ w[e], g[rows].t() @ x[rows]
        return y, dx, dw


def assert_near(value, expected, limit=None):
    error, norm = (value.double() - expected).norm(), expected.norm()
    assert error <= (limit or REL_L2[value.dtype]) * norm, f"{error} of {norm}"


def ops(calls):
    return [call.form.op for call in calls]


def test_the_result_is_that_of_grouped_gemm_and_so_are_the_gradients(calls):
    p = Inputs()
    x, w = p.leaves()

    y = grouped_mm(x, w, p.offs)
    y.backward(p.g)

    assert ops(calls) == ["fwd", "dgrad", "wgrad"]
    assert torch.equal(y, grouped_gemm.forward(p.x, p.w, p.offs))
    assert torch.equal(x.grad, grouped_gemm.dgrad(p.g, p.w, p.offs))
    assert torch.equal(w.grad, grouped_gemm.wgrad(p.g, p.x, p.offs))
    assert (y.dtype, x.grad.dtype, w.grad.dtype) == (BF16, BF16, BF16)
    assert y.is_contiguous()


@pytest.mark.parametrize("num_sms", [37, None])
def test_the_forward_and_both_gradients_may_occupy_num_sms(calls, num_sms):
    p = Inputs()
    x, w = p.leaves()

    y = grouped_mm(x, w, p.offs, num_sms=num_sms)
    y.backward(p.g)

    assert [(call.form.op, call.form.num_sms) for call in calls] == [(op, num_sms) for op in ("fwd", "dgrad", "wgrad")]
    assert torch.equal(y, grouped_gemm.forward(p.x, p.w, p.offs))


def row_padded(values):
    wide = torch.full((*values.shape[:-1], values.shape[-1] + 8), 7.0, dtype=values.dtype)
    wide[..., : values.shape[-1]] = values
    return wide[..., : values.shape[-1]]


def off_by_an_element(values):
    return torch.cat([values.new_zeros(1), values.flatten()])[1:].view(values.shape)


GRADIENTS = {
    "packed": torch.clone,
    "row-padded": row_padded,
    "transposed": lambda g: g.t().contiguous().t(),
    "unaligned": off_by_an_element,
    "expanded over rows": lambda g: g[:1].nan_to_num(1.0).expand(g.shape),
    "expanded over all": lambda g: g.new_ones(()).expand(g.shape),
}


@settings(max_examples=80)
@given(
    ends=st.lists(st.integers(-3, 14), max_size=5),
    M=st.integers(0, 11),
    N=st.integers(1, 9),
    K=st.integers(1, 9),
    needs_dx=st.booleans(),
    needs_dw=st.booleans(),
    padded=st.booleans(),
    as_view=st.booleans(),
    layout=st.sampled_from(sorted(GRADIENTS)),
)
def test_any_ends_flags_and_strides_give_what_an_fp64_loop_gives(
    ends, M, N, K, needs_dx, needs_dw, padded, as_view, layout
):
    p = Inputs(ends=tuple(ends), M=M, N=N, K=K)
    x, w = (row_padded(p.x), row_padded(p.w)) if padded else (p.x.clone(), p.w.clone())
    x.requires_grad_(needs_dx), w.requires_grad_(needs_dw)
    g = GRADIENTS[layout](p.g) if M else p.g
    y64, dx64, dw64 = p.fp64(g)

    y = grouped_mm(x, w.transpose(-2, -1) if as_view and N != K else w, p.offs)
    assert y.requires_grad == (needs_dx or needs_dw)
    if y.requires_grad:
        y.backward(g)

    assert_near(y.detach(), y64, WORST_ROUNDING)
    assert not y[p.past :].any()
    for leaf, needed, expected in ((x, needs_dx, dx64), (w, needs_dw, dw64)):
        assert (leaf.grad is not None) == needed
        if needed:
            assert_near(leaf.grad, expected, WORST_ROUNDING)
    assert x.grad is None or not x.grad[p.past :].any()


@pytest.mark.parametrize(
    ("ends", "rows"), [((0, 0), 0), ((), 6), ((0, 0), 6)], ids=["no rows", "no experts", "all empty"]
)
def test_without_rows_or_experts_gradients_are_zeros_or_empty(ends, rows):
    p = Inputs(ends=ends, M=rows)
    x, w = p.leaves()

    y = grouped_mm(x, w, p.offs)
    y.backward(p.g)

    assert (y.shape, x.grad.shape, w.grad.shape) == (p.g.shape, p.x.shape, p.w.shape)
    assert not any(t.any() for t in (y, x.grad, w.grad))


@pytest.mark.parametrize("layout", GRADIENTS)
def test_a_gradient_reaches_the_programs_as_they_can_address_it_and_is_else_not_copied(calls, layout):
    p = Inputs(M=9)
    x, w = p.leaves()
    g = GRADIENTS[layout](p.g)

    grouped_mm(x, w, p.offs).backward(g)

    assert ops(calls) == ["fwd", "dgrad", "wgrad"]
    assert all(call.a.is_contiguous() and call.a.data_ptr() % 16 == 0 for call in calls)
    assert {call.a.data_ptr() == g.data_ptr() for call in calls[1:]} == {layout == "packed"}


@pytest.mark.parametrize(
    ("frozen", "saved", "programs"),
    [
        ("x", ["x", "offs"], ["fwd", "wgrad"]),
        ("w", ["w", "offs"], ["fwd", "dgrad"]),
        ("", ["x", "w", "offs"], ["fwd", "dgrad", "wgrad"]),
        ("xw", [], ["fwd"]),
    ],
)
def test_only_what_a_wanted_gradient_reads_is_saved_and_only_wanted_gradients_are_computed(
    calls, frozen, saved, programs
):
    p = Inputs()
    leaves = dict(zip("xw", p.leaves(), strict=True))
    for name in frozen:
        leaves[name].requires_grad_(False)
    names = {leaves["x"].data_ptr(): "x", leaves["w"].data_ptr(): "w", p.offs.data_ptr(): "offs"}
    packed = []

    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(names[t.data_ptr()]) or t, lambda t: t):
        y = grouped_mm(leaves["x"], leaves["w"], p.offs)
    if y.requires_grad:
        y.backward(p.g)

    assert packed == saved
    assert ops(calls) == programs


def test_without_grad_nothing_is_saved_and_no_gradient_promised():
    p = Inputs()
    x, w = p.leaves()

    with torch.no_grad():
        y = grouped_mm(x, w, p.offs)

    assert y.grad_fn is None
    assert_near(y, p.fp64()[0])


@pytest.mark.parametrize("n", [1, 16])
def test_the_view_that_torchs_own_takes_is_read_in_place_and_its_gradient_comes_back(calls, n):
    p = Inputs(N=n)  # 16 is K: there the strides say which is which
    x, w = p.leaves()

    y = grouped_mm(x, w.transpose(-2, -1), p.offs)
    y.backward(p.g)

    assert (calls[0].b.data_ptr(), calls[0].b.stride()) == (w.data_ptr(), w.stride())
    assert_near(y.detach(), p.fp64()[0])
    assert_near(w.grad, p.fp64()[2])


def test_two_uses_in_one_graph_add_their_gradients(calls):
    p = Inputs()
    x, w = p.leaves()

    (grouped_mm(x, w, p.offs) + grouped_mm(x, w, p.offs)).backward(p.g)

    once = grouped_gemm.wgrad(p.g, p.x, p.offs)
    assert ops(calls) == ["fwd", "fwd", "dgrad", "wgrad", "dgrad", "wgrad"]
    assert torch.equal(w.grad, once + once)


def test_a_retained_graph_gives_the_same_gradients_again_without_a_forward(calls):
    p = Inputs()
    x, w = p.leaves()
    y = grouped_mm(x, w, p.offs)

    first = torch.autograd.grad(y, (x, w), p.g, retain_graph=True)
    second = torch.autograd.grad(y, (x, w), p.g)

    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert ops(calls) == ["fwd", "dgrad", "wgrad", "dgrad", "wgrad"]


@pytest.mark.parametrize("by", [lambda y: y.sum(), lambda y: y.square().sum()], ids=["y.sum()", "y.square().sum()"])
@pytest.mark.parametrize("which", [0, 1], ids=["x", "w"])
def test_a_second_derivative_is_an_error_and_never_a_missing_term(by, which):
    p = Inputs(M=9)
    leaves = p.leaves()
    (first,) = torch.autograd.grad(by(grouped_mm(*leaves, p.offs)), leaves[which], create_graph=True)

    with pytest.raises(NoProgramError, match="must not be differentiated again"):
        (first.sum() + leaves[0].sum()).backward()


def test_what_is_saved_and_changed_in_place_is_an_error_of_autograd():
    p = Inputs()
    x, w = p.leaves()
    y = grouped_mm(x, w, p.offs)
    p.offs.add_(1)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(p.g)


def test_saved_tensors_may_wait_elsewhere():
    p = Inputs()
    x, w = p.leaves()

    with torch.autograd.graph.save_on_cpu():
        y = grouped_mm(x, w, p.offs)
    y.backward(p.g)

    assert torch.equal(x.grad, grouped_gemm.dgrad(p.g, p.w, p.offs))


@pytest.mark.parametrize("backward_inside", [False, True])
@pytest.mark.parametrize(("x_dtype", "w_dtype"), [(FP32, BF16), (FP32, FP32), (FP16, FP16)])
def test_under_autocast_y_is_bf16_and_gradients_have_the_leaves_types(x_dtype, w_dtype, backward_inside):
    p = Inputs()
    x, w = p.x.to(x_dtype).requires_grad_(), p.w.to(w_dtype).requires_grad_()

    with torch.autocast("cpu", dtype=BF16):
        y = grouped_mm(x, w, p.offs)
        if backward_inside:
            y.backward(p.g)
    if not backward_inside:
        y.backward(p.g)

    assert (y.dtype, x.grad.dtype, w.grad.dtype) == (BF16, x_dtype, w_dtype)
    cast_x, cast_w = x.detach().to(BF16), w.detach().to(BF16)
    assert torch.equal(y, grouped_gemm.forward(cast_x, cast_w, p.offs))
    assert torch.equal(x.grad, grouped_gemm.dgrad(p.g, cast_w, p.offs).to(x_dtype))
    assert torch.equal(w.grad, grouped_gemm.wgrad(p.g, cast_x, p.offs).to(w_dtype))


def test_autocast_does_not_round_an_fp32_weight_gradient():
    p = Inputs()
    _, w = p.leaves()
    w.grad_dtype = FP32

    with torch.autocast("cpu", dtype=BF16):
        grouped_mm(p.x, w, p.offs, weight_grad_dtype=FP32).backward(p.g)

    assert torch.equal(w.grad, grouped_gemm.wgrad(p.g, p.x, p.offs, out_dtype=FP32))


@pytest.mark.parametrize("grad_dtype", [FP32, None])
def test_an_fp32_weight_gradient_is_delivered_unrounded_and_summed_in_fp32(grad_dtype):
    p = Inputs()
    x, w = p.leaves()
    w.grad_dtype = grad_dtype

    for _ in range(2):
        grouped_mm(x, w, p.offs, weight_grad_dtype=FP32).backward(p.g)

    once = grouped_gemm.wgrad(p.g, p.x, p.offs, out_dtype=FP32)
    assert not torch.equal(once, once.to(BF16).float())
    assert torch.equal(w.grad, once + once)
    assert x.grad.dtype == BF16


def test_a_frozen_weight_may_be_of_any_kind_with_an_fp32_weight_gradient():
    p = Inputs()
    x, _ = p.leaves()

    grouped_mm(x, p.w, p.offs, weight_grad_dtype=FP32).backward(p.g)

    assert torch.equal(x.grad, grouped_gemm.dgrad(p.g, p.w, p.offs))


P = Inputs()
W = P.w.clone().requires_grad_()

BROKEN = {
    "backend": (
        lambda: grouped_mm(P.x, P.w, P.offs, backend="cuda"),
        "backend must be one of auto, sm90, reference, got 'cuda'",
    ),
    "out_dtype": (
        lambda: grouped_mm(P.x, P.w, P.offs, out_dtype=FP32),
        "out_dtype must be None or torch.bfloat16, got torch.float32; cast the result instead",
    ),
    "weight_grad_dtype": (
        lambda: grouped_mm(P.x, P.w, P.offs, weight_grad_dtype=BF16),
        "weight_grad_dtype must be None or torch.float32, got torch.bfloat16; None gives dW the type of w",
    ),
    "num_sms": (
        lambda: grouped_mm(P.x, P.w, P.offs, num_sms=1),
        "num_sms must be an int of at least 2, for a cluster of two CTAs, or None for all SMs, got 1",
    ),
    "num_sms a bool": (
        lambda: grouped_mm(P.x, P.w, P.offs, backend="reference", num_sms=True),
        "num_sms must be an int of at least 2, for a cluster of two CTAs, or None for all SMs, got True",
    ),
    "x no tensor": (lambda: grouped_mm([1], P.w, P.offs), "x must be a torch.Tensor, got list"),
    "w no tensor": (lambda: grouped_mm(P.x, None, P.offs), "w must be a torch.Tensor, got NoneType"),
    "offs no tensor": (lambda: grouped_mm(P.x, P.w, None), "offs must be a torch.Tensor, got NoneType"),
    "x a scalar": (
        lambda: grouped_mm(torch.tensor(1.0, dtype=BF16), P.w, P.offs),
        "x must have shape [M, K], got []",
    ),
    "x a batch": (lambda: grouped_mm(P.x[None], P.w, P.offs), "x must have shape [M, K], got [1, 10, 16]"),
    "w a scalar": (
        lambda: grouped_mm(P.x, torch.tensor(1.0, dtype=BF16), P.offs),
        "w must have shape [E, N, K], got []",
    ),
    "x fp32": (
        lambda: grouped_mm(P.x.float(), P.w, P.offs),
        "x must be torch.bfloat16, got torch.float32; nothing is cast here",
    ),
    "all on meta": (
        lambda: grouped_mm(P.x.to("meta"), P.w.to("meta"), P.offs.to("meta")),
        "x must be on a CPU or a CUDA device, got meta",
    ),
    "w other K": (
        lambda: grouped_mm(P.x, P.w[..., :9], P.offs),
        "w.shape[2] must be K = 16, the columns of x, got 9",
    ),
    "w of torch's form, but packed": (
        lambda: grouped_mm(P.x, P.w.transpose(-2, -1).contiguous(), P.offs),
        "w must have unit stride along its last dimension and rows that do not overlap, got strides (384, 1, 24) for"
        " shape [3, 24, 16]; pass w.contiguous()",
    ),
    "offs a prefix": (
        lambda: grouped_mm(P.x, P.w, int32(0, 4, 4, 9)),
        "offs must have one cumulative end for each of the E = 3 experts of w, got 4;"
        " a prefix that starts with 0 is passed as indptr, or without that 0",
    ),
    "fp32 dW of a leaf that does not take it": (
        lambda: grouped_mm(P.x, W, P.offs, weight_grad_dtype=FP32),
        "w.grad_dtype must be torch.float32 or None for weight_grad_dtype=torch.float32, got torch.bfloat16, to which"
        " autograd would round dW; set w.grad_dtype = torch.float32 once, when the parameter is made",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_argument_is_refused_with_name_rule_and_value(name, calls):
    call, message = BROKEN[name]

    with pytest.raises(ArgumentError) as caught:
        call()

    assert str(caught.value) == message
    assert ops(calls) == []


def test_an_fp32_weight_gradient_is_refused_where_autograd_would_round_it():
    with pytest.raises(ArgumentError, match=r"w must be a leaf for weight_grad_dtype=torch.float32, got the result of"):
        grouped_mm(P.x, W.transpose(-2, -1), P.offs, weight_grad_dtype=FP32)


def test_autocast_to_fp16_is_refused():
    with torch.autocast("cpu", dtype=torch.float16), pytest.raises(ArgumentError, match="autocast must be to torch.bf"):
        grouped_mm(P.x, P.w, P.offs)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.vmap])
def test_a_transform_of_torch_func_is_refused_by_torch(transform):
    with pytest.raises(RuntimeError, match="functorch transforms"):
        transform(lambda x: grouped_mm(x, P.w, P.offs).sum())(P.x if transform is torch.func.grad else P.x[None])


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own, on first use
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("of", ["x", "w"])
def test_forward_mode_is_refused_by_torch_rather_than_a_tangent_dropped(of, mode):
    given = {"x": P.x, "w": P.w, "offs": P.offs}

    with mode(), torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
        grouped_mm(**{**given, of: torch.autograd.forward_ad.make_dual(given[of], given[of])})
