"""A case's inputs: random normal BF16 from a seed, made on the device; and how much memory a row needs."""

from __future__ import annotations

from itertools import accumulate

import torch

from harness.arms import Operands
from harness.model.case import BYTES_OF, Case

REFERENCE_ROWS = 16384
"""Rows that the FP64 reference treats at a time; bounds its memory."""


def make_operands(case: Case, *, seed: int, device: torch.device) -> Operands:
    """Return the inputs of ``case``: standard normal, the same bits for the same seed, device type and torch version.

    x, w and g have generators of their own: a tensor does not depend on which others the operation needs.
    """
    s = case.shape

    def normal(stream: int, *size: int) -> torch.Tensor:
        generator = torch.Generator(device).manual_seed(3 * seed + stream)
        return torch.randn(size, dtype=torch.bfloat16, device=device, generator=generator)

    return Operands(
        x=normal(0, s.M, s.K) if case.op != "dX" else None,
        w=normal(1, s.E, s.N, s.K) if case.op != "dW" else None,
        g=normal(2, s.M, s.N) if case.op != "fwd" else None,
        offs=torch.tensor(list(accumulate(s.group_sizes)), dtype=torch.int32, device=device),
        group_sizes=s.group_sizes,
    )


def memory_bytes(case: Case, n_arms: int) -> int:
    """Return the device bytes that a row needs: inputs, one output an arm, and the FP64 reference with its operands."""
    s = case.shape
    x, w, g = 2 * s.M * s.K, 2 * s.E * s.N * s.K, 2 * s.M * s.N
    inputs = {"fwd": x + w, "dX": g + w, "dW": g + x}.get(case.op, x + w + g)
    dw = BYTES_OF[case.out_dtype] * s.E * s.N * s.K
    output = {"fwd": g, "dX": x, "dW": dw}.get(case.op, g + x + dw)
    rows = min(REFERENCE_ROWS, max(s.group_sizes, default=0))
    # FP64 copies of the operands' part and of the result, and about four temporaries of the result's size to compare.
    result = s.N * s.K if case.op == "dW" else rows * max(s.N, s.K)
    reference = 8 * (rows * (s.N + s.K) + s.N * s.K + 5 * result)
    return inputs + n_arms * output + reference
