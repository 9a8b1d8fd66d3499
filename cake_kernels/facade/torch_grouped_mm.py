"""``torch._grouped_mm`` under our contract: what torch leaves open (rows of nobody, dW of empty groups) are zeros.

torch reads ends as they come, so they are first made monotone and kept within the rows, on the device. Nothing waits
for the device, where torch itself does not. A stand-in: it allocates its product and copies it.
"""

from __future__ import annotations

import torch

from ..grouped_gemm.call import Call

MAX_GROUPS = 1023
"""Most groups that ``torch._grouped_mm`` takes on CUDA."""


def why_not(call: Call) -> str | None:
    """Return which of torch's own limits a call breaks, or None."""
    form = call.form
    if form.out_dtype != torch.bfloat16:
        return f"torch._grouped_mm writes the type of its inputs, not {form.out_dtype}"
    if not 1 <= form.E <= MAX_GROUPS:
        return f"torch._grouped_mm takes 1 to {MAX_GROUPS} groups, got E = {form.E}"
    if call.M < 1:
        return f"torch._grouped_mm needs at least one row, got M = {call.M}"
    for name, value in (("N", form.N), ("K", form.K)):
        if value % 8:
            return f"torch._grouped_mm needs {name} a multiple of 8, got {value}"
    return None


@torch.no_grad()
def run(call: Call, out: torch.Tensor) -> None:
    """Write a call that :func:`why_not` lets pass into ``out``, of the call's output form."""
    offs = call.offs.cummax(0).values.clamp(0, call.M).to(torch.int32)
    a, b = call.a.detach(), call.b.detach()
    if call.form.op == "wgrad":
        product = torch._grouped_mm(a.t(), b, offs=offs)
        has_rows = offs.diff(prepend=offs.new_zeros(1)) > 0
        written = has_rows[:, None, None]
    else:
        product = torch._grouped_mm(a, b.transpose(-2, -1) if call.form.op == "fwd" else b, offs=offs)
        written = (torch.arange(call.M, device=offs.device) < offs[-1])[:, None]
    out.copy_(product.masked_fill_(~written, 0))
