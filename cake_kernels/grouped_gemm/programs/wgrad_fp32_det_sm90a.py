"""dW = Gᵀ X on sm_90a with FP32 output, bitwise repeatable. The device code is ``cuda/grouped_gemm_sm90.cu``."""

from __future__ import annotations

from ...sm90_program import program

PROGRAM = program("wgrad", "det", "fp32")
