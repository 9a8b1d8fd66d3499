"""Why groups were thrown away: the reasons of a run file in classes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from harness.model.conditions import Discards
from harness.model.run import Discarded
from harness.model.sample import QUEUE_DRY

_RESTARTED = "the row started again without "
_CLOCK = re.compile(r"clock \d+ MHz, \S+ MHz in the other groups")


def discards(entries: Sequence[Discarded]) -> Discards:
    """Return how many groups of a row were thrown away; an entry is a group, and its class is the protocol's wording.

    A timer's own reasons, whatever they say, are of the class ``invalid``: it gave no time.
    """
    kinds = Counter(map(_kind, entries))
    return Discards(**kinds)


def _kind(entry: Discarded) -> str:
    if not entry.arm and entry.reason.startswith("throttled: "):
        return "throttled"
    if entry.reason == QUEUE_DRY:
        return "dry"
    if _CLOCK.fullmatch(entry.reason):
        return "clock"
    # Where the arm is left out of the report, its name stands in the reason alone.
    without = entry.arm or entry.reason.removeprefix(_RESTARTED)
    return "restarted" if entry.reason == f"{_RESTARTED}{without}" else "invalid"
