import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from cake_kernels import moe
from cake_kernels.moe import MoEExperts
from cake_kernels.offsets import ends_of
from tools import moe_step, train_toy

BF16, FP32 = torch.bfloat16, torch.float32
E, H, I = 3, 16, 8  # noqa: E741 - the field's name

REL_L2 = 3e-2
"""Up to nine roundings to BF16 on the way of a gradient, each at most 2^-8 = 3.9e-3."""


def experts(dtype=BF16):
    torch.manual_seed(0)
    return MoEExperts(E, H, I, dtype=dtype)


def batch(sizes, past=0):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(sum(sizes) + past, H, generator=generator).to(BF16)
    return x, torch.tensor(ends_of(sizes), dtype=torch.int32)


def by_torch_mm(layer, x, offs):
    """The same layer in FP64, expert by expert."""
    y, start = x.new_zeros(x.shape[0], H, dtype=torch.float64), 0
    for e, end in enumerate(offs.tolist()):
        gate, up = torch.mm(x[start:end].double(), layer.gate_up[e].double().t()).chunk(2, dim=-1)
        y[start:end] = torch.mm(torch.nn.functional.silu(gate) * up, layer.down[e].double().t())
        start = end
    return y


def assert_near(value, expected):
    assert (value.double() - expected).norm() <= REL_L2 * expected.norm()


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(0, 9), min_size=E, max_size=E), past=st.integers(0, 3))
def test_the_layer_and_its_gradients_are_those_of_a_loop_of_torch_mm(sizes, past):
    layer, (x, offs) = experts(), batch(sizes, past)
    x.requires_grad_()
    leaves = (x, *layer.parameters())

    y = layer(x, offs)
    expected = by_torch_mm(layer, x, offs)

    assert_near(y, expected)
    assert not y[sum(sizes) :].any()
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    got = torch.autograd.grad(y, leaves, g.to(BF16))
    for value, exact in zip(got, torch.autograd.grad(expected, leaves, g), strict=True):
        assert value.dtype == BF16
        assert_near(value, exact.double())


def test_fp32_parameters_work_under_autocast():
    layer, (x, offs) = experts(FP32), batch((4, 0, 5))

    with torch.autocast("cpu", dtype=BF16):
        y = layer(x, offs)
    y.float().square().sum().backward()

    assert_near(y, by_torch_mm(layer, x, offs))
    assert {p.grad.dtype for p in layer.parameters()} == {FP32}


def test_its_backend_is_that_of_both_products(monkeypatch):
    asked, grouped_mm = [], moe.grouped_mm
    monkeypatch.setattr(moe, "grouped_mm", lambda *given, backend: asked.append(backend) or grouped_mm(*given))

    MoEExperts(E, H, I, backend="sm90")(*batch((4, 0, 5)))

    assert asked == ["sm90", "sm90"]


def test_a_checkpoint_around_it_launches_gate_up_again_and_down_not(calls):
    layer, (x, offs) = experts(), batch((4, 0, 5))

    checkpoint(layer, x.requires_grad_(), offs, use_reentrant=False).sum().backward()

    assert [(call.form.op, call.form.N) for call in calls] == [
        ("fwd", 2 * I), ("fwd", H), ("fwd", 2 * I), ("dgrad", H), ("wgrad", H), ("dgrad", 2 * I), ("wgrad", 2 * I),
    ]  # fmt: skip


def test_a_few_steps_of_the_toy_training_follow_the_loop_of_torch_mm():
    ours, loop = train_toy.losses("cake_kernels", steps=4), train_toy.losses("torch.mm", steps=4)

    assert ours[0] == pytest.approx(loop[0], rel=1e-2)
    assert ours == pytest.approx(loop, rel=2e-2)
    assert ours[-1] < ours[0]


def test_the_step_that_is_timed_computes_what_the_same_layer_on_torch_does(capsys):
    sizes = ["--rows", "300", "--experts", "4", "--hidden", "64", "--intermediate", "32"]
    moe_step.main(["--check", *sizes, "--revision", "1a2b3c4"])

    said = capsys.readouterr().out
    apart = float(re.search(r"outputs differ by (\S+)", said)[1])
    assert apart < REL_L2
    assert "'revision': '1a2b3c4'" in said


def test_a_step_is_not_timed_without_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(SystemExit):
        moe_step.main([])

    assert "--check compares the outputs on the CPU" in capsys.readouterr().err
