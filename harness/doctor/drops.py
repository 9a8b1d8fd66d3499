"""Dropped records are counted: shown in a process of its own, where there is room for none."""

from __future__ import annotations

from harness.doctor.finding import Check, Finding, held
from harness.drop_proof import LAUNCHES, DropProof, prove

TIMEOUT_S = 90

ADVICE = "do not measure with --timer cupti: a lost record would go unnoticed; use --timer cuda_event"


def check() -> Check[DropProof]:
    """Return the check."""
    return Check(name="drops counted", advice=ADVICE, read=lambda: prove(TIMEOUT_S), judge=judge)


def judge(proof: DropProof) -> Finding:
    """Ask for records that went missing, and a counter that says so."""
    limit = f"fewer than {LAUNCHES} seen, and the counter above 0"
    if proof.failure:
        return Finding(status=held(good=False), measured=f"no answer: {proof.failure}", limit=limit)
    counted = "cannot be read" if proof.dropped is None else f"says {proof.dropped}"
    said = f"of {LAUNCHES} launches a collector without room saw {proof.seen}; the counter of dropped records {counted}"
    return Finding(status=held(good=proof.proved), measured=said, limit=limit)
