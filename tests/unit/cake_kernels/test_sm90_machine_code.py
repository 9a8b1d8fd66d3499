"""The machine code of configurations that no program lists yet: the rules of ``build --check`` hold for them too."""

from dataclasses import replace

import pytest

from cake_kernels import build
from cake_kernels.cubin_cache import CubinCache
from cake_kernels.grouped_gemm.sm90.config import NARROW, STRAIGHT, SWAPPED, Config, Kernel
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
    [("wgrad", STRAIGHT, "bf16"), ("wgrad", NARROW, "fp32"), ("fwd", SWAPPED, "bf16")],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_planned_tail_costs_neither_spills_nor_the_main_loops_uniform_registers(op, config, out_dtype, tmp_path):
    plain, whole, slots = compiled(op, config, out_dtype, ("plain", "whole", "slots"), tmp_path)
    (plain_loop,) = plain.loops

    for planned in (whole, slots):
        (loop,) = planned.loops
        assert planned.broken == ()
        assert loop.instructions_per_hgmma <= plain_loop.instructions_per_hgmma + MORE_PER_HGMMA
