"""Which tensors the grouped GEMM takes on a GPU: contiguous, padded and sliced ones; others are refused, unwritten."""

import math

import pytest
import torch

from cake_kernels import grouped_gemm
from cake_kernels.errors import ArgumentError
from tests.gpu.ragged import BF16, DEVICE, FP32, OPS, Ragged, cuda_only, ragged

pytestmark = pytest.mark.gpu

every_op = pytest.mark.parametrize(("op", "dtype"), OPS, ids=["fwd", "dgrad", "wgrad-bf16", "wgrad-fp32"])

SIZES = (65, 0, 130, 1)


def call(
    problem: Ragged, op: str, dtype: torch.dtype, a: torch.Tensor, b: torch.Tensor, **given: object
) -> torch.Tensor:
    """Call the public function with these operands instead of the problem's."""
    given = given or {"offs": problem.offs}
    if op == "wgrad":
        return grouped_gemm.wgrad(a, b, out_dtype=dtype, **given)
    return {"fwd": grouped_gemm.forward, "dgrad": grouped_gemm.dgrad}[op](a, b, **given)


@every_op
def test_contiguous_operands_and_a_new_output_are_right(op, dtype):
    problem = ragged(SIZES, N=264, K=392, nobody=4)
    a, b = (tensor.contiguous() for tensor in problem.operands(op))

    out = call(problem, op, dtype, a, b)

    assert out.is_contiguous()
    problem.assert_right(op, out)


@pytest.mark.parametrize("columns", [8, 24, 1000, 4096])
@every_op
def test_rows_far_apart_are_right(op, dtype, columns):
    # flashinfer-ai/flashinfer#3103: an output's strides were ignored, and what lay between its rows was lost.
    problem = ragged(SIZES, N=264, K=392, nobody=4)
    a, b = (
        torch.nn.functional.pad(tensor, (0, columns), value=math.nan)[..., :-columns] for tensor in problem.operands(op)
    )

    problem.assert_right(op, call(problem, op, dtype, a, b))


@pytest.mark.parametrize("op", ["fwd", "dgrad"])
def test_every_second_expert_of_a_larger_tensor_is_right(op):
    problem = ragged(SIZES, N=264, K=392)
    a, w = problem.operands(op)
    apart = torch.full((4, 2, 264, 392), math.nan, dtype=BF16, device=DEVICE)
    apart[:, 0] = w

    problem.assert_right(op, call(problem, op, BF16, a, apart[:, 0]))


@every_op
def test_one_row_and_one_expert_may_have_any_stride(op, dtype):
    problem = ragged((1,), N=264, K=392)
    a, b = problem.operands(op)

    def odd(tensor: torch.Tensor) -> torch.Tensor:
        made = tensor.contiguous()
        return made.as_strided(made.shape, (12345, *made.stride()[1:]))

    problem.assert_right(op, call(problem, op, dtype, odd(a), odd(b)))


@every_op
def test_indptr_is_read_behind_its_first_element(op, dtype):
    problem = ragged(SIZES, N=264, K=392, nobody=4)
    indptr = torch.tensor([12345, *problem.offs_values], dtype=torch.int32, device=DEVICE)

    problem.assert_right(op, call(problem, op, dtype, *problem.operands(op), indptr=indptr))


@every_op
def test_without_rows_there_is_an_empty_output_or_zeros(op, dtype):
    problem = ragged((0, 0, 0), N=264, K=392)

    out = problem.computed(op, dtype)

    assert not out.any()


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_accumulation_without_rows_keeps_every_bit(dtype):
    problem = ragged((0, 0), N=264, K=392)
    out = problem.output("wgrad", dtype)
    before = out.whole.view(torch.int16).clone()

    problem.run("wgrad", out.inner, accumulate=True)

    assert torch.equal(out.whole.view(torch.int16), before)


@every_op
def test_without_experts_all_rows_are_nobodys(op, dtype):
    problem = ragged((), N=264, K=392, nobody=70)

    problem.assert_right(op, problem.computed(op, dtype))


# ---- refused -------------------------------------------------------------------------------------------------------


def shifted(tensor: torch.Tensor, elements: int) -> torch.Tensor:
    """Return a tensor of the same form that begins ``elements`` after a multiple of 16 bytes."""
    room = torch.zeros(tensor.numel() + elements, dtype=tensor.dtype, device=DEVICE)
    return room[elements:].view(tensor.shape)


