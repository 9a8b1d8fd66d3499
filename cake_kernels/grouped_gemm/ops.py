"""The three functions as torch operators, for whatever sees a call as a node: torch.compile, export, dispatch modes.

::

    y = torch.ops.cake_kernels.forward(x, w, offs, deterministic=True)
    torch.ops.cake_kernels.forward_out(x, w, offs, out, deterministic=True)

The namespace is the package's name, so that a revision imported under another name has operators of its own. Each does
what the function of its name in :mod:`cake_kernels.grouped_gemm` does, on every device and with the same errors, raised
when it runs rather than when it is traced. It takes ``offs`` alone: who has ``indptr`` passes ``indptr[1:]``. A result
is new and contiguous; an ``_out`` operator returns nothing. No gradient flows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import torch

from . import traced
from .call import dgrad_call, forward_call, wgrad_call
from .prepared import prepare

NAMESPACE = re.sub(r"\W", "_", (__package__ or "cake_kernels.grouped_gemm").rpartition(".")[0])
"""Of the operators: the package's name, with ``_`` for what a namespace cannot hold."""

_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])


def _operator(fake: Callable[..., object], *, writes: tuple[str, ...] = ()) -> Callable[[_Kernel], _Kernel]:
    """Register a function as the operator of its name; ``fake`` makes the form of its result, without values."""

    def register(kernel: _Kernel) -> _Kernel:
        name = kernel.__name__
        _LIBRARY.define(
            name + torch.library.infer_schema(kernel, mutates_args=writes),
            tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
        )
        _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")  # every device; the checks refuse the unknown ones
        _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
        return kernel

    return register


def _nothing(*_: object, **__: object) -> None:
    """Stand in for what returns nothing."""


@_operator(traced.forward)
def forward(
    x: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor,
    *,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> torch.Tensor:
    """Compute Y = X Wᵀ into a new tensor."""
    return prepare(forward_call(x, w, offs, None, None, num_sms=num_sms), deterministic=deterministic).launch()


@_operator(_nothing, writes=("out",))
def forward_out(
    x: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor,
    out: torch.Tensor,
    *,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> None:
    """Compute Y = X Wᵀ into ``out``."""
    prepare(forward_call(x, w, offs, None, out, num_sms=num_sms), deterministic=deterministic).launch()


@_operator(traced.dgrad)
def dgrad(
    g: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor,
    *,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> torch.Tensor:
    """Compute dX = G W into a new tensor."""
    return prepare(dgrad_call(g, w, offs, None, None, num_sms=num_sms), deterministic=deterministic).launch()


@_operator(_nothing, writes=("out",))
def dgrad_out(
    g: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor,
    out: torch.Tensor,
    *,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> None:
    """Compute dX = G W into ``out``."""
    prepare(dgrad_call(g, w, offs, None, out, num_sms=num_sms), deterministic=deterministic).launch()


@_operator(traced.wgrad)
def wgrad(
    g: torch.Tensor,
    x: torch.Tensor,
    offs: torch.Tensor,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> torch.Tensor:
    """Compute dW = Gᵀ X into a new tensor of ``out_dtype``."""
    call = wgrad_call(g, x, offs, None, None, out_dtype=out_dtype, accumulate=False, num_sms=num_sms)
    return prepare(call, deterministic=deterministic).launch()


@_operator(_nothing, writes=("out",))
def wgrad_out(
    g: torch.Tensor,
    x: torch.Tensor,
    offs: torch.Tensor,
    out: torch.Tensor,
    *,
    accumulate: bool = False,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> None:
    """Compute dW = Gᵀ X into ``out``, in its type; with ``accumulate`` add it to what ``out`` holds."""
    call = wgrad_call(g, x, offs, None, out, out_dtype=out.dtype, accumulate=accumulate, num_sms=num_sms)
    prepare(call, deterministic=deterministic).launch()
