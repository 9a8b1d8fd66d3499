"""The machine code of every tail of wgrad, listed or not: the rules of ``build --check``, a main loop like plain's."""

from dataclasses import replace
from typing import get_args

import pytest

from cake_kernels import build, sass
from cake_kernels.cubin_cache import CubinCache
from cake_kernels.grouped_gemm.sm90.config import NARROW, STRAIGHT, SWAPPED, Config, Kernel, Tail
from cake_kernels.nvdisasm import Nvdisasm

MORE_PER_HGMMA = 0.75
"""Instructions of the main loop that a plan may cost; without uniform registers it would be 4."""


def compiled(op: str, config: Config, out_dtype: str, tails: tuple[str, ...], out) -> list[build.Checked]:
    """Return the kernel of ``config`` with each of ``tails``, compiled and checked."""
    kernels = [
        Kernel(op=op, out_dtype=out_dtype, accumulate=False, whole_slabs=True, config=replace(config, tail=tail))
        for tail in tails
    ]
    built = build.compile_all([k.build for k in kernels], arch="sm_90a", out=out, cache=CubinCache(None))
    return list(build.check_all(built, Nvdisasm()))


@pytest.mark.parametrize(
    ("op", "config", "out_dtype"),
    [("wgrad", STRAIGHT, "bf16"), ("wgrad", NARROW, "fp32"), ("wgrad", SWAPPED, "bf16")],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_planned_tail_costs_neither_spills_nor_the_main_loops_uniform_registers(op, config, out_dtype, tmp_path):
    plain, *all_planned = compiled(op, config, out_dtype, get_args(Tail), tmp_path)
    (plain_loop,) = plain.loops

    for planned in all_planned:
        (loop,) = planned.loops
        assert planned.broken == ()
        assert loop.instructions_per_hgmma <= plain_loop.instructions_per_hgmma + MORE_PER_HGMMA


def test_partial_sums_are_added_in_memory_four_at_a_time(tmp_path):
    (one,) = compiled("wgrad", STRAIGHT, "bf16", ("atomics",), tmp_path)
    blocks = sass.read_flow(Nvdisasm().flow_graph(one.built.path), symbol="wgrad_bf16_nondet_sm90a")
    opcodes = [opcode for block in blocks.values() for opcode in block.opcodes]

    added = [opcode for opcode in opcodes if sass.is_a(opcode, "RED", "REDG", "ATOMG") and "F32" in opcode]

    # A consumer's thread has 128 x 192 / 128 elements of a tile.
    assert len(added) == 192 / 4
    assert all(opcode.startswith("REDG.E.ADD.F32x4.") for opcode in added)
