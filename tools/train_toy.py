"""The same small training by a loop of torch.mm and by MoEExperts: `python -m tools.train_toy`.

A layer learns a fixed random function of its input; a fixed router sends each row to one of its experts. Both columns
begin with the same weights and see the same batches, so that they show the same loss, but for BF16 roundings.
"""

from __future__ import annotations

import sys
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from cake_kernels.moe import MoEExperts

EXPERTS, HIDDEN, INTERMEDIATE, ROWS = 4, 32, 64, 256
STEPS = 100
SHOWN = 10
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

How = Literal["torch.mm", "cake_kernels"]


class Loop(MoEExperts):
    """The same parameters, multiplied expert by expert; sizes are read on the host."""

    def forward(self, x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        """Return what MoEExperts returns."""
        sizes = offs.diff(prepend=offs.new_zeros(1)).tolist()
        parts = []
        for rows, gate_up, down in zip(x.split(sizes), self.gate_up, self.down, strict=True):
            gate, up = torch.mm(rows, gate_up.t()).chunk(2, dim=-1)
            parts.append(torch.mm(functional.silu(gate) * up, down.t()))
        return torch.cat(parts)


def losses(how: How, *, steps: int = STEPS) -> list[float]:
    """Train from the same seed, and return the loss of each step."""
    torch.manual_seed(0)
    layer = {"torch.mm": Loop, "cake_kernels": MoEExperts}[how](EXPERTS, HIDDEN, INTERMEDIATE, dtype=torch.float32)
    router, target = nn.Linear(HIDDEN, EXPERTS), nn.Linear(HIDDEN, HIDDEN)
    for part in (layer, router, target):
        part.to(DEVICE)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    seen = []
    for _ in range(steps):
        x = torch.randn(ROWS, HIDDEN).to(DEVICE)
        with torch.no_grad():
            expert, order = router(x).argmax(dim=-1).sort(stable=True)
            x = x[order]
            wanted = target(x)
        offs = torch.searchsorted(expert, torch.arange(EXPERTS, device=DEVICE), right=True, out_int32=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            y = layer(x, offs)
        loss = functional.mse_loss(y.float(), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


def main() -> None:
    """Print the two curves side by side."""
    print(f"{EXPERTS} experts, {ROWS} rows a step, on {DEVICE}; torch {torch.__version__}", file=sys.stderr)
    print("step  torch.mm  cake_kernels")
    loop, ours = losses("torch.mm"), losses("cake_kernels")
    for step in (0, *range(SHOWN - 1, STEPS, SHOWN)):
        print(f"{step + 1:4}  {loop[step]:8.4f}  {ours[step]:12.4f}")


if __name__ == "__main__":
    main()