def with_stride(tensor: torch.Tensor, row_stride: int) -> torch.Tensor:
    """Return a tensor of the same form whose rows are ``row_stride`` elements apart."""
    room = torch.zeros(*tensor.shape[:-1], row_stride, dtype=tensor.dtype, device=DEVICE)
    return room[..., : tensor.shape[-1]]


REFUSED = {
    "transposed": (lambda t: t.mT.contiguous().mT, "must have unit stride along its last dimension"),
    "every second column": (lambda t: t.repeat_interleave(2, -1)[..., ::2], "must have unit stride along its last"),
    "expanded": (lambda t: t[:1].expand(t.shape), "must have unit stride .* rows that do not overlap"),
}
REFUSED_ON_CUDA = {
    "begins at 2 bytes": (
        lambda t: shifted(t, 1),
        r"must begin at a multiple of 16 bytes on CUDA, got an address 2 bytes",
    ),
    "begins at 8 bytes": (
        lambda t: shifted(t, 4),
        r"must begin at a multiple of 16 bytes on CUDA, got an address 8 bytes",
    ),
    "rows 2 bytes off": (lambda t: with_stride(t, 521), r"must have outer strides that are multiples of 16 bytes"),
    "rows 8 bytes off": (lambda t: with_stride(t, 524), r"must have outer strides that are multiples of 16 bytes"),
}


def assert_refused(op, spoilt, change, message):
    problem = ragged(SIZES, N=264, K=392)
    out = problem.output(op)
    a, b = problem.operands(op)
    given = {"a": a, "b": b, spoilt: change(a if spoilt == "a" else b)}

    with pytest.raises(ArgumentError, match=message):
        call(problem, op, BF16, given["a"], given["b"], offs=problem.offs, out=out.inner)

    assert out.inner.isnan().all()
    out.assert_intact()


@pytest.mark.parametrize("change", REFUSED)
@pytest.mark.parametrize("spoilt", ["a", "b"])
@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_an_operand_of_another_layout_is_refused_before_anything_is_written(op, spoilt, change):
    # huggingface/transformers#48644.
    assert_refused(op, spoilt, *REFUSED[change])


@pytest.mark.parametrize("change", REFUSED)
@every_op
def test_an_output_of_another_layout_is_refused_before_anything_is_written(op, dtype, change):
    problem = ragged(SIZES, N=264, K=392)
    alter, message = REFUSED[change]
    out = alter(torch.zeros_like(problem.output(op, dtype).inner))

    with pytest.raises(ArgumentError, match=f"out {message}"):
        problem.run(op, out)

    assert not out.any()


@cuda_only
@pytest.mark.parametrize("change", REFUSED_ON_CUDA)
@pytest.mark.parametrize("spoilt", ["a", "b"])
@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_an_operand_that_tma_cannot_address_is_refused_before_anything_is_written(op, spoilt, change):
    assert_refused(op, spoilt, *REFUSED_ON_CUDA[change])


@cuda_only
@pytest.mark.parametrize(("elements", "row_stride"), [(1, None), (0, 521), (0, 522)])
@every_op
def test_an_output_that_tma_cannot_address_is_refused_before_anything_is_written(op, dtype, elements, row_stride):
    problem = ragged(SIZES, N=264, K=392)
    form = problem.output(op, dtype).inner
    out = shifted(form, elements) if row_stride is None else with_stride(form, row_stride)

    with pytest.raises(ArgumentError, match="out must .* multiples? of 16 bytes on CUDA"):
        problem.run(op, out)

    assert not out.any()


@cuda_only
@pytest.mark.parametrize(("N", "K", "named"), [(264, 1025, "K"), (1025, 264, "N"), (4, 264, "N"), (264, 12, "K")])
@every_op
def test_extents_that_are_no_multiple_of_8_are_refused_with_rule_and_value(op, dtype, N, K, named):
    # huggingface/transformers#48644.
    problem = ragged(SIZES, N=N, K=K)
    a, b = (torch.zeros(tensor.shape, dtype=BF16, device=DEVICE) for tensor in problem.operands(op))
    out = torch.zeros(problem.output(op, dtype).inner.shape, dtype=dtype, device=DEVICE)

    value = N if named == "N" else K
    with pytest.raises(ValueError, match=rf"{named} a multiple of 8, got {value}"):
        call(problem, op, dtype, a, b, offs=problem.offs, out=out)
