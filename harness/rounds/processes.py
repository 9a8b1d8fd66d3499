"""A command with all its descendants, which can be found and ended whatever session or process group they moved to."""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.errors import MeasurementError

MARK = "CAKE_ROUNDS_LAUNCH"
"""Environment variable that marks the processes of a launch; children inherit it."""

END_S = 60.0
"""A killed process has so long to give its memory back."""


class Launch:
    """A command that runs until it ends or the block does; then none of its processes is left.

    A launcher may put each rank into a process group of its own (torchrun does), so killing one group is not enough.
    Every process of a launch carries a mark in its environment, and is found in ``/proc`` by it: Linux only.

    Parameters
    ----------
    log
        File that takes what the processes print.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
        self._mark = f"{MARK}={secrets.token_hex(16)}"
        self._command = tuple(command)
        self._environment = {**environment, MARK: self._mark.partition("=")[2]}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C at the terminal is for the command, which then ends the round as a whole.
                    start_new_session=True,
                )
        except KeyboardInterrupt:  # it may have come when the process was there already
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.kill()
        except KeyboardInterrupt:  # only after the last is gone
            self.kill()
            raise

    def exit_code(self) -> int | None:
        """Return the command's exit code, or None while it runs; below 0 is a signal's number."""
        assert self._process is not None
        return self._process.poll()

    def kill(self) -> None:
        """Kill every process of the launch, and return when none is left.

        Raises
        ------
        MeasurementError
            One does not end although it was killed: it is stuck in the kernel.
        """
        while pids := [pid for pid in _pids() if self._owns(pid)]:
            for pid in pids:
                self._end(pid)
        if self._process is not None:
            self._process.wait()  # takes the exit code, so that the command is no zombie of ours

    def _owns(self, pid: int) -> bool:
        try:
            return self._mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False  # it ended just now, or is another user's

    def _end(self, pid: int) -> None:
        """Kill ``pid`` and wait for its end: a process that is being torn down has no environment any more."""
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            # Asked again: only a process that is held by its handle cannot become another one of that number.
            if not self._owns(pid):
                return
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            if not select.select([handle], [], [], END_S)[0]:
                raise MeasurementError(
                    f"process {pid} of a round did not end within {END_S:g} s of SIGKILL; look at it"
                )
        except ProcessLookupError:
            return
        finally:
            os.close(handle)


def _pids() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def gone(pid: int) -> bool:
    """Return whether the process ended, be it that nobody took its exit code yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] in ("Z", "X")
