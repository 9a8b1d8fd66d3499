"""Programs: what each computes, on which architecture, and why it cannot do a problem. Imports no torch.

A program is a file ``grouped_gemm/programs/<stem>.py`` with one object ``PROGRAM``, whose stem is the file's. Such a
file imports torch and everything else that it launches with inside its functions. Adding a program, or an architecture,
is adding files.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from .errors import NoProgramError, ProgramFileError

if TYPE_CHECKING:
    import torch

Op = Literal["fwd", "dgrad", "wgrad"]
Variant = Literal["det", "nondet"]
OutDtype = Literal["bf16", "fp32"]

PROGRAMS_FOLDER = Path(__file__).parent / "grouped_gemm" / "programs"


class Problem(NamedTuple):  # a frozen dataclass would take a call with other rows longer
    """What is known on the host of one call, and all that the choice of a program may depend on.

    Attributes
    ----------
    arch
        The device's, as :func:`cake_kernels.device.arch_of` writes it.
    M, N, K, E
        X [M, K], W [E, N, K], Y and G [M, N].
    accumulate
        Whether the result is added to what the output holds.
    """

    op: Op
    out_dtype: OutDtype
    arch: str
    M: int
    N: int
    K: int
    E: int
    accumulate: bool = False


class Launch(Protocol):
    """Enqueues a bound program on a stream; neither allocates nor waits, and may be captured in a CUDA graph."""

    def __call__(self, stream: int) -> None:
        """Write the output that the launch is bound to. ``stream`` is torch's ``Stream.cuda_stream``."""


class Route(Protocol):
    """A program for tensors of one form and number of rows, settled but for their addresses.

    Any device may be the current one.
    """

    def bind(self, a: int, b: int, offs: int, out: int) -> Launch:
        """Return the launch over the memory at these addresses; it keeps alive nothing but its own workspace."""

    def launch(self, a: int, b: int, offs: int, out: int, stream: int) -> None:
        """Do what the launch over the memory at these addresses does, once."""

    def of_rows(self, M: int) -> Route:
        """Return the route for tensors that differ from these by the number of rows alone, both at least 2.

        It raises what the :class:`FindRoute` would that has found this one.
        """


class FindRoute(Protocol):
    """Settles a program for calls whose tensors have the types, shapes and strides of these, on the current device."""

    def __call__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        offs: torch.Tensor,
        out: torch.Tensor,
        *,
        accumulate: bool,
        num_sms: int | None,
    ) -> Route:
        """Return the route to launches that write ``out``; it keeps none of the tensors.

        ``a``, ``b`` are x, w (fwd), g, w (dgrad), g, x (wgrad), already checked. A launch occupies at most
        ``num_sms`` SMs, at least 2; ``None``: as many as it likes.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One kernel as it is compiled, known without a GPU.

    Attributes
    ----------
    name
        Of the cubin: the symbol and the configuration.
    source
        The CUDA C++ file.
    defines
        Macro -> value.
    symbol
        The kernel's name, ``extern "C"``.
    smem_bytes
        Dynamic shared memory that a launch asks for.
    """

    name: str
    source: Path
    defines: Mapping[str, int]
    symbol: str
    smem_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One compiled kernel of ours.

    Attributes
    ----------
    stem
        Name of its file and its series in a history; the symbol of its kernels, where those are no other program's.
    variant
        ``det``: bitwise the same from run to run. ``nondet``: the order of a sum may differ.
    refuse
        Returns why the program cannot do a problem of its own op, architecture and output type, or None.
    route
        Settles it for a form of calls; what that returns binds it to memory.
    builds
        Every kernel that it may launch. Two programs may list the same one.
    """

    stem: str
    op: Op
    variant: Variant
    arch: str
    out_dtype: OutDtype
    refuse: Callable[[Problem], str | None]
    route: FindRoute
    builds: Callable[[], tuple[Build, ...]]

    def why_not(self, problem: Problem) -> str | None:
        """Return why this program cannot do ``problem``, or None."""
        if problem.op != self.op:
            return f"computes {self.op}"
        if problem.arch != self.arch:
            return f"is compiled for {self.arch}"
        if problem.out_dtype != self.out_dtype:
            return f"writes {self.out_dtype}"
        return self.refuse(problem)


def programs(folder: Path = PROGRAMS_FOLDER) -> tuple[Program, ...]:
    """Return every program in the order of their stems.

    Raises
    ------
    ProgramFileError
        A file fails to import, or has no ``PROGRAM`` of its own stem.
    """
    stems = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    with _LOADING:
        return tuple(_load(folder, stem) for stem in stems)


def reasons(problem: Problem, variant: Variant, among: tuple[Program, ...]) -> dict[str, str]:
    """Return stem -> reason for every program of ``among`` that cannot do ``problem`` in this variant."""
    found: dict[str, str] = {}
    for program in among:
        reason = f"is {program.variant}" if program.variant != variant else program.why_not(problem)
        if reason is not None:
            found[program.stem] = reason
    return found


def why_not(problem: Problem, variant: Variant, among: tuple[Program, ...] | None = None) -> str | None:
    """Return why no program can do ``problem`` in this variant, each program's reason in it; None if one can."""
    known = programs() if among is None else among
    refused = reasons(problem, variant, known)
    return _sentence(problem, variant, refused) if len(refused) == len(known) else None


def find(problem: Problem, variant: Variant, among: tuple[Program, ...] | None = None) -> Program:
    """Return the first program, by stem, that can do ``problem`` in this variant.

    Raises
    ------
    NoProgramError
        There is none; the message has each program's reason. Another variant is never taken instead.
    """
    known = programs() if among is None else among
    for program in known:
        if program.variant == variant and program.why_not(problem) is None:
            return program
    raise NoProgramError(
        f"{_sentence(problem, variant, reasons(problem, variant, known))};"
        " the executable contract, slow and on any device, is cake_kernels.grouped_gemm.reference"
    )


def _sentence(problem: Problem, variant: Variant, refused: dict[str, str]) -> str:
    each = "; ".join(f"{stem} {reason}" for stem, reason in refused.items())
    asked = f"{problem.op} ({variant}, {problem.out_dtype} out) on {problem.arch}"
    return f"no program for {asked}: {each or 'this version of cake_kernels has none'}"


_LOADING = threading.RLock()
"""A module is in ``sys.modules`` before it has run: another thread would take it for one without a program."""


def _load(folder: Path, stem: str) -> Program:
    # By path, not by import_module: that would import the parent package grouped_gemm, and with it torch.
    name = f"{__package__}.grouped_gemm.programs.{stem}"
    module = sys.modules.get(name)
    if module is None:
        spec = spec_from_file_location(name, folder / f"{stem}.py")
        if spec is None or spec.loader is None:
            raise ProgramFileError(f"program {stem!r}: {folder / stem}.py cannot be loaded as a module")
        module = module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise ProgramFileError(f"program {stem!r} fails to import: {type(error).__name__}: {error}") from error
    program = getattr(module, "PROGRAM", None)
    if not isinstance(program, Program) or program.stem != stem:
        raise ProgramFileError(f"program {stem!r} must hold PROGRAM, a Program with that stem, got {program!r}")
    return program
