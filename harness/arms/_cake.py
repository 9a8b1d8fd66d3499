"""The arms of our own kernels: one class, two variants. What another revision's arms share with them stands below."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch

from cake_kernels import facade, grouped_gemm, registry
from harness.arms import Operands, Prepared, new_output
from harness.arms._ops import pair
from harness.arms._step import step
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo

OPS: dict[str, registry.Op] = {"fwd": "fwd", "dX": "dgrad", "dW": "wgrad"}
_FUNCTIONS = {"fwd": "forward", "dX": "dgrad", "dW": "wgrad"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CakeArm:
    """``cake_kernels.grouped_gemm`` in one variant, a step by ``grouped_mm``, where its registry has the programs."""

    info: ArmInfo
    variant: registry.Variant

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Return the registry's answer: each program's reason. On a CPU there is no kernel of ours to time."""
        return why_no_program(registry, case, machine.arch, self.variant)

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Allocate the output; a step allocates in each call."""
        if case.is_step:
            return prepared_step(facade, case, operands, self.variant)
        return prepared(grouped_gemm, case, operands, self.variant)


def why_no_program(registry: ModuleType, case: Case, arch: str, variant: registry.Variant) -> str | None:
    """Return that revision's first reason why it has no program for a product of ``case``, or None."""
    said = (registry.why_not(problem(registry, product, arch), variant) for product in case.products)
    return next((str(reason) for reason in said if reason), None)


def problem(registry: ModuleType, case: Case, arch: str) -> Any:
    """Return what that revision's registry calls ``case``, a product."""
    s = case.shape
    return registry.Problem(op=OPS[case.op], out_dtype=case.out_dtype, arch=arch, M=s.M, N=s.N, K=s.K, E=s.E)


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


def prepared_step(facade: ModuleType, case: Case, operands: Operands, variant: registry.Variant) -> Prepared:
    """Bind that revision's ``grouped_mm``, in a checkpoint, to the step."""
    return step(case, operands, partial(facade.grouped_mm, **step_options(operands.offs, variant)))


def step_options(offs: torch.Tensor, variant: registry.Variant) -> dict[str, Any]:
    """Return what a step gives ``grouped_mm`` beside x and w."""
    # On a GPU a program or an error: what stands in for one elsewhere would be timed under our name.
    backend = "sm90" if offs.is_cuda else "auto"
    return {"offs": offs, "deterministic": variant == "det", "backend": backend}
