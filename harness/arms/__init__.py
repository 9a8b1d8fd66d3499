"""Arms: one baseline or one kernel of ours a file. This file holds what an arm is and how arms are found.

A module ``harness/arms/<name>.py`` has one object ``ARM``; another distribution registers such an object under the
entry point ``cake_bench.arms``. The file's stem (the entry point's name) must be ``ARM.info.name``.

A module may also have a function ``at(parameter)`` that returns its arm in a certain form; that one is called
``<name>@<parameter>`` and belongs to no default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from harness import plugins
from harness.errors import FOREIGN, PluginError, UnknownName, first_line, written
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo, ArmOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """One case's inputs; every arm of a row gets the same tensors and must not write to them.

    Attributes
    ----------
    x
        bf16 [M, K], contiguous; ``None`` for dX.
    w
        bf16 [E, N, K], contiguous; ``None`` for dW.
    g
        bf16 [M, N], contiguous, the gradient of Y; ``None`` for fwd.
    offs
        int32 [E] on the device of the others. Cumulative ends: expert e owns rows ``offs[e - 1]:offs[e]``.
    group_sizes
        The same on the host, for arms whose caller would know them.
    """

    x: torch.Tensor | None
    w: torch.Tensor | None
    g: torch.Tensor | None
    offs: torch.Tensor
    group_sizes: tuple[int, ...]


Output = torch.Tensor | tuple[torch.Tensor, ...]
"""What a call returns: one tensor; of a step (y, dx, dw), as ``Case.products`` has them. None asks for a gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An arm that is ready to be called on one case.

    Attributes
    ----------
    launch
        One public call; returns the output it wrote. Called many times, on the current stream; what it enqueues, it
        enqueues from the calling thread, by which a tracer knows whose work it is.
    out
        The preallocated output that ``launch`` writes to and returns, the arm's own; ``None`` when each call allocates,
        as every step does.
    note
        What the arm chose for this row (``plan 3 of 5``), or empty.
    """

    launch: Callable[[], Output]
    out: torch.Tensor | None
    note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.note, str):
            raise PluginError(f"note of a Prepared must be text, got {self.note!r}")


@runtime_checkable
class Arm(Protocol):
    """A way to compute a case."""

    @property
    def info(self) -> ArmInfo:
        """Name, key and what a reader must know; importing the arm's library is not needed for it."""

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Return why the arm cannot do the case on this machine, or None. Pure but for looking for its library."""

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Allocate, choose a plan, capture: everything that is not one call. May raise; the row then says why."""


def names() -> tuple[str, ...]:
    """Return every arm's name, importing none: the files here, then the entry points of other distributions."""
    return tuple(dict.fromkeys((*plugins.names("arms"), *plugins.external_names(plugins.ARMS_ENTRY_POINT))))


def load(name: str) -> Arm:
    """Return the arm ``name``.

    Raises
    ------
    UnknownName
        The message lists the known ones.
    PluginError
        Its import fails, its object is no arm of that name, the name has two owners, or it takes no such parameter.
    """
    stem, at, parameter = name.partition("@")
    if at:
        return _load_at(stem, parameter)
    others = plugins.owners(plugins.ARMS_ENTRY_POINT, name)
    if name in plugins.names("arms"):
        if others:
            raise PluginError(
                f"arm {name!r} must have one owner, got harness/arms/{name}.py and {', '.join(others)}; rename the"
                " latter's"
            )
        arm: object = getattr(plugins.load("arms", name), "ARM", None)
    elif others:
        arm = plugins.load_external(plugins.ARMS_ENTRY_POINT, name)
    else:
        raise UnknownName("arm", name, names())
    return _checked(arm, name)


def _load_at(stem: str, parameter: str) -> Arm:
    if stem not in plugins.names("arms"):
        raise UnknownName("arm", stem, names())
    at = getattr(plugins.load("arms", stem), "at", None)
    if at is None:
        raise PluginError(f"arm {stem!r} takes no parameter, got {stem}@{parameter}; name it without")
    try:
        arm: object = at(parameter)
    except FOREIGN as error:
        raise PluginError(f"arm {stem}@{parameter} cannot be: {first_line(error)}") from error
    return _checked(arm, f"{stem}@{parameter}")


def _checked(arm: object, name: str) -> Arm:
    if not isinstance(arm, Arm):
        raise PluginError(f"arm {name!r} must be an object with info, why_not and prepare, got {type(arm).__name__}")
    if not isinstance(arm.info, ArmInfo):
        raise PluginError(f"info of arm {name!r} must be an ArmInfo, got {type(arm.info).__name__}")
    if arm.info.name != name:
        raise PluginError(f"arm {name!r} calls itself {arm.info.name!r}; the two must be the same")
    return arm


def refusal(arm: Arm, case: Case, machine: Machine) -> ArmOutcome | None:
    """Return what ``why_not`` says as the outcome of the row, or None where the arm can do it.

    An arm that raises there, or answers with something that is neither a reason nor None, has failed.
    """
    try:
        reason = arm.why_not(case, machine)
    except FOREIGN as error:
        return ArmOutcome(status="failed", reason=f"why_not raised {type(error).__name__}: {first_line(error)}")
    if reason is None:
        return None
    if not isinstance(reason, str) or not reason.strip():
        return ArmOutcome(status="failed", reason=f"why_not must return a reason or None, got {reason!r}")
    return ArmOutcome(status="unsupported", reason=written(reason))


def new_output(case: Case, device: torch.device) -> torch.Tensor:
    """Return an uninitialised output: bf16 [M, N] for fwd, bf16 [M, K] for dX, bf16 or fp32 [E, N, K] for dW.

    ``case`` is a product; a step has an output for each of ``case.products``.
    """
    s = case.shape
    size = {"fwd": (s.M, s.N), "dX": (s.M, s.K), "dW": (s.E, s.N, s.K)}[case.op]
    return torch.empty(size, dtype=torch.float32 if case.out_dtype == "fp32" else torch.bfloat16, device=device)
