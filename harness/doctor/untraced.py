"""What must be read before CUPTI is in the process: events as they are when nobody traces."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from harness.doctor.stage import COVER_NS, Stage, Trial
from harness.errors import MeasurementError

SPINS_NS = (100_000, 1_000_000)
"""Known durations: about the shortest call that anybody compares, and one of a millisecond."""

LAUNCHES = 200
"""Small kernels between two events; far fewer than a stream's queue holds."""

LAUNCHES_COVER_NS = 20_000_000
"""The device waits for so long before them: 100 us for each launch, ten times what a traced one takes."""

ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCost:
    """Time of one of :data:`LAUNCHES` smallest kernels: on the device by events, and on the host that enqueues it."""

    device_ns: float
    host_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpinByEvents:
    """A kernel of ``ns`` by events, each call."""

    ns: int
    events_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Untraced:
    """What was read without CUPTI."""

    launch: LaunchCost
    spins: tuple[SpinByEvents, ...]

    def spin(self, ns: int) -> tuple[int, ...]:
        """Return the times of the spin of ``ns``."""
        return next(spin.events_ns for spin in self.spins if spin.ns == ns)


def read_untraced(stage: Stage) -> Untraced:
    """Time known durations and small launches; nothing of CUPTI has been called yet."""
    spins = tuple(SpinByEvents(ns=ns, events_ns=stage.by_events(spin_trial(stage, ns))) for ns in SPINS_NS)
    return Untraced(launch=read_launch_cost(stage), spins=spins)


def spin_trial(stage: Stage, ns: int) -> Trial:
    """Return a spin of ``ns`` behind a flush: as a call of a run is timed."""
    return Trial(prepare=lambda: stage.device.flush(COVER_NS), call=lambda: stage.spin.launch(ns))


def read_launch_cost(stage: Stage) -> LaunchCost:
    """Return what one small kernel takes while the device has them all before it begins the first.

    Raises
    ------
    MeasurementError
        The host was too slow for that.
    """
    device_ns, host_ns = [], []
    for _ in range(ROUNDS):
        start, end = stage.new_event(), stage.new_event()
        stage.spin.launch(LAUNCHES_COVER_NS)
        start.record()
        begin = stage.clock()
        for _ in range(LAUNCHES):
            stage.spin.launch(0)
        host_ns.append((stage.clock() - begin) / LAUNCHES)
        if start.query():
            took = f"the host took {host_ns[-1]:.0f} ns for a launch"
            raise MeasurementError(f"{took}; {LAUNCHES} of them must fit into {LAUNCHES_COVER_NS / 1e6:g} ms")
        end.record()
        stage.device.synchronize()
        device_ns.append(1e6 * start.elapsed_time(end) / LAUNCHES)
    return LaunchCost(device_ns=median(device_ns), host_ns=median(host_ns))
