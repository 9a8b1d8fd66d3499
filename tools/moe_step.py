"""A training step of one MoE layer, ours beside torch._grouped_mm: `python -m tools.moe_step`.

Both layers have the same experts (gate_up, SwiGLU, down), the same rows and the same group sizes; a step is forward,
backward and SGD. Steps alternate in blocks of more than a second, in which each finds a clock of its own; the order is
reversed each round. Printed: milliseconds of a step by CUDA events and the peak of allocated memory for each, and the
ratio torch / ours of each round's medians: median [lowest, highest], of all rounds and of each order.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch
from torch.nn import functional

from cake_kernels.facade import Backend
from cake_kernels.moe import MoEExperts
from harness.revision import revision

ROUNDS = 6
STEPS = 30
SKIPPED = 10  # of a block, while clocks settle
GROUP_SIGMA = 0.47  # of the sizes' logarithms: a coefficient of variation of about 0.5
LEARNING_RATE = 1e-3


class TorchExperts(MoEExperts):
    """The same layer on torch._grouped_mm."""

    def forward(self, x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        """Return what MoEExperts returns."""
        gate, up = torch._grouped_mm(x, self.gate_up.transpose(-2, -1), offs=offs).chunk(2, dim=-1)
        return torch._grouped_mm(functional.silu(gate) * up, self.down.transpose(-2, -1), offs=offs)


def step_of(layer: MoEExperts, x: torch.Tensor, offs: torch.Tensor, g: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return a call that trains ``layer`` for one step and returns its output."""
    optimizer = torch.optim.SGD(layer.parameters(), lr=LEARNING_RATE)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        y: torch.Tensor = layer(x, offs)
        y.backward(g)
        optimizer.step()
        return y.detach()

    return step


def offsets(rows: int, experts: int, *, ragged: bool) -> torch.Tensor:
    """Return int32 [experts], cumulative ends of equal groups or of lognormal ones, the same in every run."""
    draws = torch.randn(experts, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shares = (draws * (GROUP_SIGMA if ragged else 0)).exp().cumsum(0)
    return (shares / shares[-1] * rows).round().to(torch.int32)


def block(step: Callable[[], object]) -> tuple[float, int]:
    """Return the median milliseconds of a block's steps, and the most bytes allocated during it."""
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(STEPS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times[SKIPPED:]), torch.cuda.max_memory_allocated()


def kernels(step: Callable[[], object]) -> list[tuple[str, float]]:
    """Return the kernels of one step and the milliseconds that each takes in all, the longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    times = [(row.key, row.self_device_time_total / 1000) for row in seen.key_averages()]
    return sorted((time for time in times if time[1] > 0), key=lambda time: -time[1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--rows", type=int, default=131072)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=6144)
    parser.add_argument("--intermediate", type=int, default=2048)
    parser.add_argument("--balanced", action="store_true", help="equal groups instead of ragged ones")
    parser.add_argument("--kernels", action="store_true", help="and the kernels of one more step of each")
    parser.add_argument("--check", action="store_true", help="one step of each on any device: compare the outputs")
    parser.add_argument("--revision", help="of the measured tree, where git cannot tell it")
    options = parser.parse_args(arguments)
    options.revision = revision(options.revision, top=Path(__file__).parents[1])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.check:
        parser.error("times are of a CUDA device, none is here; --check compares the outputs on the CPU")
    torch.manual_seed(0)
    x = torch.randn(options.rows, options.hidden, device=device).bfloat16().requires_grad_()
    g = torch.randn(options.rows, options.hidden, device=device).bfloat16()
    offs = offsets(options.rows, options.experts, ragged=not options.balanced).to(device)
    backend: Backend = "sm90" if device == "cuda" else "auto"  # nothing else is timed under our name
    ours, theirs = (
        kind(options.experts, options.hidden, options.intermediate, device=device, backend=backend)
        for kind in (MoEExperts, TorchExperts)
    )
    theirs.load_state_dict(ours.state_dict())
    steps = {"cake_kernels": step_of(ours, x, offs, g), "torch._grouped_mm": step_of(theirs, x, offs, g)}
    first = {name: step() for name, step in steps.items()}
    apart = (first["cake_kernels"] - first["torch._grouped_mm"]).norm() / first["torch._grouped_mm"].norm()
    where = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    print(f"{where}, torch {torch.__version__}; {vars(options)}")
    print(f"outputs differ by {apart:.1e} (relative L2)")
    if options.check:
        return
    times: dict[str, list[float]] = {name: [] for name in steps}
    peaks: dict[str, int] = {}
    for turn in range(ROUNDS):
        for name, step in list(steps.items())[:: -1 if turn % 2 else 1]:
            milliseconds, peaks[name] = block(step)
            times[name].append(milliseconds)
    for name in steps:
        print(f"{name:20} {median(times[name]):9.3f} ms   peak {peaks[name] / 2**30:.2f} GiB")
    ratios = [b / a for a, b in zip(times["cake_kernels"], times["torch._grouped_mm"], strict=True)]
    for rounds, kept in (("all rounds", ratios), ("ours first", ratios[::2]), ("torch first", ratios[1::2])):
        print(f"torch / ours {median(kept):.3f} [{min(kept):.3f}, {max(kept):.3f}], {rounds}")
    for name, step in steps.items() if options.kernels else ():
        print(f"{name}, ms of each kernel in one step")
        for kernel, milliseconds in kernels(step):
            print(f"{milliseconds:9.3f}  {kernel[:100]}")


if __name__ == "__main__":
    main()
