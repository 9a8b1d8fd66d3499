"""How gradients reach the three programs: one backward under three forms of the forward.

Eager code *saves first*. A non-reentrant checkpoint stops its recomputation when the last tensor is saved, and a
``torch.autograd.Function`` saves when its ``forward`` returns: so ``forward`` only saves and hands out a y without
values, and the program is launched after it. A region that ends in a grouped GEMM then launches that once.

Whoever watches calls must see one functional operator, ``grouped_mm``, in the package's own namespace. A dispatch mode
(selective checkpointing) sees it after the saving; its result then takes the place of a y of one element. Compiled
code has the operator alone: the compiler drops what nobody reads. ``grouped_mm_dgrad`` and ``grouped_mm_wgrad`` compute
the gradients; their own derivatives are an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import torch
from torch.autograd.forward_ad import unpack_dual

from ..errors import NoProgramError
from ..grouped_gemm import traced
from ..grouped_gemm.call import ALIGNMENT_BYTES, Call, dgrad_call, forward_call, gradient_calls, wgrad_call
from ..grouped_gemm.ops import NAMESPACE
from ..grouped_gemm.prepared import check_deterministic
from . import dispatch_mode
from .backend import compute

_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")

_Options: TypeAlias = tuple[bool, str, torch.dtype, int | None]
"""deterministic, backend, weight_grad_dtype, num_sms: an operator's gradient needs them positional."""


def multiply(
    x: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor,
    *,
    deterministic: bool,
    backend: str,
    weight_grad_dtype: torch.dtype,
    num_sms: int | None,
) -> torch.Tensor:
    """Return Y = X Wᵀ with its gradients, in the form that fits what watches.

    Parameters
    ----------
    x, w, offs
        bf16 [M, K], bf16 [E, N, K], int32 [E]; their rules are those of :func:`cake_kernels.grouped_mm`.
    backend
        As :func:`.backend.compute` takes it, for the forward and for each gradient.
    weight_grad_dtype
        What dW is stored as: ``torch.bfloat16`` or ``torch.float32``.
    num_sms
        As :mod:`cake_kernels.grouped_gemm` takes it, for the forward and for each gradient.

    Returns
    -------
    torch.Tensor
        bf16 [M, N], new and contiguous.
    """
    check_deterministic(deterministic)
    options = deterministic, backend, weight_grad_dtype, num_sms
    y: torch.Tensor
    if torch.compiler.is_compiling():
        if _have_tangents(x, w):  # of an operator without a gradient torch drops them in silence
            raise NoProgramError(
                "x and w must have no tangents: no program computes forward-mode derivatives of grouped_mm; multiply"
                " group by group with torch.mm"
            )
        y = _GROUPED_MM(x, w, offs, *options)
        return y
    call = forward_call(x, w, offs, None, None, num_sms=num_sms)
    if dispatch_mode.is_active() or dispatch_mode.wraps(x, w, offs):
        one_element = x.new_empty_strided((x.shape[0], w.shape[1]), (0, 0))  # never read
        place = _SaveFirst.apply(x, w, (offs, options, one_element))  # type: ignore[no-untyped-call]
        with torch.no_grad():
            y = _GROUPED_MM(x, w, offs, *options)
        y = _TakePlace.apply(y, place)  # type: ignore[no-untyped-call]
        return y
    y = call.output()
    if torch.is_grad_enabled() or _have_tangents(x, w):
        y = _SaveFirst.apply(x, w, (offs, options, y))  # type: ignore[no-untyped-call]
    compute((call, y), deterministic=deterministic, backend=backend)
    return y


def _have_tangents(x: torch.Tensor, w: torch.Tensor) -> bool:
    """Return whether forward-mode AD differentiates one of them, which no node of ours can do and says so."""
    return unpack_dual(x).tangent is not None or unpack_dual(w).tangent is not None


