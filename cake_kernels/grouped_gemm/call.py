"""Call: the checked arguments of one grouped GEMM. Every rule on tensors stands here, once.

Nothing here reads a value from a device: shapes, types, strides and addresses are known on the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..device import facts
from ..errors import ArgumentError
from ..offsets import MAX_ROWS, check_offs
from ..registry import Op, OutDtype, Problem

_OUT_DTYPES: dict[torch.dtype, OutDtype] = {torch.bfloat16: "bf16", torch.float32: "fp32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One grouped GEMM; the functions below return one only if its arguments keep every rule of the contract.

    Attributes
    ----------
    a, b
        x and w (fwd), g and w (dgrad), g and x (wgrad).
    out
        The caller's output; ``None`` asks for a new one.
    M, N, K, E
        X [M, K], W [E, N, K], G and Y [M, N].
    """

    op: Op
    a: torch.Tensor
    b: torch.Tensor
    offs: torch.Tensor
    out: torch.Tensor | None
    out_dtype: torch.dtype
    accumulate: bool
    M: int
    N: int
    K: int
    E: int

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The output's: [M, N], [M, K] or [E, N, K]."""
        return {"fwd": (self.M, self.N), "dgrad": (self.M, self.K), "wgrad": (self.E, self.N, self.K)}[self.op]

    def output(self) -> torch.Tensor:
        """Return the caller's output, or a new contiguous one, uninitialised."""
        if self.out is not None:
            return self.out
        return torch.empty(self.out_shape, dtype=self.out_dtype, device=self.a.device)

    def problem(self) -> Problem:
        """Return what the choice of a CUDA program depends on."""
        return Problem(
            op=self.op,
            out_dtype=_OUT_DTYPES[self.out_dtype],
            arch=facts(self.a.device.index).arch,
            M=self.M,
            N=self.N,
            K=self.K,
            E=self.E,
            accumulate=self.accumulate,
        )


def forward_call(x: torch.Tensor, w: torch.Tensor, offs: torch.Tensor, out: torch.Tensor | None) -> Call:
    """Check the arguments of :func:`cake_kernels.grouped_gemm.forward`."""
    _check_operand("x", x, "[M, K]")
    _check_operand("w", w, "[E, N, K]")
    (M, K), (E, N, _) = x.shape, w.shape
    _check_size("w.shape[2]", w.shape[2], f"K = {K}, the columns of x", K)
    call = Call(op="fwd", a=x, b=w, offs=offs, out=out, out_dtype=torch.bfloat16, accumulate=False, M=M, N=N, K=K, E=E)
    return _checked(call, names=("x", "w"))


def dgrad_call(g: torch.Tensor, w: torch.Tensor, offs: torch.Tensor, out: torch.Tensor | None) -> Call:
    """Check the arguments of :func:`cake_kernels.grouped_gemm.dgrad`."""
    _check_operand("g", g, "[M, N]")
    _check_operand("w", w, "[E, N, K]")
    (M, N), (E, _, K) = g.shape, w.shape
    _check_size("w.shape[1]", w.shape[1], f"N = {N}, the columns of g", N)
    call = Call(
        op="dgrad", a=g, b=w, offs=offs, out=out, out_dtype=torch.bfloat16, accumulate=False, M=M, N=N, K=K, E=E
    )
    return _checked(call, names=("g", "w"))


