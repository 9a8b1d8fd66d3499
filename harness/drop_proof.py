"""Proof that dropped records are counted: a collector without room, in a process of its own.

A counter that always says 0 looks like a good run. Here CUPTI is given buffers too small for any record, so that all of
them must be dropped, and the counter must say so. Run as ``python -m harness.drop_proof``; the process ends there,
because a starved collector is of no further use.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from harness.cupti_session import CuptiSession, Role, external_id, load
from harness.devices import Device

STARVED_BYTES = 8
LAUNCHES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DropProof:
    """What a starved collector saw of :data:`LAUNCHES` launches.

    Attributes
    ----------
    failure
        Why there is no answer, or empty.
    """

    seen: int = 0
    dropped: int | None = None
    failure: str = ""

    @property
    def proved(self) -> bool:
        """Whether records went missing and the counter said so."""
        return not self.failure and self.seen < LAUNCHES and bool(self.dropped)


def prove(timeout_s: float = 120) -> DropProof:
    """Starve a collector in a process of its own; a hang or a crash there is an answer, not an accident here."""
    command = [sys.executable, "-m", "harness.drop_proof"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return DropProof(failure=f"no answer within {timeout_s:g} s")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return DropProof(failure=f"exit {done.returncode}: {last}")
    return DropProof(**json.loads(done.stdout.splitlines()[-1]))


def starve(device: Device) -> DropProof:
    """Launch :data:`LAUNCHES` flushes under a collector without room, in this process."""
    starved = CuptiSession(load(), synchronize=device.synchronize, probe=None, buffer_bytes=STARVED_BYTES)
    with starved as session:
        session.start()
        for place in range(LAUNCHES):
            with session.label(external_id(Role.FLUSH, place)):
                device.flush()
        trace = session.stop()
    return DropProof(seen=len(trace.records), dropped=trace.dropped)


def main() -> None:
    """Print one line of JSON."""
    from harness.devices import open_device

    proof = starve(open_device("cuda"))
    print(json.dumps({"seen": proof.seen, "dropped": proof.dropped}))


if __name__ == "__main__":
    main()
