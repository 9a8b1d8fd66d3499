"""What doctor prints: a line a check and a verdict, or the same as JSON with every reading."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from harness.doctor.finding import Examined, Status

SCHEMA_VERSION = 1

GLYPHS = {Status.OK: "✓", Status.FAIL: "✗", Status.NOTE: "·"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All checks of one time.

    Attributes
    ----------
    started
        UTC, ISO 8601, seconds.
    device
        ``cuda`` or ``cpu``.
    """

    started: str
    device: str
    examined: Sequence[Examined]

    @property
    def verdict(self) -> Status:
        """FAIL if a check failed, else OK: a note is no fault."""
        return Status.FAIL if self.named(Status.FAIL) else Status.OK

    def named(self, status: Status) -> list[str]:
        """Return the names of the checks that ended so."""
        return [one.name for one in self.examined if one.finding.status is status]


def text(diagnosis: Diagnosis) -> str:
    """Return one line a check: how it ended, what was measured, the limit, and if it failed what to do."""
    lines = [f"cake-bench doctor, device {diagnosis.device}, {diagnosis.started}"]
    lines += [_line(one) for one in diagnosis.examined]
    return "\n".join([*lines, _verdict(diagnosis)]) + "\n"


def as_json(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as strict JSON; docs/doctor.md has the keys. ``reading`` is null where there is none."""
    page = {
        "schema_version": SCHEMA_VERSION,
        "started": diagnosis.started,
        "device": diagnosis.device,
        "verdict": diagnosis.verdict,
        "checks": [
            {
                "name": one.name,
                "status": one.finding.status,
                "measured": one.finding.measured,
                "limit": one.finding.limit,
                "advice": one.advice,
                "reading": None if one.reading is None else asdict(one.reading),
            }
            for one in diagnosis.examined
        ],
    }
    return json.dumps(page, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _line(one: Examined) -> str:
    finding = one.finding
    parts = [f"{_mark(finding.status)}  {one.name}: {finding.measured}"]
    if finding.limit:
        parts.append(f"limit: {finding.limit}")
    if finding.status is Status.FAIL:
        parts.append(f"what to do: {one.advice}")
    return "; ".join(parts)


def _verdict(diagnosis: Diagnosis) -> str:
    failed, total = diagnosis.named(Status.FAIL), len(diagnosis.examined)
    ok, notes = len(diagnosis.named(Status.OK)), len(diagnosis.named(Status.NOTE))
    counts = f"{ok} ok, {notes} note{'' if notes == 1 else 's'}, {len(failed)} FAIL of {total} checks"
    said = f"failed: {', '.join(failed)}" if failed else "what was checked holds"
    return f"{_mark(diagnosis.verdict)}  verdict: {counts}; {said}"


def _mark(status: Status) -> str:
    return f"{GLYPHS[status]} {status:<4}"
