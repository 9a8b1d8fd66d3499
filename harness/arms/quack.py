"""quack's varlen GEMM, tuned: rows ragged (varlen_m) for fwd and dX, the reduction ragged (varlen_k) for dW."""

from __future__ import annotations

import torch

from harness.arms import Operands, Prepared, new_output
from harness.arms._libraries import missing
from harness.arms._ops import pair, without_autograd
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo

DISTRIBUTION = "quack-kernels"
AT_LEAST = "0.6.5"


class Quack:
    """``quack.gemm_interface.gemm`` with ``tuned=True``.

    Its tuner runs in ``prepare`` and remembers the winner of a shape (E, M, N, K and strides) on disk, whatever the
    group sizes: two distributions over one shape share the choice of the first.
    """

    info = ArmInfo(
        name="quack",
        key="q",
        is_cake=False,
        note="quack varlen GEMM, its tuner on; prefix offsets made once, output preallocated",
    )

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Ask for CUDA, the library, and rows that TMA can address."""
        if reason := without_autograd(case):
            return reason
        if machine.device != "cuda":
            return "quack runs on CUDA only"
        if reason := missing(DISTRIBUTION, AT_LEAST):
            return reason
        for name, value in (("N", case.shape.N), ("K", case.shape.K)):
            if value % 8:
                return f"quack needs rows of whole 16 bytes: {name} must be a multiple of 8, got {value}"
        return None

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Make the prefix, allocate the output, and tune by a first call."""
        from quack.gemm_interface import gemm

        a, b = pair(case, operands)
        out = new_output(case, operands.offs.device)
        prefix = torch.cat([operands.offs.new_zeros(1), operands.offs])

        def launch() -> torch.Tensor:
            if case.op == "dW":
                gemm(a.t(), b, out=out, cu_seqlens_k=prefix, tuned=True)
            else:
                gemm(a, b.mT if case.op == "fwd" else b, out=out, cu_seqlens_m=prefix, tuned=True)
            return out

        launch()
        return Prepared(launch=launch, out=out)


ARM = Quack()
