"""``cake_kernels``' executable contract on any device: slow, plain, and right."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cake_kernels import grouped_mm
from cake_kernels.grouped_gemm import reference
from harness.arms import Operands, Prepared, new_output
from harness.arms._ops import pair
from harness.arms._step import step
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo


class Reference:
    """FP32 products of upcast operands, one a group; no kernel of ours, so not counted as one."""

    info = ArmInfo(
        name="reference", key="", is_cake=False, note="FP32 copies, one torch.mm per group; reads offs on the host"
    )

    def why_not(self, case: Case, machine: Machine) -> str | None:  # noqa: ARG002 - it runs wherever torch does
        """Refuse nothing."""
        return None

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Allocate the output; a step allocates in each call."""
        offs = operands.offs
        if case.is_step:
            return step(case, operands, lambda x, w: grouped_mm(x, w, offs, backend="reference"))
        a, b = pair(case, operands)
        out = new_output(case, offs.device)
        launches: dict[str, Callable[[], torch.Tensor]] = {
            "fwd": lambda: reference.forward(a, b, offs, out=out),
            "dX": lambda: reference.dgrad(a, b, offs, out=out),
            "dW": lambda: reference.wgrad(a, b, offs, out_dtype=out.dtype, out=out),
        }
        return Prepared(launch=launches[case.op], out=out)


ARM = Reference()
