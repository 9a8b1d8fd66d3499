"""Who computes a call of grouped_mm: a program, or what may stand in for one, by name and never in silence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Literal, get_args

import torch

from .. import registry
from ..errors import NoProgramError
from ..grouped_gemm import prepared, reference
from ..grouped_gemm.call import Call
from ..grouped_gemm.prepared import Prepared
from . import torch_grouped_mm

Backend = Literal["auto", "sm90", "reference"]
BACKENDS: tuple[str, ...] = get_args(Backend)


class FallbackWarning(UserWarning):
    """No program of this version can do a call; the message has the reason, and what computes it instead."""


def prepare(call: Call, *, deterministic: bool, backend: str) -> Prepared:
    """Bind a checked call to who computes it.

    Parameters
    ----------
    backend
        One of :data:`BACKENDS`, as :func:`cake_kernels.grouped_mm` says.

    Raises
    ------
    ArgumentError
        A tensor is aligned as no CUDA program can address it, or ``deterministic`` is no bool.
    NoProgramError
        No program can do the call, and none may stand in for it.
    NondeterministicError
        The program is nondeterministic, and torch is told to use deterministic algorithms.
    """
    prepared.check_deterministic(deterministic)
    on_cpu = call.form.device.type == "cpu"
    if backend == "reference" or (on_cpu and backend == "auto"):
        return _bound(call, reference.run)
    if on_cpu:
        _refuse_cpu(call, deterministic=deterministic)
    try:
        bound = prepared.prepare(call, deterministic=deterministic)
    except NoProgramError as error:
        if backend == "auto" and deterministic:
            return _fallback(call, str(error))
        raise
    if not deterministic and call.form.op == "fwd":  # dgrad has the same bits in each run, and wgrad says so itself
        prepared.alert_not_deterministic("grouped_mm")
    return bound


def _fallback(call: Call, reason: str) -> Prepared:
    refusal = torch_grouped_mm.why_not(call.form)
    if refusal is None:
        call.check_alignment()
        _say(f"{reason}; instead {call.form.op} is computed by torch._grouped_mm")
        return _bound(call, torch_grouped_mm.run)
    _say(f"{reason}; instead {call.form.op} is computed by the reference, since {refusal}")
    return _bound(call, reference.run)


def _bound(call: Call, run: Callable[[Call, torch.Tensor], object]) -> Prepared:
    out = call.output()
    return Prepared(out=out, inputs=(call.a, call.b, call.offs), enqueue=partial(run, call, out))


def _refuse_cpu(call: Call, *, deterministic: bool) -> None:
    """Raise with each program's reason."""
    form = call.form
    problem = registry.Problem(
        op=form.op,
        out_dtype="fp32" if form.out_dtype == torch.float32 else "bf16",
        arch="cpu",
        M=form.M,
        N=form.N,
        K=form.K,
        E=form.E,
    )
    registry.find(problem, "det" if deterministic else "nondet")


@cache
def _say(what: str) -> None:
    """Warn, once for each sentence."""
    warnings.warn(what, FallbackWarning, stacklevel=2)
