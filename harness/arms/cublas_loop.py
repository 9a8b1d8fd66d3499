"""A loop of ``torch.mm``, one a group, into a preallocated output. It knows the sizes on the host: its advantage."""

from __future__ import annotations

import torch

from harness.arms import Operands, Prepared, new_output
from harness.arms._ops import pair, rows_of, without_autograd
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo


class CublasLoop:
    """One ``torch.mm`` a group (cuBLAS on CUDA); an empty group costs nothing, but for dW a fill with zeros."""

    info = ArmInfo(
        name="cublas_loop",
        key="c",
        is_cake=False,
        note="torch.mm per group; group sizes known on the host (its advantage), output preallocated",
    )

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Refuse FP32 dW where torch lacks the overload that writes it."""
        if reason := without_autograd(case):
            return reason
        if case.out_dtype == "fp32" and machine.device != "cuda":
            return "torch.mm gives FP32 from BF16 inputs on CUDA only"
        return None

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Allocate the output and cut all views, so that a launch is the GEMMs alone."""
        return loop(case, operands)


def loop(case: Case, operands: Operands) -> Prepared:
    """Return the loop over the groups of ``case``, ready to run."""
    out = new_output(case, operands.offs.device)
    products, empty = _work(case, operands, out)

    def launch() -> torch.Tensor:
        for a, b, c in products:
            torch.mm(a, b, out=c)
        for c in empty:
            c.zero_()
        return out

    def launch_fp32() -> torch.Tensor:
        for a, b, c in products:
            torch.mm(a, b, out_dtype=torch.float32, out=c)
        for c in empty:
            c.zero_()
        return out

    return Prepared(launch=launch_fp32 if case.out_dtype == "fp32" else launch, out=out)


_Product = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _work(case: Case, operands: Operands, out: torch.Tensor) -> tuple[list[_Product], list[torch.Tensor]]:
    """Return each group's (a, b, where a @ b goes), and the parts of dW that stay zero."""
    a, b = pair(case, operands)
    products: list[_Product] = []
    empty: list[torch.Tensor] = []
    for expert, rows in enumerate(rows_of(operands.group_sizes)):
        if rows.start == rows.stop:
            if case.op == "dW":
                empty.append(out[expert])
        elif case.op == "fwd":
            products.append((a[rows], b[expert].t(), out[rows]))
        elif case.op == "dX":
            products.append((a[rows], b[expert], out[rows]))
        else:
            products.append((a[rows].t(), b[rows], out[expert]))
    return products, empty


ARM = CublasLoop()
