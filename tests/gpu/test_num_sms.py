"""Calls that are told how many SMs they may occupy: the values stay right, and which bits stay the same."""

import pytest
import torch

from cake_kernels import grouped_mm
from tests.gpu.ragged import OPS, ragged, same_bits

pytestmark = pytest.mark.gpu

NUM_SMS = (2, 37, 100, None)
every_op = pytest.mark.parametrize(("op", "dtype"), OPS, ids=["fwd", "dgrad", "wgrad-bf16", "wgrad-fp32"])


def large_groups():
    """More than a wave of tiles on 37 SMs, off the grid of tiles."""
    return ragged((700, 0, 1, 1290, 64, 33), N=776, K=520, nobody=77)


def small_groups():
    """Groups of less than a tile: forward and dgrad take clusters of two CTAs."""
    return ragged((40, 0, 1, 90, 64, 33) * 4, N=776, K=576, nobody=77)


every_problem = pytest.mark.parametrize("make", [large_groups, small_groups])


@every_problem
@every_op
def test_values_are_right_on_any_number_of_sms(op, dtype, make):
    problem = make()

    for num_sms in NUM_SMS:
        problem.assert_right(op, problem.computed(op, dtype, num_sms=num_sms))


@every_problem
@pytest.mark.parametrize("op", ["fwd", "dgrad"])
def test_bits_of_a_product_that_splits_nothing_do_not_depend_on_num_sms(op, make):
    problem = make()
    first = problem.computed(op)

    for num_sms in NUM_SMS:
        assert same_bits(problem.computed(op, num_sms=num_sms), first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_bits_of_a_weight_gradient_are_the_same_again_on_the_same_number_of_sms(dtype):
    problem = large_groups()
    first = {num_sms: problem.computed("wgrad", dtype, num_sms=num_sms) for num_sms in NUM_SMS}

    for _ in range(5):
        for num_sms, bits in first.items():
            assert same_bits(problem.computed("wgrad", dtype, num_sms=num_sms), bits)


def test_a_layer_has_the_gradients_that_the_products_give():
    problem = large_groups()
    x, w = problem.x.detach().requires_grad_(), problem.w.detach().requires_grad_()

    y = grouped_mm(x, w, problem.offs, num_sms=37)
    y.backward(problem.g)

    assert same_bits(y.detach(), problem.computed("fwd", num_sms=37))
    assert same_bits(x.grad, problem.computed("dgrad", num_sms=37))
    assert same_bits(w.grad, problem.computed("wgrad", num_sms=37))