class _SaveFirst(torch.autograd.Function):
    """Saves for backward, and gives ``out`` its place in the graph; whoever applies it computes the values after it.

    The others of its arguments come in one tuple: autograd looks at each argument, which costs the host, and would take
    ``out`` for an input.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, w: torch.Tensor, others: tuple[torch.Tensor, _Options, torch.Tensor]
    ) -> torch.Tensor:
        offs, options, out = others
        _save(ctx, x, w, offs, options)
        return out

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return *_gradients(ctx, g), None


class _TakePlace(torch.autograd.Function):
    """Returns ``y``, with the gradient of ``place``."""

    @staticmethod
    def forward(_ctx: Any, y: torch.Tensor, _place: torch.Tensor) -> torch.Tensor:
        return y.detach()  # no view, and of one version with y, which a selective checkpoint may hold

    @staticmethod
    def backward(_ctx: Any, g: torch.Tensor) -> Any:
        return None, g


def _save(ctx: Any, x: torch.Tensor, w: torch.Tensor, offs: torch.Tensor, options: _Options) -> None:
    """Save what the wanted gradients read. The flags alone decide, so that a recomputation saves the same."""
    needs = ctx.needs_input_grad
    ctx.options = options
    ctx.save_for_backward(x if needs[1] else None, w if needs[0] else None, offs)


def _gradients(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    x, w, offs = ctx.saved_tensors
    deterministic, backend, weight_grad_dtype, num_sms = ctx.options
    g = g.contiguous()
    # Only the operators refuse a second derivative. Where none can follow, the host is spared their dispatch.
    as_operators = torch.is_grad_enabled() or torch.compiler.is_compiling() or dispatch_mode.is_active()
    as_operators = as_operators or dispatch_mode.wraps(g, offs if x is None else x, offs if w is None else w, offs)
    if not as_operators and x is not None and w is not None:
        return _both_gradients(g, x, w, offs, ctx.options)
    dgrad, wgrad = (_DGRAD, _WGRAD) if as_operators else (_dgrad, _wgrad)
    dx = None if w is None else dgrad(g, w, offs, deterministic, backend, num_sms)
    dw = None if x is None else wgrad(g, x, offs, deterministic, backend, weight_grad_dtype, num_sms)
    return dx, dw


def _both_gradients(
    g: torch.Tensor, x: torch.Tensor, w: torch.Tensor, offs: torch.Tensor, options: _Options
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return dX and dW, which share what the host looks up for a call."""
    deterministic, backend, weight_grad_dtype, num_sms = options
    dgrad, wgrad = gradient_calls(_addressable(g), x, w, offs, weight_grad_dtype=weight_grad_dtype, num_sms=num_sms)
    dx, dw = dgrad.output(), wgrad.output()
    compute((dgrad, dx), (wgrad, dw), deterministic=deterministic, backend=backend)
    return dx, dw


def _grouped_mm(
    x: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor,
    deterministic: bool,
    backend: str,
    weight_grad_dtype: torch.dtype,  # noqa: ARG001 - for the backward
    num_sms: int | None,
) -> torch.Tensor:
    call = forward_call(x, w, offs, None, None, num_sms=num_sms)
    return _computed(call, deterministic=deterministic, backend=backend)


def _dgrad(
    g: torch.Tensor, w: torch.Tensor, offs: torch.Tensor, deterministic: bool, backend: str, num_sms: int | None
) -> torch.Tensor:
    call = dgrad_call(_addressable(g), w, offs, None, None, num_sms=num_sms)
    return _computed(call, deterministic=deterministic, backend=backend)


def _wgrad(
    g: torch.Tensor,
    x: torch.Tensor,
    offs: torch.Tensor,
    deterministic: bool,
    backend: str,
    out_dtype: torch.dtype,
    num_sms: int | None,
) -> torch.Tensor:
    call = wgrad_call(_addressable(g), x, offs, None, None, out_dtype=out_dtype, accumulate=False, num_sms=num_sms)
    return _computed(call, deterministic=deterministic, backend=backend)


def _computed(call: Call, *, deterministic: bool, backend: str) -> torch.Tensor:
    out = call.output()
    compute((call, out), deterministic=deterministic, backend=backend)
    return out


def _addressable(g: torch.Tensor) -> torch.Tensor:
    """Return g, or a copy where a gradient begins as no program can address it: its caller cannot help that."""
    return g.clone() if g.data_ptr() % ALIGNMENT_BYTES else g


def _no_second_derivative(ctx: Any, *_: object) -> NoReturn:  # noqa: ARG001 - autograd's signature
    raise NoProgramError(
        "the gradients of grouped_mm must not be differentiated again: no program computes second derivatives;"
        " leave out create_graph=True, or multiply group by group with torch.mm"
    )


def _operator(
    name: str,
    kernel: Callable[..., torch.Tensor],
    fake: Callable[..., torch.Tensor],
    backward: Callable[..., Any],
    setup_context: Callable[..., None] | None = None,
) -> Any:
    """Register a functional operator of every device, its form for tracing and its gradient; return its overload."""
    _LIBRARY.define(
        name + torch.library.infer_schema(kernel, mutates_args=()),
        tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
    )
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    torch.library.register_autograd(f"{NAMESPACE}::{name}", backward, setup_context=setup_context, lib=_LIBRARY)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG001 - torch names it
    x, w, offs, *options = inputs
    ctx.has_gradients = traced.has_gradients(x, w, offs)
    if ctx.has_gradients:
        _save(ctx, x, w, offs, tuple(options))


def _operators_gradients(ctx: Any, g: torch.Tensor) -> Any:
    # Of a call that breaks a rule a gradient may have no shape; its forward has yet to run, and refuses it then.
    gradients = _gradients(ctx, g) if ctx.has_gradients else (None, None)
    return *gradients, *[None] * 5


_GROUPED_MM = _operator(
    "grouped_mm",
    _grouped_mm,
    traced.forward,
    _operators_gradients,
    _save_inputs,
)
_DGRAD = _operator("grouped_mm_dgrad", _dgrad, traced.dgrad, _no_second_derivative)
_WGRAD = _operator(
    "grouped_mm_wgrad",
    _wgrad,
    lambda g, x, offs, _deterministic, _backend, out_dtype, _num_sms: traced.wgrad(g, x, offs, out_dtype=out_dtype),
    _no_second_derivative,
)
