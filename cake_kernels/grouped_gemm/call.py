"""Call: the checked arguments of one grouped GEMM. Every rule on tensors stands here, once.

Nothing here reads a value from a device: shapes, types, strides and addresses are known on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ..device import facts
from ..errors import ArgumentError
from ..offsets import MAX_ROWS, given_ends
from ..registry import Op, OutDtype, Problem, Program, Route

ALIGNMENT_BYTES = 16
"""What base addresses and outer strides are multiples of on CUDA."""

MIN_SMS = 2
"""Fewest SMs that a call may be given: one cluster of each program fits."""

_OUT_DTYPES: dict[torch.dtype, OutDtype] = {torch.bfloat16: "bf16", torch.float32: "fp32"}
_OPERANDS: dict[Op, tuple[str, str]] = {"fwd": ("x", "w"), "dgrad": ("g", "w"), "wgrad": ("g", "x")}
_OUT_FORMS: dict[Op, str] = {"fwd": "[M, N]", "dgrad": "[M, K]", "wgrad": "[E, N, K]"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Form:
    """What calls of equal options have in common that differ by addresses and by the number of rows alone.

    Their tensors have the same strides, types and devices, and but for M the same shapes.

    Attributes
    ----------
    device
        Of the operands, and of the output.
    N, K, E
        X [M, K], W [E, N, K], G and Y [M, N].
    out_strides
        What a new output has.
    has_aligned_strides
        Whether the operands' outer strides are such that a CUDA program can address them.
    num_sms
        The most SMs that a launch may occupy; ``None``: all.
    programs
        What calls on CUDA have found, by M and by whether they are deterministic.
    routes
        What they have found then, by M, the stem of the program and the strides of their output.
    first_routes
        The one of them that was found first, whatever its M, by the stem and the strides: others are made from it.
    """

    op: Op
    out_dtype: torch.dtype
    accumulate: bool
    device: torch.device
    N: int
    K: int
    E: int
    out_strides: tuple[int, ...]
    has_aligned_strides: bool
    num_sms: int | None
    programs: dict[tuple[int, bool], Program] = field(default_factory=dict)
    routes: dict[tuple[int, str, tuple[int, ...]], Route] = field(default_factory=dict)
    first_routes: dict[tuple[str, tuple[int, ...]], Route] = field(default_factory=dict)


class Call(NamedTuple):
    """One grouped GEMM; the functions below return one only if its arguments keep every rule of the contract.

    Attributes
    ----------
    M
        Rows.
    a, b
        x and w (fwd), g and w (dgrad), g and x (wgrad).
    offs
        int32 [E], cumulative ends: the caller's offs, or a view of the caller's indptr.
    out
        The caller's output; ``None`` asks for a new one.
    """

    form: Form
    M: int
    a: torch.Tensor
    b: torch.Tensor
    offs: torch.Tensor
    out: torch.Tensor | None

    @property
    def out_shape(self) -> tuple[int, ...]:
        """[M, N], [M, K] or [E, N, K]."""
        form = self.form
        if form.op == "wgrad":
            return form.E, form.N, form.K
        return self.M, form.N if form.op == "fwd" else form.K

    def problem(self) -> Problem:
        """Return what the choice of a CUDA program depends on."""
        form = self.form
        return Problem(
            op=form.op,
            out_dtype=_OUT_DTYPES[form.out_dtype],
            arch=facts(form.device.index).arch,
            M=self.M,
            N=form.N,
            K=form.K,
            E=form.E,
            accumulate=form.accumulate,
        )

    def output(self) -> torch.Tensor:
        """Return the caller's output, or a new contiguous one, uninitialised."""
        if self.out is not None:
            return self.out
        form = self.form
        # With strides: torch.empty takes the host longer.
        return torch.empty_strided(self.out_shape, form.out_strides, dtype=form.out_dtype, device=form.device)

    def addresses(self) -> tuple[int, int, int]:
        """Return where ``a``, ``b`` and ``offs`` begin, as a CUDA program can address them. A CPU has no such rule.

        Raises
        ------
        ArgumentError
            A base address, or the outer stride of a dimension of more than one element, is not a multiple of
            :data:`ALIGNMENT_BYTES`; or a tensor has elements and no address, as one has that wraps another tensor.
        """
        form, _, a, b, offs, out = self
        at_a, at_b, at_offs = addresses = a.data_ptr(), b.data_ptr(), offs.data_ptr()
        have_addresses = at_a and at_b and at_offs
        if out is None and form.has_aligned_strides and have_addresses and not (at_a | at_b) % ALIGNMENT_BYTES:
            return addresses
        names = *_OPERANDS[form.op], "offs (or indptr)", "out"
        for name, tensor in zip(names, (a, b, offs, out), strict=True):
            if tensor is None or not tensor.numel():
                continue
            if not tensor.data_ptr():
                raise ArgumentError(
                    f"{name} must have memory of its own on CUDA, got a {type(tensor).__name__} without an address;"
                    " pass the tensor that it wraps, or call the operators in torch.ops.cake_kernels, which find it"
                )
            if tensor is not offs:
                _check_alignment(name, tensor)
        return addresses


