"""What ptxas, the assembler inside NVRTC, says of a kernel: registers, spills, shared memory, losses. Text only."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import CompileError

OPTIONS = ("--ptxas-options=-v",)
"""Make the compiler's log say it. They change a note in the cubin, never its code."""

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")
# The phrase is what each reason for serialised wgmma and for an ignored setmaxnreg has in common; the numbers are those
# of both in CUDA 13.0, should the phrase change.
_LOSS = re.compile(r".*(?:Potential Performance Loss|\(C75(?:08|10|15)\)).*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one kernel takes.

    Attributes
    ----------
    registers
        Per thread, at the kernel's start.
    spill_store_bytes, spill_load_bytes
        Per thread, of the kernel and of the functions that it calls.
    static_smem_bytes
        Shared memory that the code itself declares, per block.
    losses
        ptxas's own lines on wgmma that it serialised and setmaxnreg that it ignored.
    """

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_smem_bytes: int
    losses: tuple[str, ...]


def read_log(log: str, *, symbol: str, origin: str) -> Resources:
    """Return what ``log``, written under :data:`OPTIONS`, says of the kernel ``symbol``.

    Raises
    ------
    CompileError
        The source ``origin`` has no such kernel.
    """
    _, *parts = _ENTRY.split(log)
    entries = dict(zip(parts[::2], parts[1::2], strict=True))
    if symbol not in entries:
        raise CompileError(origin, f"it has no kernel {symbol!r}; ptxas saw {', '.join(entries) or 'none'}")
    text = entries[symbol]
    spills = [(int(stores), int(loads)) for stores, loads in _SPILLS.findall(text)]
    registers, smem = _REGISTERS.search(text), _SMEM.search(text)
    if registers is None or not spills:
        raise CompileError(origin, f"ptxas must give the registers and spills of {symbol!r}, it says:\n{text.strip()}")
    return Resources(
        registers=int(registers[1]),
        spill_store_bytes=sum(stores for stores, _ in spills),
        spill_load_bytes=sum(loads for _, loads in spills),
        static_smem_bytes=int(smem[1]) if smem else 0,
        losses=tuple(_LOSS.findall(log)),
    )
