"""One rank of a launch: ``python -m harness.rounds.worker FOLDER`` reads the job there and appends its words.

It says hello before it imports torch, so that whoever waits knows its process from the first moment.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from harness.errors import FOREIGN, MeasurementError, first_line
from harness.rounds.messages import GaveUp, Hello, Job, Step, say
from harness.rounds.model import METHOD_VERSION

SPARE_S = 10.0
"""A rank that nobody ended ends itself so long after the limit: whoever waited for it is gone."""


def main(folder: Path, rank: int, local_rank: int) -> None:
    """Play the job in ``folder`` as ``rank``; an error is said before it ends the process."""
    say(folder, rank, Hello(pid=os.getpid()))
    try:
        job = Job.model_validate_json((folder / "job.json").read_text(encoding="utf-8"))
        if job.method_version != METHOD_VERSION:
            raise MeasurementError(f"method_version must be {METHOD_VERSION} here, got {job.method_version}")
        _end_alone(job)
        # Here, after the hello: torch takes seconds.
        from harness.rounds.measure import open_bench, play

        steps = _Steps(folder, rank)
        steps.begin("opening the device and joining the other ranks")
        with open_bench(job, steps.begin, rank=rank, local_rank=local_rank) as bench:
            for turn in job.turns:
                _end_alone(job)
                say(folder, rank, play(bench, turn))
    except FOREIGN as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        say(folder, rank, GaveUp(when_ns=time.monotonic_ns(), reason=reason))
        raise


class _Steps:
    """Numbers what a rank begins."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder = folder
        self._rank = rank
        self._number = 0

    def begin(self, doing: str) -> None:
        """Say what begins."""
        say(self._folder, self._rank, Step(number=self._number, doing=doing))
        self._number += 1


def _end_alone(job: Job) -> None:
    """Let the alarm's default action end the process, even within native code, should it outlive the limit."""
    signal.setitimer(signal.ITIMER_REAL, job.plan.round_limit_ns / 1e9 + SPARE_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0")))
