"""Every kernel of an architecture, compiled to a file and checked, without a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from . import checks, jit, ptxas, sass
from .cubin_cache import CubinCache
from .errors import ArgumentError, CompileError, NoProgramError, ProgramFileError
from .nvdisasm import Nvdisasm
from .registry import Build, Program

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A kernel whose cubin lies at ``path``."""

    build: Build
    path: Path
    cubin_bytes: int
    resources: ptxas.Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A kernel whose machine code was looked at.

    Attributes
    ----------
    loops
        The consumers' loops.
    broken
        Each rule that it breaks; empty where it is sound.
    """

    built: Built
    loops: tuple[sass.Loop, ...]
    broken: tuple[str, ...]


def builds_for(arch: str, programs: Iterable[Program]) -> tuple[Build, ...]:
    """Return every kernel that the programs of ``arch`` may launch, in the order of the programs, each once.

    Raises
    ------
    NoProgramError
        No program is compiled for ``arch``; the message names the architectures that have some.
    ProgramFileError
        Two kernels that differ have one name, and so would be one file.
    """
    programs = tuple(programs)
    mine = [program for program in programs if program.arch == arch]
    if not mine:
        known = ", ".join(sorted({program.arch for program in programs}))
        has = f"this version has programs for {known}" if known else "this version of cake_kernels has no programs"
        raise NoProgramError(f"no program is compiled for {arch!r}; {has}")
    builds: dict[str, Build] = {}
    for build in (build for program in mine for build in program.builds()):
        if builds.setdefault(build.name, build) != build:
            raise ProgramFileError(f"a kernel's name must be its own, two that differ are called {build.name}")
    return tuple(builds.values())


def compile_all(builds: Iterable[Build], *, arch: str, out: Path, cache: CubinCache | None = None) -> tuple[Built, ...]:
    """Compile each kernel into ``out/<name>.cubin``, as many at a time as there are cores.

    ``cache`` is :func:`.jit.compile`'s. Its entries are not those that a launch looks up: the options of
    :mod:`.ptxas` are part of the key.

    Raises
    ------
    CompileError
        The first that is refused, with the kernel's name; those not yet begun are left.
    ArgumentError
        ``out`` cannot be written.
    ToolchainMissingError
        The compiler is not installed.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        return _in_parallel(lambda build: _compile(build, arch=arch, out=out, cache=cache), builds)
    except OSError as error:
        raise ArgumentError(
            f"out must be a folder that can be written, {out} is not: {error.strerror}; name another"
        ) from error


def check_all(built: Iterable[Built], nvdisasm: Nvdisasm) -> tuple[Checked, ...]:
    """Hold each kernel's machine code against :mod:`.checks`.

    Raises
    ------
    CakeError
        nvdisasm refuses a cubin, or does not show its kernel.
    """
    return _in_parallel(lambda one: _check(one, nvdisasm), built)


def _compile(build: Build, *, arch: str, out: Path, cache: CubinCache | None) -> Built:
    try:
        cubin = jit.compile(build.source, arch=arch, defines=build.defines, options=ptxas.OPTIONS, cache=cache)
        resources = ptxas.read_log(cubin.log, symbol=build.symbol, origin=cubin.origin)
    except CompileError as error:
        raise CompileError(f"{build.name}: {error.origin}", error.log) from error
    path = out / f"{build.name}.cubin"
    path.write_bytes(cubin.code)
    return Built(build=build, path=path, cubin_bytes=len(cubin.code), resources=resources)


def _check(built: Built, nvdisasm: Nvdisasm) -> Checked:
    blocks = sass.read_flow(nvdisasm.flow_graph(built.path), symbol=built.build.symbol)
    loops = sass.consumer_loops(blocks)
    broken = checks.broken_rules(built.build, resources=built.resources, blocks=blocks, loops=loops)
    return Checked(built=built, loops=loops, broken=broken)


def _in_parallel(work: Callable[[In], Out], items: Iterable[In]) -> tuple[Out, ...]:
    # Threads do: NVRTC's bindings let go of the GIL while it compiles, and nvdisasm is a process. After an error or a
    # Ctrl-C, map drops what has not begun; what has is waited for.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return tuple(pool.map(work, items))
