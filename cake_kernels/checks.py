"""What the machine code of a grouped GEMM for sm_90a must be; a broken rule is a sentence. Text and numbers only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .ptxas import Resources
from .registry import Build
from .sass import Block, Loop, is_a

ARCH = "sm_90a"

SMEM_BYTES_MAX = 232_448
"""Shared memory that one block of sm_90 may have, static and dynamic."""

SPILL_BYTES_MAX = 64
"""A few registers that live across the whole kernel may wait in memory; in a consumers' loop none may."""

CLUSTER = ("CLUSTER_M", "CLUSTER_N")
"""The macros whose product is the number of CTAs in a cluster."""


def broken_rules(
    build: Build, *, resources: Resources, blocks: Mapping[str, Block], loops: Iterable[Loop]
) -> tuple[str, ...]:
    """Return each rule that the kernel breaks, with the value that breaks it.

    Parameters
    ----------
    resources, blocks, loops
        What :func:`.ptxas.read_log`, :func:`.sass.read_flow` and :func:`.sass.consumer_loops` say of it.
    """
    opcodes = tuple(opcode for block in blocks.values() for opcode in block.opcodes)
    return (
        *_instructions(opcodes),
        *_multicast(build, opcodes),
        *_loops(tuple(loops)),
        *_spills(resources),
        *_shared_memory(build, resources),
        *(f"ptxas must report no loss of performance, it says: {line}" for line in resources.losses),
    )


def _instructions(opcodes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        f"{name} must be in the code, found none among {len(opcodes)} instructions"
        for name in ("HGMMA", "USETMAXREG")
        if not any(is_a(opcode, name) for opcode in opcodes)
    )


def _multicast(build: Build, opcodes: tuple[str, ...]) -> tuple[str, ...]:
    if missing := [name for name in CLUSTER if name not in build.defines]:
        return (f"the macros must tell the cluster by {' and '.join(CLUSTER)}, there is no {' and no '.join(missing)}",)
    ctas = build.defines[CLUSTER[0]] * build.defines[CLUSTER[1]]
    loads = sorted({opcode for opcode in opcodes if is_a(opcode, "UTMALDG")})
    if ctas == 1 or any("MULTICAST" in opcode.split(".") for opcode in loads):
        return ()
    return (f"a cluster of {ctas} CTAs must load by UTMALDG with MULTICAST, found {', '.join(loads) or 'no UTMALDG'}",)


def _loops(loops: tuple[Loop, ...]) -> tuple[str, ...]:
    if not loops:
        return ("HGMMA must be in a loop, found no loop with one",)
    # A call counts, since what it does to local memory is not seen from here.
    touching = {loop.header: sorted({op for op in loop.opcodes if is_a(op, "LDL", "STL", "CALL")}) for loop in loops}
    return tuple(
        f"the consumers' loop must neither touch local memory nor call, {header} has {', '.join(found)}"
        for header, found in touching.items()
        if found
    )


def _spills(resources: Resources) -> tuple[str, ...]:
    return tuple(
        f"spill {what} must be <= {SPILL_BYTES_MAX} bytes, got {spilled}"
        for what, spilled in (("stores", resources.spill_store_bytes), ("loads", resources.spill_load_bytes))
        if spilled > SPILL_BYTES_MAX
    )


def _shared_memory(build: Build, resources: Resources) -> tuple[str, ...]:
    static, dynamic = resources.static_smem_bytes, build.smem_bytes
    if static + dynamic <= SMEM_BYTES_MAX:
        return ()
    return (
        f"shared memory must be <= {SMEM_BYTES_MAX} bytes,"
        f" got {static} static + {dynamic} dynamic = {static + dynamic}",
    )
