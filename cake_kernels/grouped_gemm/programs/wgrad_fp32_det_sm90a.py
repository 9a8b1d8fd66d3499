"""dW = Gᵀ X on sm_90a with FP32 output, bitwise repeatable. The device code is ``cuda/grouped_gemm_sm90.cu``."""

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

    return prepare("wgrad", a, b, offs, out, accumulate=accumulate)


def _builds() -> tuple[Build, ...]:
    from ..sm90.config import kernels

    return tuple(kernel.build for kernel in kernels("wgrad", "fp32"))


PROGRAM = Program(
    stem="wgrad_fp32_det_sm90a",
    op="wgrad",
    variant="det",
    arch="sm_90a",
    out_dtype="fp32",
    refuse=_refuse,
    prepare=_prepare,
    builds=_builds,
)
