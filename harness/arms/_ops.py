"""What arms share: which operations they do, the operands of one, and the rows of each group."""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch

from harness.arms import Operands
from harness.model.case import Case

ARM_OPS = ("fwd", "dX", "dW")


def unsupported(case: Case) -> str | None:
    """Return why no arm does the operation of ``case``, or None."""
    if case.op in ARM_OPS:
        return None
    return f"no arm of this version does {case.op!r}, a training step with checkpointing; arms do {', '.join(ARM_OPS)}"


def pair(case: Case, operands: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two operands in the order of the formula: (x, w) for fwd, (g, w) for dX, (g, x) for dW."""
    first, second = {"fwd": ("x", "w"), "dX": ("g", "w"), "dW": ("g", "x")}[case.op]
    return _given(operands, first, case), _given(operands, second, case)


def rows_of(group_sizes: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the rows of each expert."""
    return tuple(slice(start, end) for start, end in pairwise((0, *accumulate(group_sizes))))


def _given(operands: Operands, name: str, case: Case) -> torch.Tensor:
    tensor: torch.Tensor | None = getattr(operands, name)
    if tensor is None:
        raise ValueError(f"operand {name} must be given for {case.op}, got None")
    return tensor
