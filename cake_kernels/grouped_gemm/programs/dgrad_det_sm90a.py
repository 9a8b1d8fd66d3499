"""dX = G W on sm_90a with BF16 output, bitwise repeatable. The device code is ``cuda/grouped_gemm_sm90.cu``."""

from __future__ import annotations

from ...sm90_program import program

PROGRAM = program("dgrad", "det", "bf16")
