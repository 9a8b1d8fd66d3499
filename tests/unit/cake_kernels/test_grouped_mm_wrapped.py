"""Tensors that wrap another one, as DTensors and the results of functional collectives do: their own memory is none."""

import pytest
import torch
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.utils._pytree import tree_map_only

from cake_kernels import grouped_gemm, grouped_mm
from cake_kernels.errors import ArgumentError
from cake_kernels.facade import autograd
from cake_kernels.grouped_gemm.call import dgrad_call, forward_call, wgrad_call
from tests.unit.cake_kernels.test_grouped_mm import Inputs


class Wrapper(torch.Tensor):
    """Has no memory; every operator is given what it wraps."""

    @staticmethod
    def __new__(cls, inner):
        form = {"strides": inner.stride(), "dtype": inner.dtype, "device": inner.device}
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), **form)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(Wrapper, lambda tensor: tensor.inner, (args, kwargs or {}))
        return function(*args, **kwargs)


class Wrap(torch.autograd.Function):
    """Wraps within a graph, as the result of a collective with a gradient is."""

    @staticmethod
    def forward(_ctx, tensor):
        return Wrapper(tensor.detach())

    @staticmethod
    def backward(_ctx, g):
        return g


@pytest.fixture
def bound(monkeypatch):
    """The tensors that programs were bound to."""
    seen, compute = [], autograd.compute

    def watched(*calls, **options):
        for call, _ in calls:
            seen.extend((call.a, call.b, call.offs))
        compute(*calls, **options)

    monkeypatch.setattr(autograd, "compute", watched)
    return seen


@pytest.mark.parametrize("wrapped", ["x", "w", "offs", "g", "xw", "xwg"])
def test_a_program_is_bound_to_what_is_wrapped(bound, wrapped):
    p = Inputs()
    x, w = p.leaves()
    y = grouped_mm(x, w, p.offs)
    expected = (y, *torch.autograd.grad(y, (x, w), p.g))
    bound.clear()

    x_in, w_in = (Wrap.apply(t) if name in wrapped else t for name, t in (("x", x), ("w", w)))
    y = grouped_mm(x_in, w_in, Wrapper(p.offs) if wrapped == "offs" else p.offs)
    found = (y, *torch.autograd.grad(y, (x, w), Wrapper(p.g) if "g" in wrapped else p.g))

    assert len(bound) == 9
    assert {type(tensor) for tensor in bound} == {torch.Tensor}
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_without_gradients_too(bound):
    p = Inputs()

    with torch.no_grad():
        y = grouped_mm(Wrapper(p.x), p.w, p.offs)

    assert {type(tensor) for tensor in bound} == {torch.Tensor}
    assert torch.equal(y, grouped_gemm.forward(p.x, p.w, p.offs))


@pytest.fixture
def one_process():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_a_dtensor_is_refused_by_torch_and_its_local_part_is_taken(one_process):
    p = Inputs()
    x, w = (distribute_tensor(leaf.detach(), one_process, [Shard(0)]).requires_grad_() for leaf in p.leaves())

    with pytest.raises(NotImplementedError, match="cake_kernels.grouped_mm.default does not have a sharding strategy"):
        grouped_mm(x, w, distribute_tensor(p.offs, one_process, [Shard(0)]))
    grouped_mm(x.to_local(), w.to_local(), p.offs).backward(p.g)

    assert torch.equal(w.grad.to_local(), grouped_gemm.wgrad(p.g, p.x, p.offs))


@pytest.mark.parametrize("wrapped", range(3))
@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_below_the_facade_cuda_refuses_it_by_name(op, wrapped):
    p = Inputs()
    operands = {"fwd": (p.x, p.w), "dgrad": (p.g, p.w), "wgrad": (p.g, p.x)}[op]
    names = {"fwd": "xw", "dgrad": "gw", "wgrad": "gx"}[op]
    a, b, offs = (Wrapper(t) if place == wrapped else t for place, t in enumerate((*operands, p.offs)))
    options = {"out_dtype": torch.bfloat16, "accumulate": False} if op == "wgrad" else {}
    call = {"fwd": forward_call, "dgrad": dgrad_call, "wgrad": wgrad_call}[op](a, b, offs, None, None, **options)

    name = (*names, r"offs \(or indptr\)")[wrapped]
    with pytest.raises(ArgumentError, match=rf"^{name} must have memory of its own on CUDA, got a Wrapper without an"):
        call.addresses()