def wgrad_call(
    g: torch.Tensor,
    x: torch.Tensor,
    offs: torch.Tensor,
    out: torch.Tensor | None,
    *,
    out_dtype: torch.dtype,
    accumulate: bool,
) -> Call:
    """Check the arguments of :func:`cake_kernels.grouped_gemm.wgrad`."""
    _check_operand("g", g, "[M, N]")
    _check_operand("x", x, "[M, K]")
    if out_dtype not in _OUT_DTYPES:
        raise ArgumentError(f"out_dtype must be torch.bfloat16 or torch.float32, got {out_dtype}")
    if accumulate and out is None:
        raise ArgumentError(
            "accumulate=True must come with out=, the tensor that the gradient is added to, got out=None"
        )
    (M, N), (_, K) = g.shape, x.shape
    _check_size("x.shape[0]", x.shape[0], f"M = {M}, the rows of g", M)
    check_offs(offs, device=g.device)  # before the others' turn: here E is known from offs alone
    E = offs.numel()
    call = Call(
        op="wgrad", a=g, b=x, offs=offs, out=out, out_dtype=out_dtype, accumulate=accumulate, M=M, N=N, K=K, E=E
    )
    return _checked(call, names=("g", "x"))


def _checked(call: Call, *, names: tuple[str, str]) -> Call:
    device = call.a.device
    if device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"{names[0]} must be on a CPU or a CUDA device, got {device}")
    if call.b.device != device:
        raise ArgumentError(f"{names[1]} must be on the device of {names[0]}, {device}, got {call.b.device}")
    for name, value in (("N", call.N), ("K", call.K), ("E", call.E)):
        if value < 1:
            raise ArgumentError(f"{name} must be >= 1, got {value}")
    if call.M > MAX_ROWS:
        raise ArgumentError(f"M must be at most {MAX_ROWS}, the most that int32 offs can name, got {call.M}")
    check_offs(call.offs, device=device, experts=call.E)
    if call.out is not None:
        _check_out(call, call.out, names)
    return call


def _check_out(call: Call, out: torch.Tensor, names: tuple[str, str]) -> None:
    form = {"fwd": "[M, N]", "dgrad": "[M, K]", "wgrad": "[E, N, K]"}[call.op]
    _check_operand("out", out, form, dtype=call.out_dtype)
    if tuple(out.shape) != call.out_shape:
        raise ArgumentError(f"out must have shape {form} = {list(call.out_shape)}, got {list(out.shape)}")
    if out.device != call.a.device:
        raise ArgumentError(f"out must be on the device of {names[0]}, {call.a.device}, got {out.device}")
    for name, tensor in zip((*names, "offs"), (call.a, call.b, call.offs), strict=True):
        if _share_addresses(out, tensor):
            raise ArgumentError(
                f"out must not share memory with {name}, which is read while out is written; pass another tensor"
            )


def _check_operand(name: str, tensor: torch.Tensor, form: str, dtype: torch.dtype = torch.bfloat16) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.ndim != form.count(",") + 1:
        raise ArgumentError(f"{name} must have shape {form}, got {list(tensor.shape)}")
    if tensor.dtype != dtype:
        raise ArgumentError(f"{name} must be {dtype}, got {tensor.dtype}; nothing is cast here")
    if tensor.layout != torch.strided or not _rows_are_apart(tensor):
        raise ArgumentError(
            f"{name} must have unit stride along its last dimension and rows that do not overlap, got strides"
            f" {tuple(tensor.stride())} for shape {list(tensor.shape)}; pass {name}.contiguous()"
        )


def _check_size(what: str, value: int, must: str, expected: int) -> None:
    if value != expected:
        raise ArgumentError(f"{what} must be {must}, got {value}")


def _rows_are_apart(tensor: torch.Tensor) -> bool:
    """Whether the last dimension is contiguous and each outer one steps over all of the inner ones; padding is fine."""
    if tensor.numel() == 0:
        return True
    extent = 1
    for dim in reversed(range(tensor.ndim)):
        size, stride = tensor.shape[dim], tensor.stride(dim)
        if size == 1:
            continue
        if stride < extent or (dim == tensor.ndim - 1 and stride != 1):
            return False
        extent += (size - 1) * stride
    return True


def _share_addresses(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the spans from first to last byte meet; interleaved columns of one buffer count as shared."""
    if one.device != other.device or not one.numel() or not other.numel():
        return False
    return one.data_ptr() < _end(other) and other.data_ptr() < _end(one)


def _end(tensor: torch.Tensor) -> int:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()
