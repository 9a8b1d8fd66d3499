"""What a call costs the host, beside torch._grouped_mm: `python -m tests.gpu.overhead [--revision REV]`.

All groups are empty, so that the device is done before the host has the next call ready. Printed: microseconds a call,
the lowest, median and highest of the rounds. A figure to look at; nothing is asserted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from cake_kernels import grouped_gemm, grouped_mm
from harness.revision import revision
from tests.gpu.ragged import BF16, DEVICE

M, N, K, E = 128, 64, 64, 8
CALLS = 200
ROUNDS = 9


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def timed(title: str, call: Callable[[], object]) -> None:
    rounds = []
    for _ in range(ROUNDS + 1):
        wait()
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter_ns() - start) / CALLS / 1000)
    wait()
    rounds = rounds[1:]  # the first one compiles and warms up
    print(f"{title:52} {min(rounds):8.1f} {median(rounds):8.1f} {max(rounds):8.1f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--revision", help="of the measured tree, where git cannot tell it")
    of = revision(parser.parse_args().revision, top=Path(__file__).parents[2])
    x = torch.zeros(M, K, dtype=BF16, device=DEVICE, requires_grad=True)
    w = torch.zeros(E, N, K, dtype=BF16, device=DEVICE, requires_grad=True)
    g = torch.zeros(M, N, dtype=BF16, device=DEVICE)
    offs = torch.zeros(E, dtype=torch.int32, device=DEVICE)
    prepared = grouped_gemm.prepare_forward(x, w, offs)

    def ours() -> torch.Tensor:
        return grouped_mm(x, w, offs)

    def torchs() -> torch.Tensor:
        return torch._grouped_mm(x, w.transpose(-2, -1), offs=offs)

    print(
        f"us a call on {DEVICE}: lowest, median, highest of {ROUNDS} rounds of {CALLS} calls;"
        f" torch {torch.__version__}; revision {of}"
    )
    with torch.no_grad():
        timed("prepared.launch()", prepared.launch)
        timed("grouped_gemm.forward", lambda: grouped_gemm.forward(x, w, offs))
        timed("grouped_mm, no gradient", ours)
        timed("torch._grouped_mm, no gradient", torchs)
    timed("grouped_mm, forward", ours)
    timed("torch._grouped_mm, forward", torchs)
    timed("grouped_mm, forward and backward", lambda: torch.autograd.grad(ours(), (x, w), g))
    timed("torch._grouped_mm, forward and backward", lambda: torch.autograd.grad(torchs(), (x, w), g))
    rows = [torch.zeros(m, K, dtype=BF16, device=DEVICE, requires_grad=True) for m in range(M, M + 3 * CALLS * ROUNDS)]
    ours_next, torchs_next = iter(rows), iter(rows)
    timed("grouped_mm, forward, other rows in each call", lambda: grouped_mm(next(ours_next), w, offs))
    timed(
        "torch._grouped_mm, forward, other rows in each call",
        lambda: torch._grouped_mm(next(torchs_next), w.transpose(-2, -1), offs=offs),
    )


if __name__ == "__main__":
    main()
