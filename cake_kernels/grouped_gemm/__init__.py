"""Ragged BF16 grouped GEMM: expert e owns a contiguous run of rows, named by ``offs``.

=========  ==========  ==========================  =====================
function   formula     ragged along                output
=========  ==========  ==========================  =====================
forward    Y = X Wᵀ    rows of X and Y             BF16 [M, N]
dgrad      dX = G W    rows of G and dX            BF16 [M, K]
wgrad      dW = Gᵀ X   the reduction               BF16 or FP32 [E, N, K]
=========  ==========  ==========================  =====================

BF16 inputs, FP32 accumulation, one rounding at the store (to nearest even). Groups may be empty, one row, anything.

``offs`` in all three
    int32 [E], contiguous, on the device of the others, not written. Cumulative ends: expert e owns rows
    ``offs[e - 1]:offs[e]``, the first from row 0. Values are read on the device; those that are not monotone or leave
    0..M are read as their running maximum kept within 0..M, so that nothing outside the tensors is touched. Rows past
    the last end belong to nobody.

Layout in all three
    Unit stride along the last dimension; outer strides may be larger than what they step over (padding is neither read
    nor written). The caller owns every tensor that it passes; ``out`` must not share memory with an input.

On a CPU the program is :mod:`.reference`, for both variants: bitwise the same from run to run with the same number
of threads. On CUDA a program of :mod:`cake_kernels.registry` runs on the current stream; where none can do the call,
that is an error and never another way of computing it. No gradient flows through these functions.
"""

from __future__ import annotations

import torch

from .. import registry
from . import reference
from .call import Call, dgrad_call, forward_call, wgrad_call

__all__ = ["dgrad", "forward", "reference", "wgrad"]


def forward(
    x: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    deterministic: bool = True,
) -> torch.Tensor:
    """Compute Y = X Wᵀ, each expert's rows with its own weight.

    Parameters
    ----------
    x
        bf16 [M, K]. Read; rows past the last end are not, NaN there included.
    w
        bf16 [E, N, K]. Read.
    offs
        See :mod:`cake_kernels.grouped_gemm`.
    out
        bf16 [M, N], written whole: rows past the last end become exact zeros. ``None``: a new contiguous tensor.
    deterministic
        True: bitwise the same from run to run. False: the order of a sum may differ between runs.

    Returns
    -------
    torch.Tensor
        ``out``.

    Raises
    ------
    ArgumentError
        A tensor breaks a rule above; nothing was written.
    NoProgramError
        No program can do the call on this device; the message has each program's reason.
    """
    return _run(forward_call(x, w, offs, out), deterministic=deterministic)


def dgrad(
    g: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    deterministic: bool = True,
) -> torch.Tensor:
    """Compute dX = G W, the gradient of :func:`forward` with respect to x.

    Parameters
    ----------
    g
        bf16 [M, N], the gradient of Y. Read; rows past the last end are not, NaN there included.
    w
        bf16 [E, N, K]. Read.
    offs
        See :mod:`cake_kernels.grouped_gemm`.
    out
        bf16 [M, K], written whole: rows past the last end become exact zeros. ``None``: a new contiguous tensor.
    deterministic
        True: bitwise the same from run to run. False: the order of a sum may differ between runs.

    Returns
    -------
    torch.Tensor
        ``out``.

    Raises
    ------
    ArgumentError
        A tensor breaks a rule above; nothing was written.
    NoProgramError
        No program can do the call on this device; the message has each program's reason.
    """
    return _run(dgrad_call(g, w, offs, out), deterministic=deterministic)


def wgrad(
    g: torch.Tensor,
    x: torch.Tensor,
    offs: torch.Tensor,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    accumulate: bool = False,
    out: torch.Tensor | None = None,
    deterministic: bool = True,
) -> torch.Tensor:
    """Compute dW = Gᵀ X, the gradient of :func:`forward` with respect to w.

    Parameters
    ----------
    g
        bf16 [M, N], the gradient of Y. Read; rows past the last end are not, NaN there included.
    x
        bf16 [M, K]. Read; rows past the last end are not, NaN there included.
    offs
        See :mod:`cake_kernels.grouped_gemm`; its length is E.
    out_dtype
        ``torch.bfloat16`` or ``torch.float32``.
    accumulate
        True: ``out += dW``, the sum in FP32 and rounded once to the type of ``out``; an empty group's part of ``out``
        keeps its bits. Needs ``out``, which is then read as well as written.
    out
        ``out_dtype`` [E, N, K], written whole: an empty group's part is exactly zero (unless accumulating). ``None``: a
        new contiguous tensor.
    deterministic
        True: bitwise the same from run to run. False: the order of a sum may differ between runs.

    Returns
    -------
    torch.Tensor
        ``out``.

    Raises
    ------
    ArgumentError
        A tensor breaks a rule above; nothing was written.
    NoProgramError
        No program can do the call on this device; the message has each program's reason.
    """
    call = wgrad_call(g, x, offs, out, out_dtype=out_dtype, accumulate=accumulate)
    return _run(call, deterministic=deterministic)


def _run(call: Call, *, deterministic: bool) -> torch.Tensor:
    if call.a.device.type == "cpu":
        return reference.run(call)
    program = registry.find(call.problem(), "det" if deterministic else "nondet")
    out = call.output()
    launch = program.prepare(call.a, call.b, call.offs, out, accumulate=call.accumulate)
    launch(torch.cuda.current_stream(out.device).cuda_stream)
    return out
