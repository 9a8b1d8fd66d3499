"""Blocks and loops from the flow graph that nvdisasm draws."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cake_kernels.errors import CakeError
from cake_kernels.sass import Block, consumer_loops, is_a, read_flow

# Two kernels as nvdisasm 13 prints them, shortened.
GRAPH = r"""digraph f {
subgraph "cluster_other" {
node [fontname="Courier",fontsize=10,shape=Mrecord];
"other"
[label="{<entry>other:\l.text.other:\l|<exit0>\ \ EXIT\ ;\l}"]
}
subgraph "cluster_gemm" {
node [fontname="Courier",fontsize=10,shape=Mrecord];
"gemm"
[label="{<entry>	.global		gemm\l	.size		gemm,(.L_x_70\ -\ gemm)\l	.other		gemm,\<no\ object\>\lgemm:\l.text.gemm:\l\ \ LDC\ R1,\ c\[0x0\]\[0x28\]\ ;\l\ \ @!UP0\ UIADD3\ UR4,\ -UR4,\ 0x100000,\ URZ\ ;\l|<exit0>\ \ @!P0\ BRA\ `(.L_x_2)\ ;\l}"]
"gemm":exit0:e -> ".L_x_2":entry:n [style=solid];
"gemm":exit0:s -> "BB0":entry:n [style=solid];
node [fontname="Courier",fontsize=10,shape=Mrecord];
"BB0"
[label="{<entry>\ \ HGMMA.64x8x16.F32.BF16\ R24,\ gdesc\[UR8\],\ R24,\ gsb0\ ;\l|<exit0>\ \ BRX\ R2\ -0x1070\ (*\"BRANCH_TARGETS\ BB0,.L_x_2\"*);\l}"]
"BB0":exit0:e -> "BB0":entry:n [style=solid];
"BB0":exit0:e -> ".L_x_2":entry:n [style=solid];
node [fontname="Courier",fontsize=10,shape=Mrecord];
".L_x_2"
[label="{<entry>.L_x_2:\l|<exit0>\ \ @P0\ EXIT\ ;\l}"]
".L_x_2":exit0:s -> ".L_x_3":entry:n [style=solid];
node [fontname="Courier",fontsize=10,shape=Mrecord];
".L_x_3"
[label="{<entry>.L_x_3:\l\ \ NOP;\l}"]
}
}
"""  # noqa: E501 - the lines are nvdisasm's


def flow(**blocks: str) -> dict[str, Block]:
    """Blocks written as ``"OPCODE OPCODE -> successor successor"``."""
    parts = {label: text.partition("->") for label, text in blocks.items()}
    return {
        label: Block(opcodes=tuple(before.split()), successors=tuple(after.split()))
        for label, (before, _, after) in parts.items()
    }


def loops(blocks: Mapping[str, Block]) -> dict[str, list[str]]:
    return {loop.header: list(loop.opcodes) for loop in consumer_loops(blocks)}


def test_blocks_are_read_with_opcodes_and_successors() -> None:
    assert read_flow(GRAPH, symbol="gemm") == {
        "gemm": Block(opcodes=("LDC", "UIADD3", "BRA"), successors=(".L_x_2", "BB0")),
        "BB0": Block(opcodes=("HGMMA.64x8x16.F32.BF16", "BRX"), successors=("BB0", ".L_x_2")),
        ".L_x_2": Block(opcodes=("EXIT",), successors=(".L_x_3",)),
        ".L_x_3": Block(opcodes=("NOP",), successors=()),
    }


def test_a_kernel_that_is_not_in_the_graph_is_an_error_with_those_that_are() -> None:
    with pytest.raises(CakeError) as caught:
        read_flow(GRAPH, symbol="absent")

    assert str(caught.value) == "nvdisasm must show the kernel 'absent', it shows other, gemm"


def test_an_opcode_is_told_by_its_first_part() -> None:
    assert is_a("LDL.128", "STL", "LDL")
    assert not is_a("LDLX.128", "STL", "LDL")
    assert not is_a("UTMALDG.2D", "2D")


def test_the_loop_over_k_is_found_and_the_loop_over_tiles_is_not() -> None:
    blocks = flow(
        entry="S2R -> tile",
        tile="LDS -> k",
        k="SYNCS HGMMA.64x256x16 HGMMA.64x256x16 BRA -> k epilogue",
        epilogue="STL STG BRA -> tile done",
        done="EXIT",
    )

    assert loops(blocks) == {"k": ["SYNCS", "HGMMA.64x256x16", "HGMMA.64x256x16", "BRA"]}


def test_a_wait_that_lies_at_the_functions_end_makes_no_loop_of_what_lies_between() -> None:
    blocks = flow(
        entry="S2R -> k",
        k="SYNCS BRA -> wait work",
        work="HGMMA BRA -> k epilogue",
        epilogue="STL EXIT",
        wait="SYNCS BRA -> wait back",
        back="BRA -> work",
    )

    assert loops(blocks) == {"k": ["SYNCS", "BRA", "HGMMA", "BRA", "SYNCS", "BRA", "BRA"]}


def test_a_loop_that_was_unrolled_and_its_remainder_are_two() -> None:
    blocks = flow(
        entry="S2R -> unrolled",
        unrolled="HGMMA HGMMA HGMMA HGMMA BRA -> unrolled rest",
        rest="VIADD HGMMA BRA -> rest done",
        done="EXIT",
    )

    assert {loop.header: loop.instructions_per_hgmma for loop in consumer_loops(blocks)} == {
        "unrolled": 1.25,
        "rest": 3.0,
    }


def test_two_ways_back_to_one_header_are_one_loop() -> None:
    blocks = flow(entry="S2R -> k", k="HGMMA BRA -> k tail", tail="STS BRA -> k done", done="EXIT")

    assert loops(blocks) == {"k": ["HGMMA", "BRA", "STS", "BRA"]}


def test_a_loop_without_hgmma_is_no_consumers_loop() -> None:
    blocks = flow(entry="HGMMA -> load", load="UTMALDG BRA -> load done", done="HGMMA EXIT")

    assert loops(blocks) == {}


@st.composite
def flows(draw: st.DrawFn) -> dict[str, Block]:
    """Flows in which every block is reached."""
    count = draw(st.integers(1, 9))
    edges = {(draw(st.integers(0, later - 1)), later) for later in range(1, count)}
    edges |= draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=12))
    hgmma = draw(st.sets(st.integers(0, count - 1)))
    return {
        str(i): Block(
            opcodes=(f"I{i}", *(["HGMMA"] if i in hgmma else [])),
            successors=tuple(str(to) for at, to in sorted(edges) if at == i),
        )
        for i in range(count)
    }


def reached(blocks: Mapping[str, Block], start: str, without: str | None = None) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        if (label := ahead.pop()) != without and label not in found:
            found.add(label)
            ahead += blocks[label].successors
    return found


@given(flows())
@settings(deadline=None)
def test_consumers_loops_are_the_innermost_natural_loops_with_an_hgmma(blocks: dict[str, Block]) -> None:
    bodies: dict[str, set[str]] = {}
    for label, block in blocks.items():
        for header in block.successors:
            if label == header or label not in reached(blocks, "0", without=header):
                inside = {b for b in blocks if b != header and label in reached(blocks, b, without=header)}
                bodies.setdefault(header, {header}).update(inside)
    bodies = {h: body for h, body in bodies.items() if any("HGMMA" in blocks[b].opcodes for b in body)}
    expected = {h: body for h, body in bodies.items() if not any(other < body for other in bodies.values())}

    found = {loop.header: {op[1:] for op in loop.opcodes if op != "HGMMA"} for loop in consumer_loops(blocks)}

    assert found == expected
