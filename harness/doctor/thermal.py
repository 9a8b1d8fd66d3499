"""Heat and what holds the clock down: the power cap may, nothing else."""

from __future__ import annotations

from statistics import mean

from harness.doctor.finding import Finding, held
from harness.doctor.load import Load
from harness.monitor import ABNORMAL

ADVICE = "let the GPU cool, or take another: groups measured under these reasons are discarded"


def judge(load: Load) -> Finding:
    """Fail on a reason that is not how a GPU lives under load."""
    reasons = list(dict.fromkeys(reason for state in load.states for reason in state.throttle))
    said = (
        f"{load.rest.temperature_c} C at rest, {max(state.temperature_c for state in load.states)} C under load at"
        f" {mean(state.power_w for state in load.states):.0f} W; held down by: {', '.join(reasons) or 'nothing'}"
    )
    return Finding(
        status=held(good=not ABNORMAL.intersection(reasons)),
        measured=said,
        limit=f"none of: {', '.join(sorted(ABNORMAL))}",
    )
