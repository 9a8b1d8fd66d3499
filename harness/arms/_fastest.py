"""The fastest of what a library offers for one case: its plans, its tile configurations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import TypeVar

import torch

Candidate = TypeVar("Candidate")

TIMED_ROUNDS = 5
"""Calls of each candidate, candidates in turn."""

FLUSHES = 8
"""Reads of four times the L2 before a timed call: a cold cache, and time for the host to enqueue the call."""


def fastest(candidates: Sequence[Candidate], run: Callable[[Candidate], None], device: torch.device) -> Candidate:
    """Return the candidate of the lowest median time, each called before so that its kernels are loaded.

    Times are those of two CUDA events around a call with a cold L2, after an idle gap as long as one of the candidate's
    calls. Without the gap all run at one clock, which their mean power sets, and the fewest cycles win whatever power
    they take. On an H200 that chose configurations of quack which take 4.8 % longer, at 1.3 % fewer cycles, than those
    that quack's own tuner chose (geomeans of 68 rows, each against a loop of cuBLAS calls; docs/measuring.md).
    """
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    flush = torch.ones(l2_bytes, dtype=torch.float32, device=device)  # as many floats as the L2 has bytes: 4 times it
    times_ms: list[list[float]] = [[] for _ in candidates]
    for candidate in candidates:
        run(candidate)
    gaps_ms = [_time_ms(partial(run, candidate), flush) for candidate in candidates]
    for _ in range(TIMED_ROUNDS):
        for candidate, times, gap_ms in zip(candidates, times_ms, gaps_ms, strict=True):
            time.sleep(gap_ms / 1000)
            times.append(_time_ms(partial(run, candidate), flush))
    return min(zip(candidates, times_ms, strict=True), key=lambda each: median(each[1]))[0]


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
