"""Y = X Wᵀ on sm_90a with BF16 output, for who does not ask for a repeatable result.

Its kernels are those of fwd_det_sm90a: a repeatable result is a valid one of this variant. Nothing is split,
since that would save 0.5 % of the k-blocks on average: ``grouped_gemm/NOTES.md`` has the figures.
"""

from __future__ import annotations

from ...sm90_program import program

PROGRAM = program("fwd", "nondet", "bf16")