class Sizes(NamedTuple):
    """X [M, K], W [E, N, K], G and Y [M, N]. Where a call is traced, any of them may be a symbol."""

    M: int
    N: int
    K: int
    E: int


_Key = tuple[object, ...] | None

_FORMS: dict[_Key, Form] = {}
"""Of earlier calls, one form of each key. Checking one takes longer on the host than launching it."""

_PAIRS: dict[_Key, tuple[Form, Form]] = {}
"""Of earlier gradients that were wanted both, the forms of the two calls."""

_MOST_FORMS = 1024


def forward_call(
    x: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor | None,
    indptr: torch.Tensor | None,
    out: torch.Tensor | None,
    *,
    num_sms: int | None = None,
) -> Call:
    """Check the arguments of :func:`cake_kernels.grouped_gemm.forward`."""
    _check_num_sms(num_sms)
    key = _key("fwd", x, w, offs, indptr, num_sms)
    form = _FORMS.get(key)
    if form is None:
        form = _known(key, "fwd", x, w, forward_sizes(x, w, offs, indptr), num_sms=num_sms)
    return _call(form, x, w, offs, indptr, out)


def forward_sizes(
    x: torch.Tensor, w: torch.Tensor, offs: torch.Tensor | None, indptr: torch.Tensor | None = None
) -> Sizes:
    """Check the operands of a forward, which may have no values, and return what their shapes say."""
    _check_operand("x", x, "[M, K]")
    _check_operand("w", w, "[E, N, K]")
    (M, K), (E, N, _) = x.shape, w.shape
    if w.shape[2] != K:
        raise ArgumentError(f"w.shape[2] must be K = {K}, the columns of x, got {w.shape[2]}")
    _check_devices("fwd", x, w)
    given_ends(offs, indptr, device=x.device, experts=E)
    return _checked(Sizes(M, N, K, E))


def dgrad_call(
    g: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor | None,
    indptr: torch.Tensor | None,
    out: torch.Tensor | None,
    *,
    num_sms: int | None = None,
) -> Call:
    """Check the arguments of :func:`cake_kernels.grouped_gemm.dgrad`."""
    _check_num_sms(num_sms)
    key = _key("dgrad", g, w, offs, indptr, num_sms)
    form = _FORMS.get(key)
    if form is None:
        form = _known(key, "dgrad", g, w, dgrad_sizes(g, w, offs, indptr), num_sms=num_sms)
    return _call(form, g, w, offs, indptr, out)


def dgrad_sizes(
    g: torch.Tensor, w: torch.Tensor, offs: torch.Tensor | None, indptr: torch.Tensor | None = None
) -> Sizes:
    """Check the operands of a dgrad, which may have no values, and return what their shapes say."""
    _check_operand("g", g, "[M, N]")
    _check_operand("w", w, "[E, N, K]")
    (M, N), (E, _, K) = g.shape, w.shape
    if w.shape[1] != N:
        raise ArgumentError(f"w.shape[1] must be N = {N}, the columns of g, got {w.shape[1]}")
    _check_devices("dgrad", g, w)
    given_ends(offs, indptr, device=g.device, experts=E)
    return _checked(Sizes(M, N, K, E))


def wgrad_call(
    g: torch.Tensor,
    x: torch.Tensor,
    offs: torch.Tensor | None,
    indptr: torch.Tensor | None,
    out: torch.Tensor | None,
    *,
    out_dtype: torch.dtype,
    accumulate: bool,
    num_sms: int | None = None,
) -> Call:
    """Check the arguments of :func:`cake_kernels.grouped_gemm.wgrad`."""
    if not isinstance(out_dtype, torch.dtype) or out_dtype not in _OUT_DTYPES:
        raise ArgumentError(f"out_dtype must be torch.bfloat16 or torch.float32, got {out_dtype!r}")
    if not isinstance(accumulate, bool):
        raise ArgumentError(f"accumulate must be a bool, got {accumulate!r}")
    if accumulate and out is None:
        raise ArgumentError(
            "accumulate=True must come with out=, the tensor that the gradient is added to, got out=None"
        )
    _check_num_sms(num_sms)
    key = _key("wgrad", g, x, offs, indptr, num_sms, out_dtype, accumulate)
    form = _FORMS.get(key)
    if form is None:
        sizes = wgrad_sizes(g, x, offs, indptr)
        form = _known(key, "wgrad", g, x, sizes, num_sms=num_sms, out_dtype=out_dtype, accumulate=accumulate)
    return _call(form, g, x, offs, indptr, out)


