"""Regimes: how an arm runs within a group. ``boost``: one call after an idle gap; ``sustained``: a block of calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Protocol

from harness.errors import MeasurementError, UnknownName
from harness.model.sample import Sample
from harness.timers import TimedCall, Timer

BLOCK_NS = 400_000_000
"""Length of a sustained block. docs/measuring.md tells how it was found."""

SUSTAINED_CALL_NS = 2_000_000
"""Shortest call of a sustained row; a block of shorter ones would be mostly flush."""

BOOST_ROUNDS = 3
"""How often the arms of a group rotate in boost; an arm's value is the median of its calls."""

DROPPED_SHARE = 3
"""One in three: the first third of a block is dropped, in which the clock settles."""

HOST_AHEAD = 2
"""How much faster than the device a host must enqueue to be trusted to stay ahead of it."""

Energy = Callable[[], int | None]
"""Reads the energy used so far in millijoules, or None where nothing tells."""


class Regime(Protocol):
    """How an arm runs within a group."""

    @property
    def name(self) -> str:
        """As it stands in run files and tables."""

    def why_not(self, call_ns: int) -> str:
        """Return why a row whose fastest call takes ``call_ns`` is not measured, or an empty string."""

    def cost_ns(self, call_ns: float) -> float:
        """Return about how long one arm takes in one group, where its call takes ``call_ns``."""

    def measure(self, ordered: Sequence[TimedCall], timer: Timer, energy_mj: Energy) -> list[Sample]:
        """Run each arm of a group in order; return one sample an arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boost:
    """Calls rotate one by one, each after an idle gap of about one call, so that the clock is what the board can do."""

    name: str = "boost"
    rounds: int = BOOST_ROUNDS

    def why_not(self, call_ns: int) -> str:  # noqa: ARG002 - it takes any row
        """Take any row."""
        return ""

    def cost_ns(self, call_ns: float) -> float:
        """Return a gap and a call for each round."""
        return self.rounds * 2 * call_ns

    def measure(self, ordered: Sequence[TimedCall], timer: Timer, energy_mj: Energy) -> list[Sample]:  # noqa: ARG002
        """Rotate; the energy counter is too coarse for one call."""
        calls = list(ordered) * self.rounds
        samples = _all(timer.measure(calls), calls)
        return [block_sample(samples[place :: len(ordered)], joules=None) for place in range(len(ordered))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained:
    """Each arm runs a block of back-to-back calls, long enough for its own clock to settle under the power limit."""

    name: str = "sustained"
    block_ns: int = BLOCK_NS
    min_call_ns: int = SUSTAINED_CALL_NS

    def why_not(self, call_ns: int) -> str:
        """Refuse rows whose fastest call is short."""
        if call_ns >= self.min_call_ns:
            return ""
        return (
            f"a call takes {call_ns / 1e6:.2f} ms; rows under {self.min_call_ns / 1e6:g} ms are measured in boost only"
        )

    def cost_ns(self, call_ns: float) -> float:
        """Return a block."""
        return 0.0 if self.why_not(round(call_ns)) else max(self.block_ns, DROPPED_SHARE * call_ns)

    def measure(self, ordered: Sequence[TimedCall], timer: Timer, energy_mj: Energy) -> list[Sample]:
        """Run a block of each arm."""
        return [self._block(call, timer, energy_mj) for call in ordered]

    def _block(self, call: TimedCall, timer: Timer, energy_mj: Energy) -> Sample:
        calls = max(DROPPED_SHARE, -(-self.block_ns // call.gap_ns))
        first = replace(call, gap_ns=0)
        # A host that needs less than half of the device's time stays ahead of it once it is.
        ahead = HOST_AHEAD * call.enqueue_ns <= call.gap_ns
        back_to_back = [first, *[replace(first, enqueue_ns=0) if ahead else first] * (calls - 1)]
        before = energy_mj()
        samples = _all(timer.measure(back_to_back), back_to_back)
        after = energy_mj()
        joules = (after - before) / 1000 / calls if before is not None and after is not None else None
        return block_sample(samples, joules=joules, drop_third=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Single calls of all arms in rotation, no idle: no result, but what the order of arms hides (docs/measuring.md).

    Under the power limit the arms share one clock here, whatever each would have on its own.
    """

    name: str = "rotation"
    block_ns: int = BLOCK_NS

    def why_not(self, call_ns: int) -> str:  # noqa: ARG002 - it takes any row
        """Take any row."""
        return ""

    def cost_ns(self, call_ns: float) -> float:
        """Return an arm's share of the rounds."""
        return max(self.block_ns, DROPPED_SHARE * call_ns)

    def measure(self, ordered: Sequence[TimedCall], timer: Timer, energy_mj: Energy) -> list[Sample]:  # noqa: ARG002
        """Run rounds of single calls for as long as the arms' blocks would take; energy cannot be told apart."""
        slowest_ns = max(call.gap_ns for call in ordered)
        rounds = max(DROPPED_SHARE, -(-self.block_ns // slowest_ns))
        calls = [replace(call, gap_ns=0) for _ in range(rounds) for call in ordered]
        samples = _all(timer.measure(calls), calls)
        places = range(len(ordered))
        return [block_sample(samples[place :: len(ordered)], joules=None, drop_third=True) for place in places]


def regime(spec: str) -> Regime:
    """Return the regime ``boost``, ``sustained``, or for studies ``rotation`` or ``sustained:SECONDS``.

    Raises
    ------
    UnknownName
        The message lists the known ones.
    """
    known: dict[str, Regime] = {"sustained": Sustained(), "boost": Boost(), "rotation": Rotation()}
    if match := re.fullmatch(r"sustained:(\d*\.?\d+)s?", spec):
        return Sustained(name=spec, block_ns=max(1, round(1e9 * float(match[1]))))
    if spec not in known:
        raise UnknownName("regime", spec, (*known, "sustained:SECONDS"))
    return known[spec]


def block_sample(samples: Sequence[Sample], *, joules: float | None, drop_third: bool = False) -> Sample:
    """Return the value of an arm's calls: the median of all, or of all but their first third; invalid if one is.

    The lower of two middle values, so that span, busy time and clock stay integers that were read.
    """
    kept = samples[len(samples) // DROPPED_SHARE :] if drop_third else samples
    for sample in kept:
        if sample.impossible():
            return replace(sample, calls=len(kept))
    busy = [s.busy_ns for s in kept if s.busy_ns is not None]
    clocks = [s.clock_mhz for s in kept if s.clock_mhz is not None]
    return Sample(
        span_ns=median_low(s.span_ns for s in kept),
        busy_ns=median_low(busy) if len(busy) == len(kept) else None,
        clock_mhz=median_low(clocks) if len(clocks) == len(kept) else None,
        joules=joules,
        calls=len(kept),
    )


def _all(samples: list[Sample], calls: Sequence[TimedCall]) -> list[Sample]:
    if len(samples) != len(calls):
        raise MeasurementError(f"the timer gave {len(samples)} samples for {len(calls)} calls")
    return samples
