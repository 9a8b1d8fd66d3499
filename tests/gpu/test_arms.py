"""Every arm on the GPU: right, or silent for a reason that is written down here."""

import math
import re

import pytest
import torch

from cake_kernels import grouped_gemm
from cake_kernels.device import facts
from cake_kernels.errors import NoProgramError
from harness import arms
from harness.arms._previous import NOT_GIVEN
from harness.machine import read_machine
from harness.model.case import Case
from harness.model.shape import Shape
from harness.operands import make_operands
from tests.bench import fp64

pytestmark = pytest.mark.gpu

OPS = [("fwd", "bf16"), ("dX", "bf16"), ("dW", "bf16"), ("dW", "fp32")]
NAMES = arms.plugins.names("arms")
RAGGED = (162, 0, 2577, 446, 0, 83)
EDGES = (0, 1, 7, 129, 0)

# ‖out - ref‖ / ‖ref‖. BF16: one rounding is 2^-8 / √3 = 2.3e-3 at the mantissa where it hurts most. FP32: FP32 sums of
# at most 2577 products.
REL_L2 = {"bf16": 3e-3, "fp32": 1e-5}

COVERAGE = {
    ("torch_grouped_mm", "dW", "fp32"): "torch._grouped_mm cannot give FP32 dW from BF16 inputs",
    ("cublas_loop_autograd", "dW", "fp32"): "autograd gives the gradient of a BF16 weight in BF16, not FP32",
}
"""What an arm cannot do on any GPU machine, whatever is installed there."""


@pytest.fixture(scope="module")
def device():
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture(scope="module")
def machine():
    return read_machine("cuda")


def new_case(op, sizes, N, K, out_dtype="bf16"):
    shape = Shape(name="test", row_class="adhoc", N=N, K=K, group_sizes=sizes, distribution="given", source="a test")
    return Case(suite="adhoc", op=op, shape=shape, out_dtype=out_dtype)


def poisoned_call(arm):
    if arm.out is not None:
        arm.out.fill_(math.nan)
    output = arm.launch().clone()
    torch.cuda.synchronize()
    return output


def expected_reasons(name, case):
    """Return what ``name`` may say of ``case`` here: by what it can do, and by what is installed."""
    if name.startswith("previous_"):
        return re.escape(NOT_GIVEN)
    if name == "cudnn":
        library = r"nvidia-cudnn-frontend is not installed; .*|needs nvidia-cudnn-frontend >= .*"
        backend = {"dW": r"the weight gradient .*", "dX": r"dX reads W row-major, .*"}.get(case.op, r"moe_grouped.* .*")
        return f"{library}|{backend}"
    if name == "quack":
        return r"quack-kernels is not installed; .*|needs quack-kernels >= .*"
    return COVERAGE[name, case.op, case.out_dtype]


def check(name, case, device, machine):
    arm = arms.load(name)
    reason = arm.why_not(case, machine)
    if reason is not None:
        pattern = expected_reasons(name, case)
        assert reason == pattern or re.fullmatch(pattern, reason)
        return
    operands = make_operands(case, seed=0, device=device)
    reference = fp64(case, operands)
    prepared = arm.prepare(case, operands)
    for _ in range(2):
        output = poisoned_call(prepared)
        assert output.shape == reference.shape
        assert output.dtype == (torch.float32 if case.out_dtype == "fp32" else torch.bfloat16)
        assert (output.double() - reference).norm() / reference.norm() <= REL_L2[case.out_dtype]
        if case.op == "dW":
            assert all(not output[e].any() for e, size in enumerate(case.shape.group_sizes) if size == 0)
    fresh = make_operands(case, seed=0, device=device)
    for tensor, old in (
        (operands.x, fresh.x),
        (operands.w, fresh.w),
        (operands.g, fresh.g),
        (operands.offs, fresh.offs),
    ):
        assert tensor is None or torch.equal(tensor, old)


@pytest.mark.parametrize(("op", "out_dtype"), OPS)
@pytest.mark.parametrize("name", NAMES)
def test_arm_is_right_on_ragged_and_empty_groups_or_gives_its_reason(name, op, out_dtype, device, machine):
    check(name, new_case(op, RAGGED, N=768, K=2048, out_dtype=out_dtype), device, machine)


@pytest.mark.parametrize(("op", "out_dtype"), OPS)
@pytest.mark.parametrize("name", NAMES)
def test_arm_is_right_on_tiny_groups_or_gives_its_reason(name, op, out_dtype, device, machine):
    check(name, new_case(op, EDGES, N=128, K=192, out_dtype=out_dtype), device, machine)


@pytest.mark.parametrize("op", ["fwd", "dX", "dW"])
@pytest.mark.parametrize("name", NAMES)
def test_all_groups_empty_is_zeros_or_a_reason(name, op, device, machine):
    case = new_case(op, (0, 0), N=128, K=192)
    arm = arms.load(name)
    if arm.why_not(case, machine) is None:
        output = poisoned_call(arm.prepare(case, make_operands(case, seed=0, device=device)))

        assert tuple(output.shape) == {"fwd": (0, 128), "dX": (0, 192), "dW": (2, 128, 192)}[op]
        assert not output.any()
    else:
        missing = ("torch_grouped_mm", "cudnn", "quack", "cublas_loop_graph")
        assert name.startswith("previous_") or name in missing


def test_a_captured_loop_reads_its_operands_where_they_lie(device):
    case = new_case("fwd", RAGGED, N=768, K=2048)
    operands = make_operands(case, seed=0, device=device)
    prepared = arms.load("cublas_loop_graph").prepare(case, operands)
    first = poisoned_call(prepared)

    operands.x.mul_(-1)

    assert torch.equal(poisoned_call(prepared), -first)


def test_cudnn_notes_which_plan_it_chose_where_it_runs(device, machine):
    case = new_case("fwd", RAGGED, N=768, K=2048)
    arm = arms.load("cudnn")
    if arm.why_not(case, machine) is None:
        note = arm.prepare(case, make_operands(case, seed=0, device=device)).note

        assert re.fullmatch(r"plan [1-9]\d* of [1-9]\d*", note)
    else:
        assert re.fullmatch(expected_reasons("cudnn", case), arm.why_not(case, machine))


def test_rows_past_the_last_end_are_zeros_and_never_read_by_the_reference(device):
    x = torch.full((12, 64), math.nan, dtype=torch.bfloat16, device=device)
    x[:8] = 1
    w = torch.ones(2, 64, 64, dtype=torch.bfloat16, device=device)
    offs = torch.tensor([3, 8], dtype=torch.int32, device=device)

    y, dw = grouped_gemm.reference.forward(x, w, offs), grouped_gemm.reference.wgrad(x, x, offs)

    assert y[:8].eq(64).all()
    assert not y[8:].any()
    assert dw[:, 0, 0].tolist() == [3, 5]


def test_without_a_program_for_the_shape_the_call_raises_for_this_architecture(device):
    x = torch.zeros(8, 64, dtype=torch.bfloat16, device=device)
    w = torch.zeros(1, 60, 64, dtype=torch.bfloat16, device=device)
    offs = torch.tensor([8], dtype=torch.int32, device=device)

    with pytest.raises(NoProgramError) as caught:
        grouped_gemm.forward(x, w, offs, deterministic=False)

    assert f"no program for fwd (nondet, bf16 out) on {facts(device.index).arch}: " in str(caught.value)
    assert re.fullmatch(r"sm_\d+a?", facts(device.index).arch)
