"""``torch._grouped_mm``: the grouped GEMM that comes with torch; offs on the device, an output allocated each call."""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.arms import Operands, Prepared
from harness.arms._ops import pair
from harness.arms._step import step
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo

MAX_CUDA_GROUPS = 1023


class TorchGroupedMm:
    """Calls ``torch._grouped_mm`` on transposed views; nothing is copied."""

    info = ArmInfo(
        name="torch_grouped_mm", key="t", is_cake=False, note="torch._grouped_mm; allocates its output in each call"
    )

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Return torch's own limits, before it raises them."""
        s = case.shape
        if case.out_dtype == "fp32":
            return "torch._grouped_mm cannot give FP32 dW from BF16 inputs"
        if s.M == 0:
            return "torch._grouped_mm needs at least one row, got M = 0"
        if machine.device == "cuda" and s.E > MAX_CUDA_GROUPS:
            return f"torch._grouped_mm takes at most {MAX_CUDA_GROUPS} groups on CUDA, got E = {s.E}"
        # Rows of x and w are K long, rows of g N; each must step over a multiple of 16 bytes.
        for name, value in (("K", s.K),) if case.op == "fwd" else (("N", s.N), ("K", s.K)):
            if value % 8:
                return f"torch._grouped_mm needs rows of whole 16 bytes: {name} must be a multiple of 8, got {value}"
        return None

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Fix the views; every launch allocates. A step has torch's own autograd."""
        offs = operands.offs
        if case.is_step:
            return step(case, operands, lambda x, w: torch._grouped_mm(x, w.transpose(-2, -1), offs=offs))
        a, b = pair(case, operands)
        launches: dict[str, Callable[[], torch.Tensor]] = {
            "fwd": lambda: torch._grouped_mm(a, b.transpose(-2, -1), offs=offs),
            "dX": lambda: torch._grouped_mm(a, b, offs=offs),
            "dW": lambda: torch._grouped_mm(a.t(), b, offs=offs),
        }
        return Prepared(launch=launches[case.op], out=None)


ARM = TorchGroupedMm()
