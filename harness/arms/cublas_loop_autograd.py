"""What a trainer writes by hand: split, one ``torch.mm`` a group, cat; gradients by autograd.

It is the cheap way to write it: ``split`` and ``unbind`` give one gradient tensor each, where indexing ``x[rows]`` and
``w[e]`` would add a full-size gradient for every group.
"""

from __future__ import annotations

import torch

from harness.arms import Operands, Prepared
from harness.arms._ops import pair
from harness.arms._step import step
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo


class CublasLoopAutograd:
    """Forward with grad enabled; dX and dW from a graph that is built once and kept; a step makes all anew.

    A gradient needs a forward graph, and with it a leaf that the case does not have: x for dX, w for dW. Zeros stand in
    for it; neither gradient reads their values.
    """

    info = ArmInfo(
        name="cublas_loop_autograd",
        key="a",
        is_cake=False,
        note="torch.mm per group under autograd; group sizes known on the host, allocates in each call",
    )

    def why_not(self, case: Case, machine: Machine) -> str | None:  # noqa: ARG002 - it runs wherever torch does
        """Refuse FP32 dW: autograd casts a gradient to its leaf's type."""
        if case.out_dtype == "fp32":
            return "autograd gives the gradient of a BF16 weight in BF16, not FP32"
        return None

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Build the forward graph of a gradient; a forward, and a step, have nothing to prepare but their leaves."""
        sizes = list(operands.group_sizes)
        if case.is_step:
            return step(case, operands, lambda x, w: _forward(x, w, sizes))
        a, b = pair(case, operands)
        if case.op == "fwd":
            x, w = a.detach().requires_grad_(), b.detach().requires_grad_()

            def forward() -> torch.Tensor:
                with torch.enable_grad():
                    return _forward(x, w, sizes).detach()

            return Prepared(launch=forward, out=None)

        g = a
        s = case.shape
        with torch.enable_grad():
            if case.op == "dX":
                leaf = b.new_zeros(s.M, s.K).requires_grad_()
                y = _forward(leaf, b, sizes)
            else:
                leaf = b.new_zeros(s.E, s.N, s.K).requires_grad_()
                y = _forward(b, leaf, sizes)

        def backward() -> torch.Tensor:
            # The calling thread, not autograd's own: a profiler ties kernels to the thread that launched them.
            with torch.autograd.set_multithreading_enabled(False):
                return torch.autograd.grad(y, leaf, g, retain_graph=True)[0]

        return Prepared(launch=backward, out=None)


def _forward(x: torch.Tensor, w: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    return torch.cat([torch.mm(xe, we.t()) for xe, we in zip(torch.split(x, sizes), w.unbind(0), strict=True)])


ARM = CublasLoopAutograd()
