"""The checkpointed steps on the GPU: right in all three results, and made by the thread that calls."""

import threading

import pytest
import torch

from harness import arms
from harness.arms._step import step
from harness.correctness import check_arms
from harness.machine import read_machine
from harness.model.case import STEPS, Case
from harness.model.shape import Shape
from harness.operands import make_operands

pytestmark = pytest.mark.gpu

RAGGED = (162, 0, 2577, 446, 0, 83)


def new_case(op, sizes=RAGGED, N=768, K=2048):
    shape = Shape(name="test", row_class="adhoc", N=N, K=K, group_sizes=sizes, distribution="given", source="a test")
    return Case(suite="adhoc", op=op, shape=shape)


@pytest.mark.parametrize("op", STEPS)
@pytest.mark.parametrize("name", ["cake_det", "torch_grouped_mm", "cublas_loop_autograd", "reference"])
def test_y_and_both_gradients_are_right_again_and_again(name, op):
    case, arm = new_case(op), arms.load(name)
    operands = make_operands(case, seed=0, device=torch.device("cuda", torch.cuda.current_device()))
    assert arm.why_not(case, read_machine("cuda")) is None

    prepared = arm.prepare(case, operands)

    for _ in range(3):
        assert check_arms(case, operands, {name: prepared}, seed=0)[name].failure == ""


def test_our_steps_are_bitwise_the_same_from_run_to_run():
    case = new_case("ckpt ES")
    operands = make_operands(case, seed=0, device=torch.device("cuda", torch.cuda.current_device()))
    arm = arms.load("cake_det").prepare(case, operands)

    first = arm.launch()

    for _ in range(10):
        assert all(torch.equal(one, other) for one, other in zip(first, arm.launch(), strict=True))


@pytest.mark.parametrize("op", STEPS)
def test_backward_and_recomputation_run_on_the_thread_that_calls(op):
    seen = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            seen.append(("forward", threading.get_ident()))
            ctx.save_for_backward(x, w)
            return torch.mm(x, w[0].t())

        @staticmethod
        def backward(ctx, g):
            seen.append(("backward", threading.get_ident()))
            x, w = ctx.saved_tensors
            return torch.mm(g, w[0]), torch.mm(g.t(), x)[None]

    case = new_case(op, sizes=(64,), N=128, K=64)
    operands = make_operands(case, seed=0, device=torch.device("cuda", torch.cuda.current_device()))
    here = threading.get_ident()

    step(case, operands, Watched.apply).launch()

    assert seen == [("forward", here), ("backward", here), ("forward", here)]
    # Left to itself, autograd takes a thread of its own for the device.
    seen.clear()
    x, w = operands.x.detach().requires_grad_(), operands.w.detach().requires_grad_()
    torch.autograd.grad(Watched.apply(x, w), (x, w), operands.g)
    assert [what for what, _ in seen] == ["forward", "backward"]
    assert seen[1][1] != here
