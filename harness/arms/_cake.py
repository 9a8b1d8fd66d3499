"""The arms of our own kernels: one class, two variants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from cake_kernels import grouped_gemm, registry
from harness.arms import Operands, Prepared, new_output
from harness.arms._ops import pair, unsupported
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo

_OPS: dict[str, registry.Op] = {"fwd": "fwd", "dX": "dgrad", "dW": "wgrad"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CakeArm:
    """``cake_kernels.grouped_gemm`` in one variant, where its registry has a program."""

    info: ArmInfo
    variant: registry.Variant

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Return the registry's answer: each program's reason. On a CPU there is no kernel of ours to time."""
        if reason := unsupported(case):
            return reason
        s = case.shape
        problem = registry.Problem(
            op=_OPS[case.op],
            out_dtype="fp32" if case.out_dtype == "fp32" else "bf16",
            arch=machine.arch,
            M=s.M,
            N=s.N,
            K=s.K,
            E=s.E,
        )
        return registry.why_not(problem, self.variant)

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Allocate the output."""
        a, b = pair(case, operands)
        offs, out = operands.offs, new_output(case, operands.offs.device)
        det = self.variant == "det"
        launches: dict[str, Callable[[], torch.Tensor]] = {
            "fwd": lambda: grouped_gemm.forward(a, b, offs, out=out, deterministic=det),
            "dX": lambda: grouped_gemm.dgrad(a, b, offs, out=out, deterministic=det),
            "dW": lambda: grouped_gemm.wgrad(a, b, offs, out_dtype=out.dtype, out=out, deterministic=det),
        }
        return Prepared(launch=launches[case.op], out=out)
