"""An arm of ours whose configuration is given, for the measurements that the choice of one rests on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cake_kernels import registry
from cake_kernels.errors import ArgumentError
from cake_kernels.grouped_gemm.sm90 import launch as sm90
from cake_kernels.grouped_gemm.sm90.config import Config, Kernel, whole_slabs
from harness.arms import Operands, Prepared, new_output
from harness.arms._cake import OPS, why_no_program
from harness.arms._ops import pair
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredArm:
    """One configuration of the sm_90a kernel, for every product that it can load. What is timed is the launch alone."""

    info: ArmInfo
    config: Config

    @classmethod
    def named(cls, arm: str, config: str) -> ConfiguredArm:
        """Return the arm of a configuration's name.

        Raises
        ------
        ArgumentError
            There is no such configuration, or its results are not repeatable.
        """
        made = Config.named(config)
        if made.tail == "atomics":
            raise ArgumentError(f"configuration of {arm} must be repeatable, got the tail {made.tail!r}; take slots")
        note = "cake_kernels in a given configuration; offs on the device, output preallocated, prepared once"
        return cls(info=ArmInfo(name=arm, key="", is_cake=True, note=note), config=made)

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Return the registry's answer, or why the configuration cannot load the operands."""
        if case.is_step:
            return "computes products, no training step"
        refusal = why_no_program(registry, case, machine.arch, "det")
        if refusal is not None:
            return refusal
        try:
            self._kernel(case)
        except ArgumentError as error:
            return str(error)
        return None

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Allocate the output and bind the kernel."""
        kernel = self._kernel(case)
        a, b = pair(case, operands)
        out = new_output(case, operands.offs.device)
        enqueue = sm90.prepare(kernel.op, a, b, operands.offs, out, accumulate=False, config=kernel.config)

        def launch() -> torch.Tensor:
            enqueue(torch.cuda.current_stream(out.device).cuda_stream)
            return out

        return Prepared(launch=launch, out=out)

    def _kernel(self, case: Case) -> Kernel:
        op, s = OPS[case.op], case.shape
        return Kernel(
            op=op,
            out_dtype="fp32" if case.out_dtype == "fp32" else "bf16",
            accumulate=False,
            whole_slabs=whole_slabs(op, N=s.N, K=s.K),
            config=self.config,
        )
