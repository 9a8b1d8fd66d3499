"""Prepared: a call that is checked and bound once, and launched as often as wanted.

The functions of :mod:`cake_kernels.grouped_gemm` prepare and launch once. They take this way rather than that of the
torch operators in :mod:`.ops`, so that their errors are ours also where an argument is no tensor, and a call costs no
dispatch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NoReturn, TypeVar

import torch

from .. import registry
from ..device import current_stream, made_current
from ..errors import ArgumentError, NondeterministicError
from . import reference
from .call import Call

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_MOST_KNOWN = 64
"""So many programs, and so many routes, are kept of a form."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)  # frozen, it would cost each call half a microsecond
class Prepared:
    """A call bound to its tensors; made by the ``prepare_`` functions of :mod:`cake_kernels.grouped_gemm`.

    Stands while the addresses, shapes and strides of its tensors do. Their values may change in place between
    launches, those of ``offs`` or ``indptr`` too. One thread at a time may use it. It is bound to addresses, so that it
    cannot be copied or pickled: that is a ``TypeError``.

    Attributes
    ----------
    out
        What each launch writes, and with ``accumulate`` adds to: the caller's output, or one of its own.
    inputs
        The tensors that a launch reads; held here, so that they stay allocated.
    enqueue
        Writes ``out``: see :meth:`launch`.
    """

    out: torch.Tensor
    inputs: tuple[torch.Tensor, ...]
    enqueue: Callable[[], object]

    def launch(self) -> torch.Tensor:
        """Compute ``out`` on the current stream of its device, and return it.

        On CUDA this allocates nothing, checks nothing, never waits for the device, and may be captured in a CUDA
        graph. On a CPU it is the reference, which has computed ``out`` when it returns.

        Raises
        ------
        DriverError
            The driver refuses the launch, or an earlier kernel has failed and this is the first call to hear of it.
        """
        self.enqueue()
        return self.out

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a Prepared must not be copied or pickled, since a copy would write where this one writes; prepare the call"
            " again with the copied tensors"
        )


def prepare(call: Call, *, deterministic: bool) -> Prepared:
    """Bind a checked call to the program of its device.

    Raises
    ------
    ArgumentError
        A tensor is aligned as no CUDA program can address it, or ``deterministic`` is no bool.
    NoProgramError
        No program can do the call on this device; the message has each program's reason.
    NondeterministicError
        See :func:`alert_not_deterministic`; of wgrad alone, since the others split nothing.
    """
    check_deterministic(deterministic)
    form, _, a, b, offs, _ = call
    if form.device.type == "cpu":
        out = call.output()
        return Prepared(out=out, inputs=(a, b, offs), enqueue=partial(reference.run, call, out))
    program = allowed_program(call, deterministic=deterministic)
    addresses = call.addresses()
    out = call.output()
    route = _route(program, call, out)
    if route is None:
        enqueue: Callable[[], object] = partial(_write_what_no_row_gives, out, accumulate=form.accumulate)
    else:
        launch = route.bind(*addresses, out.data_ptr())
        enqueue = partial(_enqueue, launch, out, form.device.index)
    return Prepared(out=out, inputs=(a, b, offs), enqueue=enqueue)


def _enqueue(launch: registry.Launch, out: torch.Tensor, device: int) -> None:
    launch(current_stream(device))
    # Autograd does not see this write. Uncounted, a backward that had saved ``out`` would take the new values.
    torch.autograd.graph.increment_version(out)


def allowed_program(call: Call, *, deterministic: bool) -> registry.Program:
    """Return the program of a checked call on CUDA, which nothing forbids.

    Raises
    ------
    NoProgramError, NondeterministicError
        As :func:`prepare` says.
    """
    known, key = call.form.programs, (int(call.M), deterministic)  # a symbol is no key: a program needs its number
    program = known.get(key)
    if program is None:
        program = registry.find(call.problem(), "det" if deterministic else "nondet", _programs())
        _keep(known, key, program)
    if not deterministic and call.form.op == "wgrad":
        alert_not_deterministic("wgrad")
    return program


def launch(program: registry.Program, call: Call, out: torch.Tensor, stream: int) -> None:
    """Have an allowed program write ``out`` once, on the current stream: a :class:`Prepared` without what would last.

    Autograd counts no version of ``out``, which must be new: nobody has saved what it held.

    Raises
    ------
    ArgumentError, DriverError
        As :func:`prepare` and :meth:`Prepared.launch` say.
    """
    addresses = call.addresses()
    route = _route(program, call, out)
    if route is None:
        _write_what_no_row_gives(out, accumulate=call.form.accumulate)
    else:
        route.launch(*addresses, out.data_ptr(), stream)


def check_deterministic(deterministic: object) -> None:
    """Raise ArgumentError where it is no bool, which would be taken for True."""
    if deterministic is not True and deterministic is not False:
        raise ArgumentError(f"deterministic must be a bool, got {deterministic!r}")


def alert_not_deterministic(what: str) -> None:
    """Say that ``what(deterministic=False)`` may differ from run to run, if torch is told that nothing may.

    Raises
    ------
    NondeterministicError
        It is; where it is told with ``warn_only=True``, this is a warning.
    """
    if not torch.are_deterministic_algorithms_enabled():
        return
    message = (
        f"{what}(deterministic=False) must not run under torch.use_deterministic_algorithms(True), since the order of"
        " a sum in dW may differ between runs; pass deterministic=True"
    )
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise NondeterministicError(message)
    warnings.warn(message, stacklevel=2)


def _route(program: registry.Program, call: Call, out: torch.Tensor) -> registry.Route | None:
    """Return the route of a call; None where there are no rows or no experts."""
    form, M, a, b, offs, _ = call
    stem, strides = program.stem, out.stride()
    route = form.routes.get((M, stem, strides))
    if route is not None or M == 0 or form.E == 0:
        return route
    first = form.first_routes.get((stem, strides))
    if first is not None:
        route = first.of_rows(M)
    else:
        if 1 in (M, form.E):  # the first dimension of each
            a, b, out = map(_with_legal_strides, (a, b, out))
        with made_current(form.device.index):
            route = program.route(a, b, offs, out, accumulate=form.accumulate, num_sms=form.num_sms)
        _keep(form.first_routes, (stem, strides), route)
    _keep(form.routes, (M, stem, strides), route)
    return route


def _keep(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Remember one more, of the last :data:`_MOST_KNOWN` at most."""
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known[key] = value


@torch.no_grad()
def _write_what_no_row_gives(out: torch.Tensor, *, accumulate: bool) -> None:
    if not accumulate:
        out.zero_()


def _with_legal_strides(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor``, the stride of a first dimension of size 1 being that of a packed tensor.

    torch allows any stride there, and :meth:`Call.addresses` too; a program encodes it like every other.
    """
    if tensor.shape[0] > 1:
        return tensor
    strides = tensor.stride()
    return tensor.as_strided(tensor.shape, (tensor.shape[1] * strides[1], *strides[1:]))


@cache
def _programs() -> tuple[registry.Program, ...]:
    """Return the programs of this version, listed once: looking at their folder costs as much as a call."""
    return registry.programs()
