"""What arms share: the operands of an operation, the rows of each group, and why some do no training step."""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch

from harness.arms import Operands
from harness.model.case import Case

NO_AUTOGRAD = "has no autograd form, and a checkpointed training step goes through autograd"


def without_autograd(case: Case) -> str | None:
    """Return why an arm that computes single products cannot do ``case``, or None."""
    return NO_AUTOGRAD if case.is_step else None


def pair(case: Case, operands: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two operands in the order of the formula: (x, w) for fwd, (g, w) for dX, (g, x) for dW."""
    first, second = {"fwd": ("x", "w"), "dX": ("g", "w"), "dW": ("g", "x")}[case.op]
    return given(operands, first, case), given(operands, second, case)


def rows_of(group_sizes: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the rows of each expert."""
    return tuple(slice(start, end) for start, end in pairwise((0, *accumulate(group_sizes))))


def given(operands: Operands, name: str, case: Case) -> torch.Tensor:
    """Return an operand that ``case`` needs."""
    tensor: torch.Tensor | None = getattr(operands, name)
    if tensor is None:
        raise ValueError(f"operand {name} must be given for {case.op}, got None")
    return tensor
