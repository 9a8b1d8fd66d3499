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

    def empty(*size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.bfloat16, device=device)

    operands = Operands(
        x=empty(s.M, s.K) if case.op != "dX" else None,
        w=empty(s.E, s.N, s.K) if case.op != "dW" else None,
        g=empty(s.M, s.N) if case.op != "fwd" else None,
        offs=torch.empty(s.E, dtype=torch.int32, device=device),
        group_sizes=s.group_sizes,
    )
    fill(operands, seed=seed)
    return operands


def fill(operands: Operands, *, seed: int) -> None:
    """Write the values of :func:`make_operands` into ``operands``, whatever an arm left there."""
    for stream, tensor in enumerate((operands.x, operands.w, operands.g)):
        if tensor is not None:
            generator = torch.Generator(tensor.device).manual_seed(3 * seed + stream)
            torch.randn(tensor.shape, dtype=tensor.dtype, device=tensor.device, generator=generator, out=tensor)
    operands.offs.copy_(torch.tensor(list(accumulate(operands.group_sizes)), dtype=torch.int32))


def fingerprint(operands: Operands) -> tuple[int, ...]:
    """Return a sum of each input's bits: it changes when an arm writes to one (unless it takes pains to hide it)."""
    sums = []
    for tensor in (operands.x, operands.w, operands.g, operands.offs):
        if tensor is not None:
            bits = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
            sums.append(bits.sum(dtype=torch.int64))
    return tuple(int(s) for s in sums)


def memory_bytes(case: Case, n_arms: int) -> int:
    """Return the device bytes that a row needs: inputs, outputs, and the FP64 reference with its operands.

    One output an arm, and two more: an arm that goes through autograd keeps a forward output and a leaf alive. In a
    step, a loop over the groups has y of the recomputation twice, or each gradient once more in pieces.
    """
    s = case.shape
    x, w, g = 2 * s.M * s.K, 2 * s.E * s.N * s.K, 2 * s.M * s.N
    inputs = {"fwd": x + w, "dX": g + w, "dW": g + x}.get(case.op, x + w + g)
    dw = BYTES_OF[case.out_dtype] * s.E * s.N * s.K
    output = {"fwd": g, "dX": x, "dW": dw}.get(case.op, g + x + dw)
    rows = min(REFERENCE_ROWS, max(s.group_sizes, default=0))
    # FP64 copies of the operands' part and of the result, and about four temporaries of the result's size to compare.
    result = max(s.N * s.K if product.op == "dW" else rows * max(s.N, s.K) for product in case.products)
    reference = 8 * (rows * (s.N + s.K) + s.N * s.K + 5 * result)
    held = output if case.is_step else max(x, w, g, dw)
    return inputs + n_arms * output + 2 * held + reference
