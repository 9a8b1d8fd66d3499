"""dX = G W on sm_90a with BF16 output, bitwise repeatable. The device code is ``cuda/grouped_gemm_sm90.cu``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...registry import Build, Launch, Problem, Program

if TYPE_CHECKING:
    import torch


def _refuse(problem: Problem) -> str | None:
    from ..sm90.config import refuse

    return refuse(problem)


def _prepare(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor, out: torch.Tensor, *, accumulate: bool) -> Launch:
    from ..sm90.launch import prepare

    return prepare("dgrad", a, b, offs, out, accumulate=accumulate)


def _builds() -> tuple[Build, ...]:
    from ..sm90.config import kernels

    return tuple(kernel.build for kernel in kernels("dgrad", "bf16"))


PROGRAM = Program(
    stem="dgrad_det_sm90a",
    op="dgrad",
    variant="det",
    arch="sm_90a",
    out_dtype="bf16",
    refuse=_refuse,
    prepare=_prepare,
    builds=_builds,
)
