"""Every arm that runs on a CPU computes what FP64 does, from a poisoned output, again and again."""

import math
from dataclasses import fields

import pytest
import torch

from harness import arms
from harness.operands import make_operands
from tests.bench import fp64

CPU = torch.device("cpu")
ON_CPU = ("torch_grouped_mm", "cublas_loop", "cublas_loop_autograd", "reference")
# Ours run here too: prepare does not ask why_not, and the library's CPU program is its reference.
COMPUTING = (*ON_CPU, "cake_det", "cake_nondet")
ALL_SIZES = [(3, 0, 5), (0, 7, 1), (8, 0, 0), (1,), (0, 0, 33, 0, 7)]

# One rounding to BF16: 2^-8 of the value; FP32 sums of at most 33 products of standard normals: far below 2^-8.
CLOSE = {"rtol": 2**-8, "atol": 2**-8}


@pytest.mark.parametrize("sizes", ALL_SIZES, ids=str)
@pytest.mark.parametrize("op", ["fwd", "dX", "dW"])
@pytest.mark.parametrize("name", COMPUTING)
def test_arm_equals_fp64_from_a_poisoned_output_and_gives_the_same_bits_again(name, op, sizes, new_case):
    case = new_case(op, sizes)
    operands = make_operands(case, seed=0, device=CPU)
    arm = arms.load(name).prepare(case, operands)
    if arm.out is not None:
        arm.out.fill_(math.nan)

    first = arm.launch().clone()
    second = arm.launch()

    assert first.dtype == torch.bfloat16
    torch.testing.assert_close(first.double(), fp64(case, operands), **CLOSE)
    assert torch.equal(first, second)


@pytest.mark.parametrize("sizes", [(3, 0, 5), (162, 0, 2577, 446, 0, 83)], ids=str)
@pytest.mark.parametrize("name", COMPUTING)
def test_dw_of_an_empty_group_is_exactly_zero_in_every_call(name, sizes, new_case):
    # pytorch/pytorch#172439, #154557 and #193633: of what nobody writes, the memory's old content stays.
    case = new_case("dW", sizes)
    empty = [expert for expert, size in enumerate(sizes) if size == 0]
    arm = arms.load(name).prepare(case, make_operands(case, seed=0, device=CPU))
    for _ in range(2):
        if arm.out is not None:
            arm.out.fill_(math.nan)

        assert not arm.launch()[empty].any()


@pytest.mark.parametrize("name", ["reference", "cake_det", "cake_nondet"])
def test_fp32_dw_is_fp32_all_the_way(name, new_case):
    case = new_case("dW", out_dtype="fp32")
    operands = make_operands(case, seed=0, device=CPU)

    dw = arms.load(name).prepare(case, operands).launch()

    assert dw.dtype == torch.float32
    torch.testing.assert_close(dw.double(), fp64(case, operands), rtol=2**-20, atol=2**-20)


@pytest.mark.parametrize("name", COMPUTING)
@pytest.mark.parametrize("op", ["fwd", "dX", "dW"])
def test_inputs_are_left_as_they_were(name, op, new_case):
    case = new_case(op)
    operands, fresh = (make_operands(case, seed=0, device=CPU) for _ in range(2))

    arms.load(name).prepare(case, operands).launch()

    for tensor, old in ((getattr(operands, f.name), getattr(fresh, f.name)) for f in fields(operands)):
        assert tensor == old if tensor is None or isinstance(tensor, tuple) else torch.equal(tensor, old)
        assert not getattr(tensor, "requires_grad", False)


@pytest.mark.parametrize("op", ["fwd", "dX", "dW"])
def test_outputs_of_arms_are_separate_and_ask_for_no_gradient(op, new_case):
    case = new_case(op)
    operands = make_operands(case, seed=0, device=CPU)
    prepared = [arms.load(name).prepare(case, operands) for name in COMPUTING]
    outputs = [arm.launch() for arm in prepared]

    assert len({output.untyped_storage().data_ptr() for output in outputs}) == len(COMPUTING)
    assert not any(output.requires_grad for output in outputs)


@pytest.mark.parametrize("name", ["cublas_loop", "reference", "cake_det", "cake_nondet"])
def test_a_preallocated_output_is_the_one_returned(name, new_case):
    case = new_case("dX")
    arm = arms.load(name).prepare(case, make_operands(case, seed=0, device=CPU))

    assert arm.launch() is arm.out


@pytest.mark.parametrize("op", ["fwd", "dX", "dW"])
@pytest.mark.parametrize("name", ["cublas_loop", "cublas_loop_autograd", "reference"])
def test_all_groups_empty_gives_an_empty_output_or_a_zero_dw(name, op, new_case):
    # pytorch/pytorch#192497.
    case = new_case(op, (0, 0))

    output = arms.load(name).prepare(case, make_operands(case, seed=0, device=CPU)).launch()

    assert tuple(output.shape) == {"fwd": (0, 16), "dX": (0, 24), "dW": (2, 16, 24)}[op]
    assert not output.any()


def test_a_missing_operand_is_named(new_case):
    operands = make_operands(new_case("dX"), seed=0, device=CPU)

    with pytest.raises(ValueError) as caught:
        arms.load("cublas_loop").prepare(new_case("fwd"), operands)

    assert str(caught.value) == "operand x must be given for fwd, got None"