def wgrad_sizes(
    g: torch.Tensor, x: torch.Tensor, offs: torch.Tensor | None, indptr: torch.Tensor | None = None
) -> Sizes:
    """Check the operands of a wgrad, which may have no values, and return what their shapes say."""
    _check_operand("g", g, "[M, N]")
    _check_operand("x", x, "[M, K]")
    (M, N), (_, K) = g.shape, x.shape
    if x.shape[0] != M:
        raise ArgumentError(f"x.shape[0] must be M = {M}, the rows of g, got {x.shape[0]}")
    _check_devices("wgrad", g, x)
    E = given_ends(offs, indptr, device=g.device).numel()
    return _checked(Sizes(M, N, K, E))


def gradient_calls(
    g: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    offs: torch.Tensor,
    *,
    weight_grad_dtype: torch.dtype,
    num_sms: int | None,
) -> tuple[Call, Call]:
    """Check the arguments of the dgrad and the wgrad of one G, which have no outputs yet, by one lookup if known."""
    _check_num_sms(num_sms)
    key = None
    if type(w) in _PLAIN and w.layout is torch.strided:
        key = _key("wgrad", g, x, offs, None, num_sms, weight_grad_dtype, w.shape, w.stride(), w.dtype, w.device)
    forms = _PAIRS.get(key)
    if forms is not None:
        M = g.shape[0]
        return Call(forms[0], M, g, w, offs, None), Call(forms[1], M, g, x, offs, None)
    dgrad = dgrad_call(g, w, offs, None, None, num_sms=num_sms)
    wgrad = wgrad_call(g, x, offs, None, None, out_dtype=weight_grad_dtype, accumulate=False, num_sms=num_sms)
    if key is not None:
        if len(_PAIRS) >= _MOST_FORMS:
            _PAIRS.clear()
        _PAIRS[key] = dgrad.form, wgrad.form
    return dgrad, wgrad


def _check_num_sms(num_sms: object) -> None:
    """Refuse what is no number of SMs for a call. Each call's is checked: to a key, 2.0 and 2 are the same.

    Raises
    ------
    ArgumentError
        It is neither ``None`` nor an int of at least :data:`MIN_SMS`, which no bool is.
    """
    if num_sms is None:
        return
    if not isinstance(num_sms, int) or num_sms < MIN_SMS:
        raise ArgumentError(
            f"num_sms must be an int of at least {MIN_SMS}, for a cluster of two CTAs, or None for all SMs,"
            f" got {num_sms!r}"
        )


def _key(
    op: Op, a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None, indptr: torch.Tensor | None, *options: object
) -> _Key:
    """Return all that a form depends on but its rows, of which it says whether there are none, one or more.

    ``None`` where a tensor is none of torch's own, has not the right number of dimensions or too many rows: such is
    checked each time.
    """
    ends = offs if indptr is None else indptr
    if ends is None or (offs is not None and indptr is not None):
        return None
    if not (type(a) in _PLAIN and type(b) in _PLAIN and type(ends) in _PLAIN):
        return None
    if not a.layout is b.layout is ends.layout is torch.strided:
        return None
    shape_a = a.shape
    if len(shape_a) != 2:
        return None
    M, columns = shape_a
    if M > MAX_ROWS:
        return None
    shape_b: tuple[int, ...] = b.shape
    if op == "wgrad":
        if len(shape_b) != 2 or shape_b[0] != M:
            return None
        shape_b = shape_b[1:]
    return (
        op,
        M if M < 2 else 2,
        columns,
        a.stride(),
        a.dtype,
        a.device,
        shape_b,
        b.stride(),
        b.dtype,
        b.device,
        ends.shape,
        ends.stride(),
        ends.dtype,
        ends.device,
        indptr is None,
        options,
    )


_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))


