"""MeasuredFloor: how long a row's bytes and FLOPs take at the rates that were measured on its machine.

It rates arms. The physical floor, ``Machine.floor_ns``, follows from data sheets and refuses impossible times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.case import Case
from harness.model.run import Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFloor:
    """The two times of which the larger is the floor.

    Attributes
    ----------
    bytes_ns
        The row's least bytes over the rate of plain reads.
    flops_ns
        The row's FLOPs over the rate of a dense product.
    """

    bytes_ns: float
    flops_ns: float

    @property
    def ns(self) -> float:
        """The floor."""
        return max(self.bytes_ns, self.flops_ns)

    @property
    def binds(self) -> Literal["bytes", "FLOPs"]:
        """Which of the two is the floor; bytes where they are equal."""
        return "bytes" if self.bytes_ns >= self.flops_ns else "FLOPs"


def measured_floor(case: Case, rates: Rates) -> MeasuredFloor:
    """Return the floor of ``case``, in ns; 0 where it has no row and writes nothing."""
    return MeasuredFloor(
        bytes_ns=1e9 * case.min_bytes / rates.plain_read.per_s,
        flops_ns=1e9 * case.flops / rates.dense_mm.per_s,
    )


def closed_share(new: float, sota: float) -> float | None:
    """Return (sota - new) / (sota - 1), the share of SOTA's distance to the floor that new closes.

    Parameters
    ----------
    new, sota
        Times in floors, of one row or their geometric means.

    Returns
    -------
    float or None
        1 where new is at the floor, 0 where it is as slow as SOTA, negative where it is slower; None where SOTA is
        at the floor or below it, so that there is no distance.
    """
    return (sota - new) / (sota - 1) if sota > 1 else None
