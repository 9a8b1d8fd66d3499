"""Machine: where a row was measured; what a Run records, and the physical floor that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from harness.errors import RunFileError
from harness.model.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One device and the software on it.

    Attributes
    ----------
    device
        ``cpu`` or ``cuda``.
    product, arch
        ``NVIDIA H200`` and ``sm_90a``; for a CPU its model name and ``x86_64``.
    units
        Streaming multiprocessors, or logical cores.
    cache_bytes
        L2 of a GPU, last level of a CPU.
    memory_bytes
        Memory of the device.
    peak_flops, peak_bytes_per_s
        Upper bounds of what the device can do in BF16, generous rather than tight: they refuse impossible times,
        they do not rate arms. ``None`` where no bound is known.
    peak_source
        Where the two come from.
    board
        First 12 hex digits of the SHA-256 of the board's UUID; ``None`` for a CPU.
    versions
        Library -> version, e.g. ``torch``, ``cuda``, ``driver``, ``cudnn``.
    settings
        Name -> value of what the machine was set to: power limit, ECC, MIG, persistence.
    """

    device: Literal["cpu", "cuda"]
    product: str
    arch: str
    units: int
    cache_bytes: int
    memory_bytes: int
    peak_flops: float | None
    peak_bytes_per_s: float | None
    peak_source: str
    board: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("units", "cache_bytes", "memory_bytes", "peak_flops", "peak_bytes_per_s"):
            value = getattr(self, name)
            if value is not None and not 1 <= value < math.inf:
                raise RunFileError(f"{name} of machine {self.product!r} must be a finite number >= 1, got {value}")

    def floor_ns(self, case: Case) -> int:
        """Return the *physical floor*: the time in ns below which no call of ``case`` can end here, at least 1.

        The larger of FLOPs over the peak rate and, on a GPU (where every call starts with a cold L2), the bytes that
        must move over the peak bandwidth: all inputs, and what of the outputs the cache cannot still hold when the call
        ends. A time below it is a broken timer or an arm that did not do the work.
        """
        moved = case.input_bytes + max(0, case.output_bytes - self.cache_bytes)
        return self.least_ns(flops=case.flops, num_bytes=moved)

    def least_ns(self, *, flops: int = 0, num_bytes: int = 0) -> int:
        """Return the time in ns that so many FLOPs and bytes of memory need at the peak rates, at least 1."""
        by_flops = flops / self.peak_flops if self.peak_flops else 0.0
        by_bytes = num_bytes / self.peak_bytes_per_s if self.peak_bytes_per_s else 0.0
        return max(1, math.floor(1e9 * max(by_flops, by_bytes)))
