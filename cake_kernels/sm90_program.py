"""What the program files of sm_90a share: each is a docstring and one call of :func:`program`. Imports no torch.

It stands beside the registry, since an import of anything in ``grouped_gemm`` brings torch.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .registry import Build, Op, OutDtype, Problem, Program, Route, Variant

if TYPE_CHECKING:
    import torch

ARCH = "sm_90a"


def stem(op: Op, variant: Variant, out_dtype: OutDtype) -> str:
    """``fwd_det_sm90a``; wgrad has the output type too: ``wgrad_bf16_det_sm90a``."""
    what = f"{op}_{out_dtype}" if op == "wgrad" else op
    return f"{what}_{variant}_sm90a"


def program(op: Op, variant: Variant, out_dtype: OutDtype) -> Program:
    """Return the program of an operation, a variant and an output type."""

    def refuse(problem: Problem) -> str | None:
        reason: str | None = _module("config").refuse(problem)
        return reason

    def route(
        a: torch.Tensor,
        b: torch.Tensor,
        offs: torch.Tensor,
        out: torch.Tensor,
        *,
        accumulate: bool,
        num_sms: int | None,
    ) -> Route:
        found: Route = _module("launch").route(
            op, a, b, offs, out, accumulate=accumulate, num_sms=num_sms, variant=variant
        )
        return found

    def builds() -> tuple[Build, ...]:
        return tuple(kernel.build for kernel in _module("config").kernels(op, out_dtype, variant))

    return Program(
        stem=stem(op, variant, out_dtype),
        op=op,
        variant=variant,
        arch=ARCH,
        out_dtype=out_dtype,
        refuse=refuse,
        route=route,
        builds=builds,
    )


@cache
def _module(name: str) -> Any:
    """Import it once: an import statement costs a microsecond in each call."""
    return import_module(f".grouped_gemm.sm90.{name}", __package__)
