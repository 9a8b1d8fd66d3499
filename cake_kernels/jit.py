"""CUDA C++ -> cubin -> kernel, at first use and from pip alone: no nvcc, no toolkit, and no GPU until :func:`load`.

::

    cubin = jit.compile(Path("probe.cu"), arch="sm_90a", defines={"TILE_M": 128})
    kernel = jit.load(cubin, device=0).kernel("probe", smem_bytes=65536)
    launch = kernel.bind(ctypes.c_void_p(x.data_ptr()), grid=(132, 1, 1), block=(128, 1, 1), cluster=(2, 1, 1))
    launch(torch.cuda.current_stream().cuda_stream)

``docs/jit.md`` says where cubins are kept and what each error means.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from .cubin_cache import Compiled, CubinCache, cache_folder
from .cuda_source import Source, read_source
from .driver import Dim3, Kernel, Launch, Module, load_code
from .nvrtc import Nvrtc

__all__ = ["CUDA_FOLDER", "Compiler", "Cubin", "Dim3", "Kernel", "Launch", "Module", "Source", "compile", "load"]

CUDA_FOLDER = Path(__file__).parent / "cuda"
"""The device headers that programs share; the first place but one where an ``#include`` is looked for."""

OPTIONS = ("--std=c++17", "--generate-line-info")

PACKAGE = __package__ or "cake_kernels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubin:
    """A program compiled for one architecture.

    Attributes
    ----------
    code
        The ELF image.
    log
        What the compiler said, warnings for instance.
    origin
        The source's path.
    not_on_disk
        Why another process will have to compile it again, or None.
    """

    code: bytes
    log: str
    origin: str
    arch: str
    not_on_disk: str | None


class Compiler(Protocol):
    """Turns CUDA C++ into a cubin; :class:`~.nvrtc.Nvrtc` is one."""

    @property
    def identity(self) -> str:
        """Name, version and build: compilers that may give different code differ in it."""

    def compile(self, source: Source, options: Sequence[str]) -> Compiled:
        """Return the code, or raise CompileError."""


def compile(
    source: Path | Source,
    *,
    arch: str,
    defines: Mapping[str, int | str] | None = None,
    include: Sequence[Path] = (CUDA_FOLDER,),
    options: Sequence[str] = (),
    compiler: Compiler | None = None,
    cache: CubinCache | None = None,
) -> Cubin:
    """Compile ``source``, or take from the cache what the same call made before.

    Parameters
    ----------
    source
        A path, or a text with its headers.
    arch
        ``sm_90a``, as :func:`.device.arch_of` writes it.
    defines
        Macro -> value.
    include
        Folders of headers; the folder of an including file comes before them.
    options
        Further options of the compiler.
    compiler, cache
        NVRTC, and the folder that the environment names (read once per process).

    Raises
    ------
    CompileError
        The compiler refuses it; the message has the path and the log.
    ToolchainMissingError
        The compiler is not installed.
    """
    compiler = compiler or _nvrtc()
    if isinstance(source, Path):
        source = read_source(source, include)
    macros = [f"-D{name}={int(v) if isinstance(v, int) else v}" for name, v in sorted((defines or {}).items())]
    asked = (f"--gpu-architecture={arch}", *OPTIONS, *macros, *options)
    cached = (cache or _cache()).fetch(_key(source, asked, compiler.identity), lambda: compiler.compile(source, asked))
    return Cubin(
        code=cached.compiled.code,
        log=cached.compiled.log,
        origin=source.origin,
        arch=arch,
        not_on_disk=cached.not_on_disk,
    )


def load(cubin: Cubin, *, device: int) -> Module:
    """Load ``cubin`` on CUDA device ``device``, in torch's context of it. It stays loaded as long as the process.

    Raises
    ------
    DriverError
        The driver refuses it, or there is none.
    """
    return load_code(cubin.code, what=f"{cubin.origin} for {cubin.arch}", device=device)


def _key(source: Source, options: Sequence[str], compiler: str) -> str:
    # JSON, since joining the parts would let two different lists give one text. The name is in it because line
    # information and __FILE__ carry it into the code.
    parts = [PACKAGE, compiler, source.name, source.text, source.headers, list(options)]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@cache
def _nvrtc() -> Nvrtc:
    return Nvrtc()


@cache
def _cache() -> CubinCache:
    return CubinCache(cache_folder(os.environ, PACKAGE))
