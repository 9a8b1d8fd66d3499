"""The machine code of every tail of wgrad, listed or not: the rules of ``build --check``, a main loop like plain's."""

from dataclasses import replace
from typing import get_args

import pytest

from cake_kernels import sass
from cake_kernels.grouped_gemm.sm90.config import NARROW, STRAIGHT, SWAPPED, Config, Kernel, Tail
from cake_kernels.nvdisasm import Nvdisasm
from cake_kernels.registry import Build

MORE_PER_HGMMA = 0.75
"""Instructions of the main loop that a plan may cost; without uniform registers it would be 4."""


def with_tails(op: str, config: Config, out_dtype: str, tails: tuple[str, ...]) -> list[Build]:
    """Return the kernel of ``config`` with each of ``tails``."""
    return [
        Kernel(op=op, out_dtype=out_dtype, accumulate=False, whole_slabs=True, config=replace(config, tail=tail)).build
        for tail in tails
    ]


@pytest.mark.parametrize(
    ("op", "config", "out_dtype"),
    [("wgrad", STRAIGHT, "bf16"), ("wgrad", NARROW, "fp32"), ("wgrad", SWAPPED, "bf16")],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_planned_tail_costs_neither_spills_nor_the_main_loops_uniform_registers(op, config, out_dtype, checked):
    plain, *all_planned = checked(with_tails(op, config, out_dtype, get_args(Tail)))
    (plain_loop,) = plain.loops

    for planned in all_planned:
        (loop,) = planned.loops
        assert planned.broken == ()
        assert loop.instructions_per_hgmma <= plain_loop.instructions_per_hgmma + MORE_PER_HGMMA


def test_partial_sums_are_added_in_memory_four_at_a_time(checked):
    (one,) = checked(with_tails("wgrad", STRAIGHT, "bf16", ("atomics",)))
    blocks = sass.read_flow(Nvdisasm().flow_graph(one.built.path), symbol="wgrad_bf16_nondet_sm90a")
    opcodes = [opcode for block in blocks.values() for opcode in block.opcodes]

    added = [opcode for opcode in opcodes if sass.is_a(opcode, "RED", "REDG", "ATOMG") and "F32" in opcode]

    # A consumer's thread has 128 x 192 / 128 elements of a tile.
    assert len(added) == 192 / 4
    assert all(opcode.startswith("REDG.E.ADD.F32x4.") for opcode in added)
