"""The checkpointed steps: values of y, dX and dW, what is launched again in backward, and on which thread."""

import threading
from collections import Counter
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cake_kernels.facade import autograd as facade_autograd
from harness import arms
from harness.arms._cake import step_options
from harness.arms._step import step
from harness.operands import make_operands
from tests.bench import fp64

CPU = torch.device("cpu")
STEPS = ("ckpt", "ckpt ES")
# Ours run here too: prepare does not ask why_not, and on a CPU grouped_mm computes by its reference.
COMPUTING = ("torch_grouped_mm", "cublas_loop_autograd", "reference", "cake_det", "cake_nondet")
ALL_SIZES = [(3, 0, 5), (0, 7, 1), (8, 0, 0), (1,), (0, 0, 33, 0, 7)]

# One rounding to BF16: 2^-8 of the value; FP32 sums of at most 33 products of standard normals: far below 2^-8.
CLOSE = {"rtol": 2**-8, "atol": 2**-8}


def prepared(name, case):
    return arms.load(name).prepare(case, make_operands(case, seed=0, device=CPU))


@pytest.mark.parametrize("sizes", ALL_SIZES, ids=str)
@pytest.mark.parametrize("op", STEPS)
@pytest.mark.parametrize("name", COMPUTING)
def test_a_step_returns_y_and_both_gradients_as_fp64_has_them_and_the_same_bits_again(name, op, sizes, new_case):
    case = new_case(op, sizes)
    operands = make_operands(case, seed=0, device=CPU)
    arm = arms.load(name).prepare(case, operands)

    first, second = arm.launch(), arm.launch()

    assert arm.out is None
    assert [product.op for product in case.products] == ["fwd", "dX", "dW"]
    for product, output, again in zip(case.products, first, second, strict=True):
        assert (output.dtype, output.requires_grad) == (torch.bfloat16, False)
        torch.testing.assert_close(output.double(), fp64(product, operands), **CLOSE)
        assert torch.equal(output, again)
        assert output.data_ptr() != again.data_ptr()


@pytest.mark.parametrize("op", STEPS)
@pytest.mark.parametrize("name", COMPUTING)
def test_dw_of_an_empty_group_is_exactly_zero(name, op, new_case):
    _, _, dw = prepared(name, new_case(op, (3, 0, 5))).launch()

    assert [bool(dw[expert].any()) for expert in range(3)] == [True, False, True]


@pytest.mark.parametrize("op", STEPS)
@pytest.mark.parametrize("name", ["cublas_loop_autograd", "reference", "cake_det", "cake_nondet"])
def test_all_groups_empty_gives_no_rows_and_a_zero_dw(name, op, new_case):
    y, dx, dw = prepared(name, new_case(op, (0, 0))).launch()

    assert (tuple(y.shape), tuple(dx.shape), tuple(dw.shape)) == ((0, 16), (0, 24), (2, 16, 24))
    assert not dw.any()


@pytest.mark.parametrize("op", STEPS)
@pytest.mark.parametrize("name", COMPUTING)
def test_inputs_are_left_as_they_were(name, op, new_case):
    case = new_case(op)
    operands, fresh = (make_operands(case, seed=0, device=CPU) for _ in range(2))

    arms.load(name).prepare(case, operands).launch()

    for tensor, old in ((getattr(operands, f.name), getattr(fresh, f.name)) for f in fields(operands)):
        assert tensor == old if isinstance(tensor, tuple) else torch.equal(tensor, old)
        assert not getattr(tensor, "requires_grad", False)
        assert getattr(tensor, "grad", None) is None


def test_on_a_gpu_a_step_of_ours_is_a_program_or_an_error():
    cpu, gpu = (SimpleNamespace(is_cuda=is_cuda) for is_cuda in (False, True))

    assert step_options(gpu, "det") == {"offs": gpu, "deterministic": True, "backend": "sm90"}
    assert step_options(cpu, "nondet") == {"offs": cpu, "deterministic": False, "backend": "auto"}


# What is launched


@pytest.fixture
def launched(monkeypatch):
    """The product of each launch of grouped_mm, in order."""
    seen, compute = [], facade_autograd.compute

    def counting(*calls, **options):
        seen.extend(call.form.op for call, _ in calls)
        compute(*calls, **options)

    monkeypatch.setattr(facade_autograd, "compute", counting)
    return seen


@pytest.mark.parametrize("name", ["cake_det", "cake_nondet", "reference"])
@pytest.mark.parametrize(
    ("op", "expected"), [("ckpt ES", ["fwd", "dgrad", "wgrad"]), ("ckpt", ["fwd", "fwd", "dgrad", "wgrad"])]
)
def test_with_early_stop_the_forward_of_grouped_mm_is_launched_once_without_twice(
    name, op, expected, launched, new_case
):
    arm = prepared(name, new_case(op))
    assert launched == []

    for _ in range(2):
        launched.clear()
        arm.launch()

        assert launched == expected


class Counting(TorchDispatchMode):
    """Counts operators below autograd."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls[str(function)] += 1
        return function(*args, **(kwargs or {}))


# Of four groups the loop multiplies four times in forward and eight times in backward, and computes all four again, or
# all but the last, whose operands are saved before it runs.
@pytest.mark.parametrize(
    ("name", "operator", "op", "count"),
    [
        ("torch_grouped_mm", "aten._grouped_mm.default", "ckpt ES", 1 + 0 + 2),
        ("torch_grouped_mm", "aten._grouped_mm.default", "ckpt", 1 + 1 + 2),
        ("cublas_loop_autograd", "aten.mm.default", "ckpt ES", 4 + 3 + 8),
        ("cublas_loop_autograd", "aten.mm.default", "ckpt", 4 + 4 + 8),
    ],
)
def test_the_baselines_compute_again_what_torch_makes_them(name, operator, op, count, new_case):
    arm = prepared(name, new_case(op, (3, 1, 5, 2)))

    with Counting() as counting:
        arm.launch()

    assert counting.calls[operator] == count


@pytest.mark.parametrize("op", STEPS)
def test_the_loop_makes_no_gradient_of_full_size_for_a_group(op, new_case):
    arm = prepared("cublas_loop_autograd", new_case(op, (3, 1, 5, 2)))

    with Counting() as counting:
        arm.launch()

    assert not [name for name in counting.calls if name.startswith(("aten.slice_backward", "aten.select_backward"))]


@pytest.mark.parametrize("op", STEPS)
def test_forward_recomputation_and_backward_run_on_the_thread_that_calls(op, new_case):
    seen = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            seen.append(("forward", threading.get_ident()))
            ctx.save_for_backward(x, w)
            return torch.mm(x, w[0].t())

        @staticmethod
        def backward(ctx, g):
            # Off, autograd's own threads, one a GPU, take no part.
            seen.append(("backward", threading.get_ident(), torch._C._is_multithreading_enabled()))
            x, w = ctx.saved_tensors
            return torch.mm(g, w[0]), torch.mm(g.t(), x)[None]

    case = new_case(op, (4,))
    arm = step(case, make_operands(case, seed=0, device=CPU), Watched.apply)
    here = threading.get_ident()

    with torch.no_grad():
        arm.launch()

    assert seen == [("forward", here), ("backward", here, False), ("forward", here)]
    assert torch._C._is_multithreading_enabled()
