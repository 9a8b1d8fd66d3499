"""What the driver said after a machine's groups: ranges of temperature and power, reasons for a lower clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.model.conditions import GpuStates, Held, Range
from harness.model.run import GroupState, Row


def gpu_states(rows: Iterable[Row]) -> tuple[GpuStates, ...]:
    """Return one a regime that has states, in the order of the rows."""
    found: dict[str, list[GroupState]] = {}
    for row in rows:
        if row.states:
            found.setdefault(row.regime, []).extend(row.states)
    return tuple(_of_regime(regime, states) for regime, states in found.items())


def value_range(values: Iterable[float]) -> Range:
    """Return the least and the largest of at least one value."""
    listed = list(values)
    return Range(low=min(listed), high=max(listed))


def _of_regime(regime: str, states: list[GroupState]) -> GpuStates:
    held = Counter(reason for state in states for reason in dict.fromkeys(state.throttle))
    return GpuStates(
        regime=regime,
        groups=len(states),
        temperature_c=value_range(state.temperature_c for state in states),
        power_w=value_range(state.power_w for state in states),
        held=tuple(Held(reason=reason, groups=n) for reason, n in sorted(held.items(), key=lambda h: (-h[1], h[0]))),
    )
