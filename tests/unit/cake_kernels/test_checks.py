"""The rules for a kernel's machine code: a sound one keeps all, and each is broken once."""

from dataclasses import replace
from pathlib import Path

import pytest

from cake_kernels.checks import broken_rules
from cake_kernels.ptxas import Resources
from cake_kernels.registry import Build
from cake_kernels.sass import Block, consumer_loops

BUILD = Build(
    name="fwd_128x256",
    source=Path("gemm.cu"),
    defines={"CLUSTER_M": 2, "CLUSTER_N": 1},
    symbol="gemm",
    smem_bytes=231_424,
)
SOUND = Resources(registers=168, spill_store_bytes=64, spill_load_bytes=64, static_smem_bytes=1024, losses=())
PRODUCER = "USETMAXREG.DEALLOC.CTAPOOL UTMALDG.3D UTMALDG.3D.MULTICAST"
LOOP = "SYNCS HGMMA.64x256x16.F32.BF16 BRA"


def broken(
    *, build: Build = BUILD, resources: Resources = SOUND, producer: str = PRODUCER, loop: str = LOOP, back: str = "k"
) -> list[str]:
    blocks = {
        "gemm": Block(opcodes=tuple(producer.split()), successors=("k",)),
        "k": Block(opcodes=tuple(loop.split()), successors=(back, "epilogue")),
        "epilogue": Block(opcodes=("LDL.64", "STL", "CALL.REL.NOINC", "EXIT"), successors=()),
    }
    return list(broken_rules(build, resources=resources, blocks=blocks, loops=consumer_loops(blocks)))


def test_a_sound_kernel_keeps_every_rule() -> None:
    assert broken() == []


def test_hgmma_must_be_there() -> None:
    assert broken(loop="SYNCS HMMA.16816.F32.BF16 BRA") == [
        "HGMMA must be in the code, found none among 10 instructions",
        "HGMMA must be in a loop, found no loop with one",
    ]


def test_hgmma_must_be_in_a_loop() -> None:
    assert broken(back="epilogue") == ["HGMMA must be in a loop, found no loop with one"]


def test_setmaxnreg_must_be_there() -> None:
    assert broken(producer="UTMALDG.3D.MULTICAST") == [
        "USETMAXREG must be in the code, found none among 8 instructions"
    ]


@pytest.mark.parametrize(
    ("loads", "found"),
    [("UTMALDG.3D UTMALDG.2D UTMALDG.3D", "UTMALDG.2D, UTMALDG.3D"), ("UTMASTG.MULTICAST", "no UTMALDG")],
)
def test_a_cluster_must_load_by_multicast(loads: str, found: str) -> None:
    assert broken(producer=f"USETMAXREG {loads}") == [
        f"a cluster of 2 CTAs must load by UTMALDG with MULTICAST, found {found}"
    ]


def test_a_cluster_of_one_needs_no_multicast() -> None:
    alone = replace(BUILD, defines={"CLUSTER_M": 1, "CLUSTER_N": 1})

    assert broken(build=alone, producer="USETMAXREG UTMALDG.3D") == []


def test_the_macros_must_tell_the_cluster() -> None:
    assert broken(build=replace(BUILD, defines={"CLUSTER_M": 1})) == [
        "the macros must tell the cluster by CLUSTER_M and CLUSTER_N, there is no CLUSTER_N"
    ]


@pytest.mark.parametrize("opcode", ["LDL.LU.64", "STL", "CALL.REL.NOINC"])
def test_the_consumers_loop_must_not_touch_local_memory(opcode: str) -> None:
    assert broken(loop=f"{opcode} {LOOP}") == [
        f"the consumers' loop must neither touch local memory nor call, k has {opcode}"
    ]


@pytest.mark.parametrize(
    ("spilled", "sentence"),
    [
        (replace(SOUND, spill_store_bytes=65), "spill stores must be <= 64 bytes, got 65"),
        (replace(SOUND, spill_load_bytes=128), "spill loads must be <= 64 bytes, got 128"),
    ],
)
def test_spills_have_a_limit(spilled: Resources, sentence: str) -> None:
    assert broken(resources=spilled) == [sentence]


def test_shared_memory_has_a_limit() -> None:
    assert broken(resources=replace(SOUND, static_smem_bytes=1025)) == [
        "shared memory must be <= 232448 bytes, got 1025 static + 231424 dynamic = 232449"
    ]


def test_ptxas_must_report_no_loss() -> None:
    line = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"

    assert broken(resources=replace(SOUND, losses=(line,))) == [
        f"ptxas must report no loss of performance, it says: {line}"
    ]
