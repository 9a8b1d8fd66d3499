"""The SM clock while a call ran: a probe before it and one after, readings kept until the device was waited for."""

from __future__ import annotations

from typing import Protocol

import torch

from harness.errors import MeasurementError
from harness.probe import clock_mhz

CAPACITY = 4096
"""Readings that are kept: more than a block of calls makes, two a call."""


class Probe(Protocol):
    """What writes a reading; :class:`harness.probe.ClockProbe`, or a test's."""

    @property
    def slots(self) -> int:
        """SMs of the device."""

    def record(self, out: torch.Tensor) -> None:
        """Write cycles and ns of each SM to int64 [2, slots]."""


class RingClock:
    """Readings in a ring of device memory, allocated once, so that a reading costs a launch and nothing else."""

    def __init__(self, probe: Probe, device: torch.device, capacity: int = CAPACITY) -> None:
        self._probe = probe
        self._ring = torch.zeros(capacity, 2, probe.slots, dtype=torch.int64, device=device)
        self._places = list(self._ring)
        self._count = 0

    def read(self) -> int:
        """Enqueue a reading and return its number."""
        number = self._count
        self._count += 1
        self._probe.record(self._places[number % len(self._places)])
        return number

    def clock_mhz(self, before: object, after: object) -> int | None:
        """Return the mean clock between two readings, once the device was waited for; None where they do not tell.

        Raises
        ------
        MeasurementError
            A reading was overwritten by later ones.
        """
        assert isinstance(before, int)
        assert isinstance(after, int)
        if self._count - before > len(self._places):
            raise MeasurementError(f"clock: reading {before} is gone, the ring keeps {len(self._places)}")
        first, last = (self._places[number % len(self._places)].cpu().numpy() for number in (before, after))
        try:
            return clock_mhz(first, last)
        except MeasurementError:
            return None
