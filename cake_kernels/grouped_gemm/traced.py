"""What operators return while they are traced: tensors of the real form, without values.

Any operands have a form, so that the rules on them are checked where the traced code runs, by the same errors as ever.
"""

from __future__ import annotations

import torch

from ..errors import ArgumentError
from .call import forward_sizes


def forward(x: torch.Tensor, w: torch.Tensor, offs: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    """Return Y, new and contiguous: [M, N]."""
    _check_devices(x=x, w=w, offs=offs)
    return x.new_empty(*x.shape[:-1], *w.shape[-2:-1])


def dgrad(g: torch.Tensor, w: torch.Tensor, offs: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    """Return dX, new and contiguous: [M, K]."""
    _check_devices(g=g, w=w, offs=offs)
    return g.new_empty(*g.shape[:-1], *w.shape[-1:])


def wgrad(
    g: torch.Tensor, x: torch.Tensor, offs: torch.Tensor, *, out_dtype: torch.dtype = torch.bfloat16, **_: object
) -> torch.Tensor:
    """Return dW, new and contiguous, of ``out_dtype``: [E, N, K]."""
    _check_devices(g=g, x=x, offs=offs)
    return g.new_empty(*offs.shape, *g.shape[-1:], *x.shape[-1:], dtype=out_dtype)


def has_gradients(x: torch.Tensor, w: torch.Tensor, offs: torch.Tensor) -> bool:
    """Return whether a forward keeps the rules on its operands, as far as that is known without values."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode  # loads sympy, as a tracer has

    try:
        forward_sizes(x, w, offs)
    except ArgumentError:
        return False
    except GuardOnDataDependentSymNode:
        pass  # none is known to be broken
    return True


def _check_devices(**operands: torch.Tensor) -> None:
    """Refuse what torch would trace for good: with one operand on meta, the others' values are never computed with."""
    (first, a), *others = operands.items()
    for name, b in others:
        if b.device != a.device:
            raise ArgumentError(f"{name} must be on the device of {first}, {a.device}, got {b.device}")
