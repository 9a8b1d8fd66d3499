"""The executable contract, on any device. Slow, plain, and the CPU's program.

Precision
    Each group is one ``torch.mm`` of FP32 copies of the BF16 operands. Products are exact, also where torch is allowed
    TF32 or BF16 units, since both hold a BF16 operand exactly; sums are FP32, in an order that torch chooses; the store
    rounds once, to nearest even. An accumulating call adds the old value in FP32 before that rounding.

Host reads
    ``offs`` is copied to the host, which waits for the device. Only the reference may do this; a program never does.

No gradient flows through any of it, whatever ``requires_grad`` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch

from ..offsets import ends_within
from .call import Call, dgrad_call, forward_call, wgrad_call


def forward(
    x: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor | None = None,
    *,
    indptr: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute Y = X Wᵀ; the contract of :func:`cake_kernels.grouped_gemm.forward` on any device."""
    call = forward_call(x, w, offs, indptr, out)
    return run(call, call.output())


def dgrad(
    g: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor | None = None,
    *,
    indptr: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute dX = G W; the contract of :func:`cake_kernels.grouped_gemm.dgrad` on any device."""
    call = dgrad_call(g, w, offs, indptr, out)
    return run(call, call.output())


def wgrad(
    g: torch.Tensor,
    x: torch.Tensor,
    offs: torch.Tensor | None = None,
    *,
    indptr: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    accumulate: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute dW = Gᵀ X; the contract of :func:`cake_kernels.grouped_gemm.wgrad` on any device."""
    call = wgrad_call(g, x, offs, indptr, out, out_dtype=out_dtype, accumulate=accumulate)
    return run(call, call.output())


@torch.no_grad()
def run(call: Call, out: torch.Tensor) -> torch.Tensor:
    """Compute a checked call into ``out``, of the call's output form, and return that."""
    # The caller's autocast would round the FP32 copies.
    with torch.autocast(call.a.device.type, enabled=False):
        if call.form.op == "wgrad":
            _wgrad(call, out)
        else:
            _row_products(call, out)
    return out


def _row_products(call: Call, out: torch.Tensor) -> None:
    end = 0
    for expert, rows in _groups(call):
        weight = call.b[expert].float()
        out[rows] = call.a[rows].float() @ (weight.t() if call.form.op == "fwd" else weight)
        end = rows.stop
    out[end:] = 0


def _wgrad(call: Call, out: torch.Tensor) -> None:
    if not call.form.accumulate:
        out.zero_()
    for expert, rows in _groups(call):
        total = call.a[rows].float().t() @ call.b[rows].float()
        out[expert] = total + out[expert].float() if call.form.accumulate else total


def _groups(call: Call) -> Iterator[tuple[int, slice]]:
    """Yield (expert, its rows) of the groups that have rows."""
    ends = ends_within(call.offs.tolist(), call.M)
    for expert, (start, end) in enumerate(pairwise((0, *ends))):
        if start < end:
            yield expert, slice(start, end)
