"""A checkpointed training step of one grouped GEMM: what ``ckpt`` and ``ckpt ES`` are, the same for every arm."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from harness.arms import Operands, Prepared
from harness.arms._ops import given
from harness.model.case import Case

Forward = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(x, w) -> y, differentiable in both."""


def step(case: Case, operands: Operands, forward: Forward) -> Prepared:
    """Return the step that has ``forward`` alone in its checkpointed region.

    One call is y = forward(x, w) in a non-reentrant checkpoint, and dx, dw = autograd.grad(y, (x, w), g). In it
    ``forward`` runs again: with ``ckpt`` to its end, with ``ckpt ES`` (torch's default) until all that backward reads
    is saved again. Everything is allocated in the call, and nothing but the leaves outlives it.
    """
    x, w, g = (given(operands, name, case) for name in ("x", "w", "g"))
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    early_stop = case.op == "ckpt ES"

    def launch() -> tuple[torch.Tensor, ...]:
        # A region asks for early stop when it is entered, not when it is computed again.
        with torch.enable_grad(), set_checkpoint_early_stop(early_stop):
            y = checkpoint(forward, x, w, use_reentrant=False)
        # The calling thread, not autograd's own: a tracer ties kernels to the thread that launched them.
        with torch.autograd.set_multithreading_enabled(False):
            dx, dw = torch.autograd.grad(y, (x, w), g)
        return y.detach(), dx, dw

    return Prepared(launch=launch, out=None)
