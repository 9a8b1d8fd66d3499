"""Who computes a call of grouped_mm: a program, or what may stand in for one, by name and never in silence."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Literal, get_args

import torch

from .. import registry
from ..device import current_stream
from ..errors import NoProgramError
from ..grouped_gemm import reference
from ..grouped_gemm.call import Call
from ..grouped_gemm.prepared import allowed_program, launch
from . import torch_grouped_mm

Backend = Literal["auto", "sm90", "reference"]
BACKENDS: tuple[str, ...] = get_args(Backend)


class FallbackWarning(UserWarning):
    """No program of this version can do a call; the message has the reason, and what computes it instead."""


def compute(*calls: tuple[Call, torch.Tensor], deterministic: bool, backend: str) -> None:
    """Have checked calls write their outputs, once and on the current stream, by who computes each.

    Parameters
    ----------
    calls
        At least one, all on one device. An output is new: that a program writes it, autograd need not count.
    deterministic
        A bool.
    backend
        One of :data:`BACKENDS`, as :func:`cake_kernels.grouped_mm` says.

    Raises
    ------
    ArgumentError
        A tensor is aligned as no CUDA program can address it.
    DriverError
        See :meth:`.Prepared.launch`.
    NoProgramError
        No program can do a call, and none may stand in for it.
    NondeterministicError
        The program is nondeterministic, and torch is told to use deterministic algorithms.
    """
    first = calls[0][0]
    device = first.form.device
    on_cpu = device.type == "cpu"
    if backend == "reference" or (on_cpu and backend == "auto"):
        for call, out in calls:
            reference.run(call, out)
        return
    if on_cpu:
        _refuse_cpu(first, deterministic=deterministic)
    stream = current_stream(device.index)
    for call, out in calls:
        try:
            program = allowed_program(call, deterministic=deterministic)
        except NoProgramError as error:
            if backend != "auto" or not deterministic:
                raise
            _stand_in(call, out, str(error))
            continue
        launch(program, call, out, stream)


def _stand_in(call: Call, out: torch.Tensor, reason: str) -> None:
    refusal = torch_grouped_mm.why_not(call)
    if refusal is None:
        call.addresses()  # refused as a program's would be
        _say(f"{reason}; instead {call.form.op} is computed by torch._grouped_mm")
        torch_grouped_mm.run(call, out)
    else:
        _say(f"{reason}; instead {call.form.op} is computed by the reference, since {refusal}")
        reference.run(call, out)


def _refuse_cpu(call: Call, *, deterministic: bool) -> None:
    """Raise with each program's reason."""
    form = call.form
    problem = registry.Problem(
        op=form.op,
        out_dtype="fp32" if form.out_dtype == torch.float32 else "bf16",
        arch="cpu",
        M=call.M,
        N=form.N,
        K=form.K,
        E=form.E,
    )
    registry.find(problem, "det" if deterministic else "nondet")


@cache
def _say(what: str) -> None:
    """Warn, once for each sentence."""
    warnings.warn(what, FallbackWarning, stacklevel=2)
