"""The fastest of what a library offers for one case: its plans, its tile configurations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import TypeVar

import torch

Candidate = TypeVar("Candidate")

SCREENING_ROUNDS = 2
"""Calls of each candidate, back to back, the shorter of which says about how long it takes; the first loads kernels."""

SCREENED_OUT = 1.2
"""A candidate that takes more than so many times the shortest is timed no more: clocks after a rest differ by less."""

TIMED_ROUNDS = 5
"""Calls of each candidate that is left, in turn."""

FLUSHES = 8
"""Reads of four times the L2 before a timed call: a cold cache, and time for the host to enqueue the call."""


def fastest(candidates: Sequence[Candidate], run: Callable[[Candidate], None], device: torch.device) -> Candidate:
    """Return the candidate of the lowest median time.

    Times are those of two CUDA events around a call with a cold L2, after an idle gap as long as one of the candidate's
    calls. Without the gap all run at one clock, which their mean power sets, and the fewest cycles win whatever power
    they take. On an H200 that chose configurations of quack which take 4.8 % longer, at 1.3 % fewer cycles, than those
    that quack's own tuner chose (geomeans of 68 rows, each against a loop of cuBLAS calls; docs/measuring.md).
    """
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    flush = torch.ones(l2_bytes, dtype=torch.float32, device=device)  # as many floats as the L2 has bytes: 4 times it

    def time_ms(candidate: Candidate, rest_ms: float) -> float:
        time.sleep(rest_ms / 1000)
        return _time_ms(partial(run, candidate), flush)

    return chosen(candidates, time_ms)


def chosen(candidates: Sequence[Candidate], time_ms: Callable[[Candidate, float], float]) -> Candidate:
    """Return the candidate of the lowest median time; ``time_ms(candidate, rest_ms)`` times one call after a rest.

    Those that are far behind in calls without rest are left out of the rounds with it, which take twice as long.
    """
    calls_ms = [min(time_ms(candidate, 0.0) for _ in range(SCREENING_ROUNDS)) for candidate in candidates]
    limit_ms = SCREENED_OUT * min(calls_ms)
    left = [
        (candidate, call_ms) for candidate, call_ms in zip(candidates, calls_ms, strict=True) if call_ms <= limit_ms
    ]
    times_ms: list[list[float]] = [[] for _ in left]
    for _ in range(TIMED_ROUNDS):
        for (candidate, call_ms), times in zip(left, times_ms, strict=True):
            times.append(time_ms(candidate, call_ms))
    return min(zip(left, times_ms, strict=True), key=lambda each: median(each[1]))[0][0]


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
