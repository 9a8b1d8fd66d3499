"""Ragged BF16 grouped GEMM: expert e owns a contiguous run of rows, named by ``offs`` or ``indptr``.

=========  ==========  ==========================  =====================
function   formula     ragged along                output
=========  ==========  ==========================  =====================
forward    Y = X Wᵀ    rows of X and Y             BF16 [M, N]
dgrad      dX = G W    rows of G and dX            BF16 [M, K]
wgrad      dW = Gᵀ X   the reduction               BF16 or FP32 [E, N, K]
=========  ==========  ==========================  =====================

BF16 inputs, FP32 accumulation, one rounding at the store (to nearest even). Groups may be empty, one row, anything;
there may be no rows (M = 0) and no experts (E = 0).

``offs`` or ``indptr`` in all three: exactly one, on the device of the others, contiguous, not written
    ``offs``: int32 [E], cumulative ends: expert e owns rows ``offs[e - 1]:offs[e]``, the first from row 0.
    ``indptr``: int32 [E + 1], a prefix: expert e owns rows ``indptr[e]:indptr[e + 1]``; ``indptr[0]`` stands for 0 and
    is not read. Values are read on the device; ends that are not monotone or leave 0..M are read as their running
    maximum kept within 0..M, so that nothing outside the tensors is touched. Rows past the last end belong to nobody.

Layout in all three
    Unit stride along the last dimension; outer strides may be larger than what they step over (padding is neither read
    nor written). On CUDA base addresses and outer strides are multiples of 16 bytes. The caller owns every tensor that
    it passes; ``out`` must not share memory with an input.

``num_sms`` in all three: an int of at least 2, or ``None``
    The most SMs that a launch of a program may occupy, for a caller who overlaps it with other work; ``None``: all. Y
    and dX have the same bits for any ``num_sms``. dW of the deterministic variant is bitwise repeatable for one; where
    tiles are split along the reduction, their bits depend on it as they do on the device's number of SMs.

``prepare_forward``, ``prepare_dgrad``, ``prepare_wgrad`` take the same arguments, check and bind them, and return what
launches the call as often as wanted: :class:`Prepared`. The functions prepare and launch once.

On a CPU the program is :mod:`.reference`, for both variants: bitwise the same from run to run with the same number
of threads. On CUDA a program of :mod:`cake_kernels.registry` runs on the current stream of the tensors' device; where
none can do the call, that is an error and never another way of computing it. No gradient flows through these functions,
nor through the operators that :mod:`.ops` makes of them for torch.compile.
"""

from __future__ import annotations

import torch

from . import ops, reference
from .call import dgrad_call, forward_call, wgrad_call
from .prepared import Prepared, prepare

__all__ = [
    "Prepared",
    "dgrad",
    "forward",
    "ops",
    "prepare_dgrad",
    "prepare_forward",
    "prepare_wgrad",
    "reference",
    "wgrad",
]


def forward(
    x: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor | None = None,
    *,
    indptr: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> torch.Tensor:
    """Compute Y = X Wᵀ, each expert's rows with its own weight.

    Parameters
    ----------
    x
        bf16 [M, K]. Read; rows past the last end are not, NaN there included.
    w
        bf16 [E, N, K]. Read.
    offs, indptr
        See :mod:`cake_kernels.grouped_gemm`.
    out
        bf16 [M, N], written whole: rows past the last end become exact zeros. ``None``: a new contiguous tensor.
    deterministic
        True: bitwise the same from run to run. False: the order of a sum may differ between runs.
    num_sms
        See :mod:`cake_kernels.grouped_gemm`.

    Returns
    -------
    torch.Tensor
        ``out``.

    Raises
    ------
    ArgumentError
        An argument breaks a rule above; nothing was written.
    NoProgramError
        No program can do the call on this device; the message has each program's reason.
    """
    return prepare(forward_call(x, w, offs, indptr, out, num_sms=num_sms), deterministic=deterministic).launch()


def dgrad(
    g: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor | None = None,
    *,
    indptr: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> torch.Tensor:
    """Compute dX = G W, the gradient of :func:`forward` with respect to x.

    Parameters
    ----------
    g
        bf16 [M, N], the gradient of Y. Read; rows past the last end are not, NaN there included.
    w
        bf16 [E, N, K]. Read.
    offs, indptr
        See :mod:`cake_kernels.grouped_gemm`.
    out
        bf16 [M, K], written whole: rows past the last end become exact zeros. ``None``: a new contiguous tensor.
    deterministic
        True: bitwise the same from run to run. False: the order of a sum may differ between runs.
    num_sms
        See :mod:`cake_kernels.grouped_gemm`.

    Returns
    -------
    torch.Tensor
        ``out``.

    Raises
    ------
    ArgumentError
        An argument breaks a rule above; nothing was written.
    NoProgramError
        No program can do the call on this device; the message has each program's reason.
    """
    return prepare(dgrad_call(g, w, offs, indptr, out, num_sms=num_sms), deterministic=deterministic).launch()


def wgrad(
    g: torch.Tensor,
    x: torch.Tensor,
    offs: torch.Tensor | None = None,
    *,
    indptr: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    accumulate: bool = False,
    out: torch.Tensor | None = None,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> torch.Tensor:
    """Compute dW = Gᵀ X, the gradient of :func:`forward` with respect to w.

    Parameters
    ----------
    g
        bf16 [M, N], the gradient of Y. Read; rows past the last end are not, NaN there included.
    x
        bf16 [M, K]. Read; rows past the last end are not, NaN there included.
    offs, indptr
        See :mod:`cake_kernels.grouped_gemm`; the length says E.
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
    num_sms
        See :mod:`cake_kernels.grouped_gemm`.

    Returns
    -------
    torch.Tensor
        ``out``.

    Raises
    ------
    ArgumentError
        An argument breaks a rule above; nothing was written.
    NoProgramError
        No program can do the call on this device; the message has each program's reason.
    NondeterministicError
        ``deterministic=False`` under ``torch.use_deterministic_algorithms(True)`` on CUDA; only a warning with
        ``warn_only=True``.
    """
    call = wgrad_call(g, x, offs, indptr, out, out_dtype=out_dtype, accumulate=accumulate, num_sms=num_sms)
    return prepare(call, deterministic=deterministic).launch()


def prepare_forward(
    x: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor | None = None,
    *,
    indptr: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> Prepared:
    """Check and bind the arguments of :func:`forward`; its contract, errors included, holds for every launch."""
    return prepare(forward_call(x, w, offs, indptr, out, num_sms=num_sms), deterministic=deterministic)


def prepare_dgrad(
    g: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor | None = None,
    *,
    indptr: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> Prepared:
    """Check and bind the arguments of :func:`dgrad`; its contract, errors included, holds for every launch."""
    return prepare(dgrad_call(g, w, offs, indptr, out, num_sms=num_sms), deterministic=deterministic)


def prepare_wgrad(
    g: torch.Tensor,
    x: torch.Tensor,
    offs: torch.Tensor | None = None,
    *,
    indptr: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    accumulate: bool = False,
    out: torch.Tensor | None = None,
    deterministic: bool = True,
    num_sms: int | None = None,
) -> Prepared:
    """Check and bind the arguments of :func:`wgrad`; its contract holds for every launch, each of which accumulates."""
    call = wgrad_call(g, x, offs, indptr, out, out_dtype=out_dtype, accumulate=accumulate, num_sms=num_sms)
    return prepare(call, deterministic=deterministic)
