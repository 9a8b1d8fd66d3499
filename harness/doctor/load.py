"""A full load and a light one: what the probe kernel, the driver and the energy counter say of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.doctor.gpu import Gpu
from harness.model.run import GroupState

GEMMS = 30
"""In a batch: about 50 ms on a large GPU."""

SETTLING_BATCHES = 10
BATCHES = 20

WAIT_NS = 500_000_000
"""Length of a light load: one thread that waits, so that nothing holds the clock down."""

STALE_S = 0.3
"""Into the wait the driver is asked: 0.1 s after a full load, five readings within a millisecond were one stale one."""

WAIT_READINGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The GPU at rest and under load.

    Attributes
    ----------
    rest, states
        The driver's view before the load, and in the middle of each batch.
    probe_mhz
        Mean SM clock from the first batch to the last, by the probe kernel; None where it cannot tell.
    energy_mj
        By which the counter of energy went up meanwhile.
    light_states, light_probe_mhz
        The same of the wait after the load.
    max_clock_mhz
        The highest SM clock that the board can have, as the driver says it.
    """

    rest: GroupState
    states: tuple[GroupState, ...]
    probe_mhz: int | None
    energy_mj: int
    duration_ns: int
    light_states: tuple[GroupState, ...]
    light_probe_mhz: int | None
    max_clock_mhz: int


def read_load(gpu: Gpu, sleep: Callable[[float], None] = time.sleep) -> Load:
    """Load the GPU until its clock has settled, then for the batches that count."""
    stage, driver, ring = gpu.stage(), gpu.driver(), gpu.cupti().ring
    gemm = gpu.hardware.gemm(stage.device)
    stage.device.synchronize()
    rest = driver.state()

    def batch() -> GroupState:
        middle = stage.new_event()
        for index in range(GEMMS):
            gemm()
            if index == GEMMS // 2:
                middle.record()
        middle.synchronize()
        state = driver.state()
        stage.device.synchronize()
        return state

    for _ in range(SETTLING_BATCHES):
        batch()
    before_mj, begin = driver.energy_mj(), stage.clock()
    before = ring.read()
    states = tuple(batch() for _ in range(BATCHES))
    after = ring.read()
    stage.device.synchronize()
    energy_mj, duration_ns = driver.energy_mj() - before_mj, stage.clock() - begin
    # The first wait lets the clock rise; the driver is asked in the second.
    risen = stage.new_event()
    stage.device.flush(cover_ns=WAIT_NS)
    risen.record()
    light_before = ring.read()
    stage.device.flush(cover_ns=WAIT_NS)
    light_after = ring.read()
    risen.synchronize()
    sleep(STALE_S)
    light_states = tuple(driver.state() for _ in range(WAIT_READINGS))
    stage.device.synchronize()
    return Load(
        rest=rest,
        states=states,
        probe_mhz=ring.clock_mhz(before, after),
        energy_mj=energy_mj,
        duration_ns=duration_ns,
        light_states=light_states,
        light_probe_mhz=ring.clock_mhz(light_before, light_after),
        max_clock_mhz=driver.max_clock_mhz(),
    )
