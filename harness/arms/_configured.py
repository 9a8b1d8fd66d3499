"""Arms of ours whose configuration, or its tail, is given, for the measurements that the choice of one rests on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch

from cake_kernels import registry
from cake_kernels.device import facts
from cake_kernels.errors import ArgumentError
from cake_kernels.grouped_gemm.sm90 import launch as sm90
from cake_kernels.grouped_gemm.sm90.config import Config, Kernel, Tail, choose, whole_slabs
from harness.arms import Operands, Prepared, new_output
from harness.arms._cake import OPS, why_no_program
from harness.arms._ops import pair
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo

_TAILS: dict[registry.Variant, tuple[Tail, ...]] = {"det": ("plain", "whole", "slots"), "nondet": ("atomics",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredArm:
    """The sm_90a kernel as it is given, for every product that it can load. What is timed is the launch alone.

    Attributes
    ----------
    given
        The configuration; or a tail alone: then each problem has the configuration that :func:`choose` returns, with
        this tail.
    """

    info: ArmInfo
    variant: registry.Variant
    given: Config | Tail

    @classmethod
    def named(cls, variant: registry.Variant, name: str) -> ConfiguredArm:
        """Return the arm ``cake_<variant>@<name>`` of a configuration's name, or of a tail's.

        Raises
        ------
        ArgumentError
            There is no such configuration or tail, or its results are those of the other variant.
        """
        arm = f"cake_{variant}@{name}"
        given = cast(Tail, name) if name.isalpha() else Config.named(name)
        tail = given.tail if isinstance(given, Config) else given
        if tail not in _TAILS[variant]:
            others = (f"cake_{v} takes {' or '.join(tails)}" for v, tails in _TAILS.items() if v != variant)
            raise ArgumentError(
                f"tail of {arm} must be {' or '.join(_TAILS[variant])}, got {tail!r}; {', '.join(others)}"
            )
        what = "a given configuration" if isinstance(given, Config) else "each row's configuration with a given tail"
        note = f"cake_kernels in {what}; offs on the device, output preallocated, prepared once"
        return cls(info=ArmInfo(name=arm, key="", is_cake=True, note=note), variant=variant, given=given)

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Return the registry's answer, or why the configuration cannot do the case."""
        if case.is_step:
            return "computes products, no training step"
        refusal = why_no_program(registry, case, machine.arch, self.variant)
        if refusal is not None:
            return refusal
        if case.shape.M == 0:
            return "needs at least one row, got M = 0"
        if self.given in ("slots", "atomics") and case.op != "dW":
            return (
                f"{self.given} splits tiles, whose bits then depend on the other groups, which those of {case.op} must"
                " not; take cake_det@plain or cake_det@whole"
            )
        try:
            self._kernel(case, sms=machine.units)
        except ArgumentError as error:
            return str(error)
        return None

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Allocate the output and bind the kernel; the note names a configuration that is not given."""
        device = operands.offs.device
        kernel = self._kernel(case, sms=facts(device.index).sms)
        a, b = pair(case, operands)
        out = new_output(case, device)
        enqueue = sm90.prepare(kernel.op, a, b, operands.offs, out, accumulate=False, config=kernel.config)

        def launch() -> torch.Tensor:
            enqueue(torch.cuda.current_stream(out.device).cuda_stream)
            return out

        return Prepared(launch=launch, out=out, note="" if kernel.config == self.given else kernel.config.name)

    def _kernel(self, case: Case, *, sms: int) -> Kernel:
        op, s = OPS[case.op], case.shape
        if isinstance(self.given, Config):
            config = self.given
        else:
            chosen = choose(op, M=s.M, N=s.N, K=s.K, E=s.E, variant=self.variant, sms=sms)
            config = replace(chosen, tail=self.given)
        return Kernel(
            op=op,
            out_dtype="fp32" if case.out_dtype == "fp32" else "bf16",
            accumulate=False,
            whole_slabs=whole_slabs(op, N=s.N, K=s.K),
            config=config,
        )
