"""CUPTI is live: the session opens with the pinned pair of libraries, and delivers the record of a probe kernel."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from harness.cupti_session import PINNED
from harness.doctor.finding import Check, Finding, held
from harness.doctor.gpu import Gpu

ADVICE = "do what the message says; until then --timer cuda_event measures without CUPTI"


@dataclass(frozen=True, slots=True, kw_only=True)
class CuptiLive:
    """The open session.

    Attributes
    ----------
    versions
        Of the libraries that must be of one pair.
    probes
        Kernels that it took until the first was seen.
    unfiltered
        APIs that CUPTI would not stop tracing.
    """

    versions: dict[str, str]
    probes: int
    unfiltered: tuple[str, ...]


def check(gpu: Gpu) -> Check[CuptiLive]:
    """Return the check."""
    return Check(name="CUPTI live", advice=ADVICE, read=lambda: read_cupti(gpu), judge=judge)


def read_cupti(gpu: Gpu) -> CuptiLive:
    """Open the session."""
    session = gpu.cupti().session
    return CuptiLive(
        versions={name: version(name) for name in PINNED},
        probes=session.startup_probes,
        unfiltered=tuple(session.unfiltered),
    )


def judge(reading: CuptiLive) -> Finding:
    """Ask for the pair and a probe that was seen."""
    versions = ", ".join(f"{name} {found}" for name, found in reading.versions.items())
    seen = f"start-up probe {reading.probes} seen" if reading.probes else "no start-up probe seen"
    more = f"; traced all the same, at a cost to the host: {len(reading.unfiltered)} APIs" if reading.unfiltered else ""
    return Finding(
        status=held(good=reading.versions == PINNED and reading.probes > 0),
        measured=f"session open, {seen}; {versions}{more}",
        limit=", ".join(f"{name} {wanted}" for name, wanted in PINNED.items()) + ", a probe seen",
    )
