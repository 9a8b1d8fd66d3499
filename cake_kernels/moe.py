"""MoEExperts: the experts of a Mixture-of-Experts layer as two grouped GEMMs with SwiGLU between them.

Routing is its caller's: it takes rows that are sorted by expert, and their cumulative ends.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from .facade import Backend, grouped_mm


class MoEExperts(nn.Module):
    """Each expert's rows through its own ``down(silu(gate(x)) * up(x))``.

    Gate and up are one product. As it ends in a grouped GEMM, a checkpoint around it does not launch that one again.

    Parameters
    ----------
    experts, hidden, intermediate
        E, H, I: ``gate_up`` is [E, 2 I, H], the gate's rows first, and ``down`` [E, H, I]. Multiples of 8 on CUDA.
    dtype, device
        Of the parameters; another type than BF16 needs autocast. They are drawn as ``nn.Linear`` draws its weight,
        uniformly within ± 1 / √(columns).
    backend
        See :func:`cake_kernels.grouped_mm`.
    """

    def __init__(
        self,
        experts: int,
        hidden: int,
        intermediate: int,
        *,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | str | None = None,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        self.gate_up = nn.Parameter(torch.empty(experts, 2 * intermediate, hidden, dtype=dtype, device=device))
        self.down = nn.Parameter(torch.empty(experts, hidden, intermediate, dtype=dtype, device=device))
        self.backend: Backend = backend
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew, from torch's default generator."""
        for weight in (self.gate_up, self.down):
            bound = weight.shape[-1] ** -0.5
            nn.init.uniform_(weight, -bound, bound)

    def forward(self, x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        """Return y, bf16 [M, H].

        Parameters
        ----------
        x
            bf16 [M, H], sorted by expert; any float under autocast to BF16.
        offs
            int32 [E], cumulative ends. Rows past the last one belong to nobody and become zeros.
        """
        gate, up = grouped_mm(x, self.gate_up, offs, backend=self.backend).chunk(2, dim=-1)
        return grouped_mm(functional.silu(gate) * up, self.down, offs, backend=self.backend)
