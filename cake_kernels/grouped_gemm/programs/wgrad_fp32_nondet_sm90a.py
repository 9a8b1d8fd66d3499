"""dW = Gᵀ X on sm_90a with FP32 output, whose bits may differ from run to run.

The last output tiles may be split along the reduction, and their partial sums are added by FP32 reductions in memory
as they come (docs/tail.md). The device code is ``cuda/grouped_gemm_sm90.cu``.
"""

from __future__ import annotations

from ...sm90_program import program

PROGRAM = program("wgrad", "nondet", "fp32")
