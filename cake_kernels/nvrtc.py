"""NVRTC, the CUDA C++ compiler that pip installs. The only place that calls it; needs neither a GPU nor a driver.

cuda-bindings rather than cuda-core, because torch's CUDA builds require the former from 2.11 on, and because its
functions are NVRTC's own, which have not changed for years.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

from .cubin_cache import Compiled
from .cuda_source import Source
from .errors import CompileError, ToolchainMissingError

INSTALL = "install the extra 'gpu': pip install 'cake-kernels[gpu]'"


class Nvrtc:
    """Compiles for a GPU that need not be here.

    Raises
    ------
    ToolchainMissingError
        The compiler or its bindings are not installed.
    """

    def __init__(self) -> None:
        try:
            self._nvrtc: Any = import_module("cuda.bindings.nvrtc")
            self._nvrtc.nvrtcVersion()
        except ImportError as error:
            raise ToolchainMissingError(f"cuda-bindings is not installed ({error}); {INSTALL}") from error
        except RuntimeError as error:  # the bindings load the library on the first call
            raise ToolchainMissingError(f"NVRTC is not installed ({error}); {INSTALL}") from error

    @cached_property
    def identity(self) -> str:
        """Version and build of the compiler, as it writes them at the head of PTX.

        ``nvrtcVersion`` gives 13.0 for each of that release's updates, whose code differs.
        """
        empty = Source(origin="identity.cu", text="")
        ptx = self._run(empty, ("--gpu-architecture=compute_90",), "PTX")[0].decode()
        return "; ".join(line.strip("/ ") for line in ptx.splitlines() if line.startswith("// "))

    def compile(self, source: Source, options: Sequence[str]) -> Compiled:
        """Return the cubin and the log.

        Raises
        ------
        CompileError
            The compiler refuses the source or an option.
        """
        code, log = self._run(source, options, "CUBIN")
        return Compiled(code=code, log=log)

    def _run(self, source: Source, options: Sequence[str], kind: str) -> tuple[bytes, str]:
        nvrtc = self._nvrtc
        names = [name.encode() for name in source.headers]
        texts = [text.encode() for text in source.headers.values()]
        program = _value(
            nvrtc.nvrtcCreateProgram(source.text.encode(), source.name.encode(), len(names), texts, names), source
        )
        try:
            (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
            log = self._read(program, "ProgramLog", source).rstrip(b"\0 \n").decode(errors="replace")
            if int(status) != 0:
                raise CompileError(source.origin, f"{log}\n{status.name}, options: {' '.join(options)}".lstrip())
            return self._read(program, kind, source), log
        finally:
            nvrtc.nvrtcDestroyProgram(program)

    def _read(self, program: Any, kind: str, source: Source) -> bytes:
        size = _value(getattr(self._nvrtc, f"nvrtcGet{kind}Size")(program), source)
        buffer = bytearray(size)
        _value(getattr(self._nvrtc, f"nvrtcGet{kind}")(program, buffer), source)
        return bytes(buffer)


def _value(result: tuple[Any, ...], source: Source) -> Any:
    status, *values = result
    if int(status) != 0:
        raise CompileError(source.origin, f"NVRTC returned {status.name}")
    return values[0] if values else None
