"""What a reader must know before any number: which column is not what its name says, whose tree nobody can name."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model.report import SOTA, SOTA_ARMS
from harness.model.run import ArmInfo, Run
from harness.revision import UNKNOWN


def notes(runs: Sequence[Run], new: ArmInfo, left_out: Sequence[str]) -> dict[str, str]:
    """Return what holds of ``sota`` (the column), ``revision`` (of pooled runs) and ``left_out`` (arms)."""
    found = {}
    if new.name in SOTA_ARMS:
        found[SOTA] = f"new, {new.name}, is itself one of t, c, d: the column is the fastest other of them, not SOTA"
    if len(runs) > 1 and not _is_certain(runs[0].revision):
        found["revision"] = (
            f"{len(runs)} runs of revision {runs[0].revision} are pooled: nothing says that they measured the same tree"
        )
    if left_out:
        found["left_out"] = f"measured too, and left out here by --without: {', '.join(dict.fromkeys(left_out))}"
    return found


def _is_certain(revision: str) -> bool:
    return revision != UNKNOWN and "uncommitted changes" not in revision