def _known(
    key: _Key,
    op: Op,
    a: torch.Tensor,
    b: torch.Tensor,
    sizes: Sizes,
    *,
    num_sms: int | None,
    out_dtype: torch.dtype = torch.bfloat16,
    accumulate: bool = False,
) -> Form:
    """Return the form of operands that keep their own rules, and remember it under its key."""
    if a.device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"{_OPERANDS[op][0]} must be on a CPU or a CUDA device, got {a.device}")
    _, N, K, E = sizes
    form = Form(
        op=op,
        out_dtype=out_dtype,
        accumulate=accumulate,
        device=a.device,
        N=N,
        K=K,
        E=E,
        out_strides=(N * K, K, 1) if op == "wgrad" else (N if op == "fwd" else K, 1),
        has_aligned_strides=not (_odd_strides(a) or _odd_strides(b)),
        num_sms=num_sms,
    )
    if key is not None:
        if len(_FORMS) >= _MOST_FORMS:
            _FORMS.clear()
        _FORMS[key] = form
    return form


def _checked(sizes: Sizes) -> Sizes:
    for name, value in (("N", sizes.N), ("K", sizes.K)):
        if value < 1:
            raise ArgumentError(f"{name} must be >= 1, got {value}")
    if isinstance(sizes.M, int) and sizes.M > MAX_ROWS:  # of a symbol, what runs later asks
        raise ArgumentError(f"M must be at most {MAX_ROWS}, the most that int32 offs can name, got {sizes.M}")
    return sizes


def _call(
    form: Form,
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None,
    indptr: torch.Tensor | None,
    out: torch.Tensor | None,
) -> Call:
    """Return the call of operands that were checked, with exactly one of ``offs`` and ``indptr``."""
    ends = offs if indptr is None else indptr[1:]
    assert ends is not None
    call = Call(form, a.shape[0], a, b, ends, out)
    if out is not None:
        _check_out(call, out)
    return call


def _check_devices(op: Op, a: torch.Tensor, b: torch.Tensor) -> None:
    if b.device != a.device:
        name_a, name_b = _OPERANDS[op]
        raise ArgumentError(f"{name_b} must be on the device of {name_a}, {a.device}, got {b.device}")


def _check_out(call: Call, out: torch.Tensor) -> None:
    form = call.form
    name_a, name_b = _OPERANDS[form.op]
    letters = _OUT_FORMS[form.op]
    _check_operand("out", out, letters, dtype=form.out_dtype)
    if tuple(out.shape) != call.out_shape:
        raise ArgumentError(f"out must have shape {letters} = {list(call.out_shape)}, got {list(out.shape)}")
    if out.device != form.device:
        raise ArgumentError(f"out must be on the device of {name_a}, {form.device}, got {out.device}")
    written = _addresses(out)
    for name, tensor in ((name_a, call.a), (name_b, call.b), ("offs (or indptr)", call.offs)):
        read = _addresses(tensor)
        if max(written.start, read.start) < min(written.stop, read.stop):
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
    if tensor.layout != torch.strided:
        raise ArgumentError(f"{name} must have the layout torch.strided, got {tensor.layout}; pass {name}.to_dense()")
    if not _rows_are_apart(tensor):
        raise ArgumentError(
            f"{name} must have unit stride along its last dimension and rows that do not overlap, got strides"
            f" {tuple(tensor.stride())} for shape {list(tensor.shape)}; pass {name}.contiguous()"
        )


def _rows_are_apart(tensor: torch.Tensor) -> bool:
    """Whether the last dimension is contiguous and each outer one steps over all of the inner ones; padding is fine."""
    if tensor.is_contiguous():
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


def _check_alignment(name: str, tensor: torch.Tensor) -> None:
    if past := tensor.data_ptr() % ALIGNMENT_BYTES:
        raise ArgumentError(
            f"{name} must begin at a multiple of {ALIGNMENT_BYTES} bytes on CUDA, got an address {past} bytes past one;"
            " a new tensor begins at one, a view into another may not"
        )
    if _odd_strides(tensor):
        raise ArgumentError(
            f"{name} must have outer strides that are multiples of {ALIGNMENT_BYTES} bytes on CUDA,"
            f" {ALIGNMENT_BYTES // tensor.element_size()} elements of {tensor.dtype}, got strides"
            f" {tuple(tensor.stride())} for shape {list(tensor.shape)}; pad its rows to such a stride"
        )


def _odd_strides(tensor: torch.Tensor) -> bool:
    unit = ALIGNMENT_BYTES // tensor.element_size()
    # Strides first: where a call is traced, a size may be a symbol without a value.
    return any(stride % unit and size > 1 for size, stride in zip(tensor.shape[:-1], tensor.stride(), strict=False))


def _addresses(tensor: torch.Tensor) -> range:
    """Return the bytes from the first to the last element, those between its rows included."""
    begin = tensor.data_ptr()
    if tensor.is_contiguous():
        return range(begin, begin + tensor.nbytes)
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return range(begin, begin + (last + 1) * tensor.element_size())
