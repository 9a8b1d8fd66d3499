"""grouped_mm: the grouped GEMM as a layer calls it, with gradients.

::

    from cake_kernels import grouped_mm
    y = grouped_mm(x, w, offs)              # y[rows of e] = x[rows of e] @ w[e].T
    y.sum().backward()                      # dX into x.grad, dW into w.grad

What :mod:`cake_kernels.grouped_gemm` computes, and what it leaves to its caller: autograd, autocast, checkpointing,
torch.compile, and a named fallback where this version has no program for the device.
"""

from __future__ import annotations

import torch

from ..errors import ArgumentError, NondeterministicError
from .autograd import multiply
from .backend import BACKENDS, Backend, FallbackWarning

__all__ = ["Backend", "FallbackWarning", "NondeterministicError", "grouped_mm"]


def grouped_mm(
    x: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor,
    *,
    deterministic: bool = True,
    out_dtype: torch.dtype | None = None,
    weight_grad_dtype: torch.dtype | None = None,
    backend: Backend = "auto",
    num_sms: int | None = None,
) -> torch.Tensor:
    """Compute Y = X Wᵀ, each expert's rows with its own weight; differentiable once in ``x`` and ``w``.

    Products of BF16 numbers, sums in FP32, one rounding at the store; so are dX = G W and dW = Gᵀ X. Nothing waits for
    the device, unless the reference runs.

    Parameters
    ----------
    x
        bf16 [M, K], unit stride along K. Read, and saved for backward if ``w`` requires a gradient.
    w
        bf16 [E, N, K], unit stride along K; or, as ``torch._grouped_mm`` takes it, ``w.transpose(-2, -1)``: a view
        [E, K, N], read in place. Where N = K the strides say which of the two it is. Read, and saved for backward if
        ``x`` requires a gradient.
    offs
        int32 [E], cumulative ends, contiguous, on the device of ``x``: expert e owns rows ``offs[e - 1]:offs[e]``.
        Rows past the last end belong to nobody: zeros in Y and in dX, and not read, NaN included. Saved for backward.
    deterministic
        True: all three results are bitwise the same from run to run. False: the order of a sum may differ.
    out_dtype
        ``None`` or ``torch.bfloat16``, which is what Y is.
    weight_grad_dtype
        ``None``: dW has the type of ``w``. ``torch.float32``: dW is stored without rounding to BF16 and delivered as
        FP32; if a gradient is wanted, ``w`` must then be a leaf with ``w.grad_dtype = torch.float32`` (or None), and
        the code not compiled.
    backend
        ``"auto"``: a program of this version; on CUDA, where none can do the call, ``torch._grouped_mm`` if it can,
        else the reference, said once by a :class:`FallbackWarning`; ``deterministic=False`` never falls back. On a CPU
        the reference. ``"sm90"``: a program or an error. ``"reference"``: the reference, on any device.
    num_sms
        The most SMs that a program may occupy, in the forward and in each gradient: an int of at least 2; ``None``:
        all. What it does to bits: :mod:`cake_kernels.grouped_gemm`. What stands in for a program does not heed it.

    Returns
    -------
    torch.Tensor
        bf16 [M, N], new and contiguous.

    Raises
    ------
    ArgumentError
        An argument breaks a rule above. In compiled code those on tensors and ``num_sms`` are checked when it runs,
        the others, and that all tensors are on one device, when it is compiled.
    NoProgramError
        No program can do the call and none may stand in; or a gradient is differentiated again.
    NondeterministicError
        In the backward: dW would be computed by a nondeterministic program under
        ``torch.use_deterministic_algorithms(True)``; only a warning with its ``warn_only``.

    Notes
    -----
    Under autocast to BF16 the FP32 ones of ``x`` and ``w`` are cast, as torch's own matrix products do, and gradients
    arrive in their types. A gradient of Y that is not contiguous, or not aligned, is copied first.
    """
    if backend not in BACKENDS:
        raise ArgumentError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if out_dtype not in (None, torch.bfloat16):
        raise ArgumentError(f"out_dtype must be None or torch.bfloat16, got {out_dtype}; cast the result instead")
    if weight_grad_dtype not in (None, torch.float32):
        raise ArgumentError(
            f"weight_grad_dtype must be None or torch.float32, got {weight_grad_dtype}; None gives dW the type of w"
        )
    for name, tensor in (("x", x), ("w", w), ("offs", offs)):
        if not isinstance(tensor, torch.Tensor):
            raise ArgumentError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    w = _by_rows(w, x)
    device = x.device.type
    if device in ("cpu", "cuda") and torch.is_autocast_enabled(device):
        x, w = _autocast(x, device), _autocast(w, device)
    if weight_grad_dtype is not None:
        _check_delivery(w, weight_grad_dtype)
    stored = weight_grad_dtype or torch.bfloat16
    return multiply(x, w, offs, deterministic=deterministic, backend=backend, weight_grad_dtype=stored, num_sms=num_sms)


def _by_rows(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return w as [E, N, K], whether it came so or as the view [E, K, N]; the form's own rules are checked later."""
    form = w.shape
    if len(form) != 3 or x.ndim != 2 or form[1] != x.shape[1]:
        return w
    is_view = form[2] != form[1] or (w.stride(1) == 1 and w.stride(2) != 1)
    return w.transpose(-2, -1) if is_view else w


def _autocast(tensor: torch.Tensor, device: str) -> torch.Tensor:
    dtype = torch.get_autocast_dtype(device)
    if dtype != torch.bfloat16:
        raise ArgumentError(f"autocast must be to torch.bfloat16, got {dtype}; leave it, or disable it, for this call")
    return tensor.to(dtype) if tensor.dtype in (torch.float32, torch.float16) else tensor


def _check_delivery(w: torch.Tensor, dtype: torch.dtype) -> None:
    """Refuse a gradient type that autograd would round on its way: only a leaf may want another than its own."""
    if not (w.requires_grad and torch.is_grad_enabled()):
        return
    if torch.compiler.is_compiling():
        raise ArgumentError(
            f"weight_grad_dtype must be None in compiled code, got {dtype}: there autograd rounds dW to the type of w;"
            " call grouped_mm outside of torch.compile, by torch.compiler.disable"
        )
    if not w.is_leaf:
        raise ArgumentError(
            f"w must be a leaf for weight_grad_dtype={dtype}, got the result of {w.grad_fn}, through which autograd"
            f" would round dW to {w.dtype}; pass the parameter itself, BF16 [E, N, K]"
        )
    if w.grad_dtype not in (None, dtype):
        raise ArgumentError(
            f"w.grad_dtype must be {dtype} or None for weight_grad_dtype={dtype}, got {w.grad_dtype}, to which"
            f" autograd would round dW; set w.grad_dtype = {dtype} once, when the parameter is made"
        )
