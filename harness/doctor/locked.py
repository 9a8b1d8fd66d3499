"""Nothing keeps the clock below what the board can do: the driver does not tell of a clock that was locked."""

from __future__ import annotations

from statistics import mean

from harness.doctor.finding import Finding, Status, held
from harness.doctor.load import Load
from harness.monitor import ABNORMAL

ADVICE = (
    "have whoever administers the machine say nvidia-smi -rgc, and -rac where GPU settings names an application clock;"
    " until then times are those of a slower GPU"
)

LEAST = 0.9
"""Of the highest clock. A light load runs at the highest, or a few steps of 15 MHz below it."""

LIMITS = ABNORMAL | {"power cap"}
"""What may hold a clock down without anybody's having locked it."""


def judge(load: Load) -> Finding:
    """Fail on a clock that stays low under a light load and is held down neither by power nor by heat."""
    light_mhz = mean(state.clock_mhz for state in load.light_states)
    reasons = sorted(LIMITS.intersection(reason for state in load.light_states for reason in state.throttle))
    said = (
        f"light load: {light_mhz:.0f} MHz of at most {load.max_clock_mhz} MHz;"
        f" held down by power or heat: {', '.join(reasons) or 'no'}"
    )
    reached = light_mhz >= LEAST * load.max_clock_mhz
    status = Status.NOTE if reasons and not reached else held(good=reached)
    return Finding(status=status, measured=said, limit=f"at least {LEAST:.0%}, unless power or heat holds it down")
