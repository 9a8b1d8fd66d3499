"""The arms of our own kernels: one class, two variants. What another revision's arms share with them stands below."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch

from cake_kernels import grouped_gemm, registry
from harness.arms import Operands, Prepared, new_output
from harness.arms._ops import pair, unsupported
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo

_OPS: dict[str, registry.Op] = {"fwd": "fwd", "dX": "dgrad", "dW": "wgrad"}
_FUNCTIONS = {"fwd": "forward", "dX": "dgrad", "dW": "wgrad"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CakeArm:
    """``cake_kernels.grouped_gemm`` in one variant, where its registry has a program."""

    info: ArmInfo
    variant: registry.Variant

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Return the registry's answer: each program's reason. On a CPU there is no kernel of ours to time."""
        return unsupported(case) or registry.why_not(problem(registry, case, machine.arch), self.variant)

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Allocate the output."""
        return prepared(grouped_gemm, case, operands, self.variant)


def problem(registry: ModuleType, case: Case, arch: str) -> Any:
    """Return what that revision's registry calls ``case``, one that arms do."""
    s = case.shape
    return registry.Problem(op=_OPS[case.op], out_dtype=case.out_dtype, arch=arch, M=s.M, N=s.N, K=s.K, E=s.E)


def prepared(grouped_gemm: ModuleType, case: Case, operands: Operands, variant: registry.Variant) -> Prepared:
    """Allocate the output and bind that revision's public call to it."""
    a, b = pair(case, operands)
    out = new_output(case, operands.offs.device)
    return Prepared(launch=public_call(grouped_gemm, case, variant, a, b, operands.offs, out), out=out)


def public_call(
    grouped_gemm: ModuleType,
    case: Case,
    variant: registry.Variant,
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor,
    out: torch.Tensor,
) -> partial[torch.Tensor]:
    """Return the call of that revision's ``grouped_gemm`` that computes ``case`` into ``out``, not yet made."""
    named: dict[str, object] = {"out": out, "deterministic": variant == "det"}
    if case.op == "dW":
        named["out_dtype"] = out.dtype
    return partial(getattr(grouped_gemm, _FUNCTIONS[case.op]), a, b, offs, **named)
