from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from cake_kernels import grouped_mm
from tests.unit.cake_kernels.test_grouped_mm import Inputs, calls, ops, randn  # noqa: F401 - calls is a fixture

OPERATOR = torch.ops.cake_kernels.grouped_mm.default


def gradients(region, p, *, inside=checkpoint, **options):
    x, w = p.leaves()
    y = region(x, w, p.offs) if inside is None else inside(region, x, w, p.offs, **options)
    y.backward(p.g)
    return x.grad, w.grad


def after_relu(x, w, offs):
    return grouped_mm(torch.relu(x), w, offs)


def before_sigmoid(x, w, offs):
    return torch.sigmoid(grouped_mm(x, w, offs))


def one_after_another(x, w, offs):
    return grouped_mm(grouped_mm(x, w, offs), w.transpose(-2, -1).contiguous().transpose(-2, -1), offs)


def same(one, other):
    return all(torch.equal(a.nan_to_num(9.0), b.nan_to_num(9.0)) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("region", "options", "early_stop", "launches"),
    [
        (grouped_mm, {"use_reentrant": False}, True, ["fwd", "dgrad", "wgrad"]),
        (after_relu, {"use_reentrant": False}, True, ["fwd", "dgrad", "wgrad"]),
        (grouped_mm, {"use_reentrant": False}, False, ["fwd", "fwd", "dgrad", "wgrad"]),
        (grouped_mm, {"use_reentrant": True}, True, ["fwd", "fwd", "dgrad", "wgrad"]),
        (before_sigmoid, {"use_reentrant": False}, True, ["fwd", "fwd", "dgrad", "wgrad"]),
    ],
    ids=["ends in it", "after relu", "without early stop", "reentrant", "needs y itself"],
)
def test_a_checkpoint_launches_the_forward_again_only_where_its_result_is_needed(
    calls,  # noqa: F811
    region,
    options,
    early_stop,
    launches,
):
    p = Inputs()
    expected = gradients(region, p, inside=None)
    calls.clear()

    with nullcontext() if early_stop else set_checkpoint_early_stop(False):
        got = gradients(region, p, **options)

    assert ops(calls) == launches
    assert same(got, expected)


def test_of_two_in_a_row_only_the_first_is_launched_again(calls):  # noqa: F811
    p = Inputs(N=16)
    square = partial(one_after_another)
    expected = gradients(square, p, inside=None)
    calls.clear()

    got = gradients(square, p, use_reentrant=False)

    assert ops(calls) == ["fwd", "fwd", "fwd", "dgrad", "wgrad", "dgrad", "wgrad"]
    assert same(got, expected)


@pytest.mark.parametrize("frozen", ["x", "w"])
def test_a_frozen_operand_changes_nothing_of_that(calls, frozen):  # noqa: F811
    p = Inputs()
    x, w = p.leaves()
    (x if frozen == "x" else w).requires_grad_(False)

    checkpoint(grouped_mm, x, w, p.offs, use_reentrant=False).backward(p.g)

    assert ops(calls) == ["fwd", "wgrad" if frozen == "x" else "dgrad"]


@pytest.mark.parametrize(
    ("policy", "launches"),
    [
        (CheckpointPolicy.MUST_SAVE, ["fwd", "dgrad", "wgrad"]),
        (CheckpointPolicy.PREFER_RECOMPUTE, ["fwd", "fwd", "dgrad", "wgrad"]),
    ],
)
def test_a_selective_policy_sees_the_operator_and_decides(calls, policy, launches):  # noqa: F811
    p = Inputs()
    expected = gradients(before_sigmoid, p, inside=None)
    calls.clear()

    def decide(_, op, *__, **___):
        return policy if op == OPERATOR else CheckpointPolicy.PREFER_RECOMPUTE

    got = gradients(
        before_sigmoid, p, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, decide)
    )

    assert ops(calls) == launches
    assert same(got, expected)


def test_a_compiled_checkpoint_launches_the_forward_once(calls):  # noqa: F811
    p = Inputs()
    expected = gradients(after_relu, p, inside=None)
    calls.clear()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def inside(region, x, w, offs):
        return checkpoint(region, x, w, offs, use_reentrant=False)

    got = gradients(after_relu, p, inside=inside)

    assert ops(calls) == ["fwd", "dgrad", "wgrad"]
    assert same(got, expected)
