"""The GPU as the checks share it: each piece opened at its first use, CUPTI after all that must do without it."""

from __future__ import annotations

import atexit
from dataclasses import dataclass

from harness.clock import RingClock
from harness.cupti_session import CuptiSession
from harness.doctor.hardware import Hardware
from harness.doctor.once import Once
from harness.doctor.stage import Stage
from harness.doctor.untraced import Untraced, read_untraced
from harness.timers.cupti import CuptiTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class Cupti:
    """CUPTI in this process: its session, the timer of runs on it, and the clock that the timer reads."""

    session: CuptiSession
    timer: CuptiTimer
    ring: RingClock


class Gpu:
    """Pieces that several checks use; each is opened once, and a failure of it is every such check's.

    Attributes
    ----------
    driver
        NVML; opened before ``stage``, so that this process is not yet one that computes on the GPU.
    untraced
        What is read while CUPTI is not in the process. A session is never closed and opened again, so ``cupti`` reads
        this first.
    """

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.driver = Once(hardware.open_driver)
        self.stage = Once(self._open_stage)
        self.untraced: Once[Untraced] = Once(lambda: read_untraced(self.stage()))
        self.cupti = Once(self._open_cupti)

    def _open_stage(self) -> Stage:
        device = self.hardware.open_device()
        spin = self.hardware.spin(device)
        # Compiles and loads the kernel, which no timed call may do.
        spin.launch(0)
        device.synchronize()
        return Stage(device=device, spin=spin, new_event=self.hardware.new_event, clock=self.hardware.clock)

    def _open_cupti(self) -> Cupti:
        self.untraced()
        device = self.stage().device
        session = self.hardware.open_session(device)
        # CUPTI hands over what it still holds at exit, when there is no interpreter left to take it.
        atexit.register(session.close)
        ring = RingClock(self.hardware.clock_probe(device), device.torch_device)
        return Cupti(session=session, timer=CuptiTimer(device, session, probe=ring), ring=ring)
