"""The arms of another revision of our kernels, loaded beside this one: one class, two variants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import signature

import torch

from cake_kernels.registry import Variant
from harness.arms import Operands, Prepared
from harness.arms._cake import prepared, prepared_step, public_call, step_options, why_no_program
from harness.errors import FOREIGN, first_line
from harness.kernels import Kernels
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo

NOT_GIVEN = "there is no other revision to compare with; cake-bench run --previous names one"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousArm:
    """``grouped_gemm`` of another revision in one variant, a step by its ``grouped_mm``, where it has the programs.

    Attributes
    ----------
    kernels
        That revision; None until a command opens one.
    """

    info: ArmInfo
    variant: Variant
    kernels: Kernels | None = None

    def of(self, kernels: Kernels) -> PreviousArm:
        """Return this arm with its revision, named in its note too."""
        note = f"cake_kernels of revision {kernels.revision}, {self.info.note}"
        return replace(self, info=replace(self.info, note=note), kernels=kernels)

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Return that revision's answer. What it lacks, or raises when it is asked, is a reason too."""
        if self.kernels is None:
            return NOT_GIVEN
        try:
            reason = _why_not(self.kernels, case, machine, self.variant)
        except FOREIGN as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
        return f"revision {self.kernels.revision}: {reason}" if reason else None

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Allocate the output; a step allocates in each call."""
        if self.kernels is None:
            raise RuntimeError(NOT_GIVEN)
        if case.is_step:
            return prepared_step(self.kernels.module("facade"), case, operands, self.variant)
        return prepared(self.kernels.module("grouped_gemm"), case, operands, self.variant)


def _why_not(kernels: Kernels, case: Case, machine: Machine, variant: Variant) -> str | None:
    """Return why that revision has no program; raise TypeError where its function does not take today's arguments."""
    registry = kernels.module("registry")
    if reason := why_no_program(registry, case, machine.arch, variant):
        return reason
    tensor = torch.empty(0)
    if case.is_step:
        step_call = kernels.module("facade").grouped_mm
        signature(step_call).bind(tensor, tensor, **step_options(tensor, variant))
        return None
    call = public_call(kernels.module("grouped_gemm"), case, variant, tensor, tensor, tensor, tensor)
    signature(call.func).bind(*call.args, **call.keywords)
    return None
