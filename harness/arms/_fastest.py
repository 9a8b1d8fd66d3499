"""The fastest of what a library offers for one case: its plans, its tile configurations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import TypeVar

import torch

Candidate = TypeVar("Candidate")

TIMED_ROUNDS = 3
"""Calls of each candidate, candidates in turn."""

FLUSHES = 8
"""Reads of four times the L2 before a timed call: a cold cache, and time for the host to enqueue the call."""


def fastest(candidates: Sequence[Candidate], run: Callable[[Candidate], None], device: torch.device) -> Candidate:
    """Return the candidate of the lowest median time, each called before so that its kernels are loaded.

    Times are those of two CUDA events around a call with a cold L2.
    """
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    flush = torch.ones(l2_bytes, dtype=torch.float32, device=device)  # as many floats as the L2 has bytes: 4 times it
    times_ms: list[list[float]] = [[] for _ in candidates]
    for candidate in candidates:
        run(candidate)
    for _ in range(TIMED_ROUNDS):
        for candidate, times in zip(candidates, times_ms, strict=True):
            times.append(_time_ms(partial(run, candidate), flush))
    return candidates[min(range(len(candidates)), key=lambda i: median(times_ms[i]))]


def _time_ms(call: Callable[[], None], flush: torch.Tensor) -> float:
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    for _ in range(FLUSHES):
        flush.sum()
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
