"""Why groups were thrown away: the reasons of a run file in four classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.model.conditions import Discards
from harness.model.run import Discarded


def discards(entries: Sequence[Discarded]) -> Discards:
    """Return how many groups of a row were thrown away; the class is how the protocol begins the reason."""
    kinds = Counter(_kind(entry.reason) for entry in entries)
    return Discards(
        invalid=kinds["invalid"], throttled=kinds["throttled"], clock=kinds["clock"], restarted=kinds["restarted"]
    )


def _kind(reason: str) -> str:
    if reason.startswith("throttled: "):
        return "throttled"
    if reason.startswith("clock "):
        return "clock"
    return "restarted" if reason.startswith("the row started again ") else "invalid"
