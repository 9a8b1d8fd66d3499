"""Replays durations from a file: what tests use. Arms are still called and checked; their times are the script's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from harness.devices import Device
from harness.errors import UsageError
from harness.model.sample import Sample
from harness.timers import TimedCall, Traced

EXAMPLE = '{"torch_grouped_mm": [21000, 20800], "cublas_loop": [19500]}'


def why_not(device: str) -> str | None:  # noqa: ARG001 - it runs anywhere
    """Run anywhere."""
    return None


def check_argument(argument: str | None) -> None:
    """Ask for a file that can be replayed."""
    _script(argument)


def open_timer(device: Device, argument: str | None) -> ScriptedTimer:  # noqa: ARG001 - nothing is read from the device
    """Return a timer that replays the JSON file ``argument``: arm -> list of durations in ns.

    Raises
    ------
    UsageError
        There is no such file, or it holds something else.
    """
    return ScriptedTimer(_script(argument))


def _script(argument: str | None) -> dict[str, tuple[float, ...]]:
    if argument is None:
        raise UsageError(f"--timer scripted needs a file, --timer scripted:FILE.json, holding e.g. {EXAMPLE}")
    try:
        script = json.loads(Path(argument).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--timer scripted: {argument} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--timer scripted: {argument} is no JSON ({error}); it must hold e.g. {EXAMPLE}") from error
    return _checked(script, argument)


def _checked(script: object, path: str) -> dict[str, tuple[float, ...]]:
    if not isinstance(script, dict) or not script:
        raise UsageError(f"--timer scripted: {path} must hold an object arm -> durations, e.g. {EXAMPLE}")
    for arm, durations in script.items():
        if not isinstance(durations, list) or not durations:
            raise UsageError(
                f"--timer scripted: {path}: {arm} must be a list of at least one duration, got {durations!r}"
            )
        for duration in durations:
            if isinstance(duration, bool) or not isinstance(duration, int | float):
                raise UsageError(
                    f"--timer scripted: {path}: {arm}: a duration must be a number of ns, got {duration!r}"
                )
    return {arm: tuple(durations) for arm, durations in script.items()}


class ScriptedTimer:
    """An arm's list is replayed from its start for every row, and from its start again where a row needs more."""

    heading = "scripted durations: no measurement"

    def __init__(self, script: dict[str, tuple[float, ...]]) -> None:
        self._script = script
        self._used: dict[str, int] = {}

    def start_row(self, case_id: str) -> None:  # noqa: ARG002 - every row replays the same
        """Replay from the start."""
        self._used = {}

    def traced(self) -> Traced:
        """See no records."""
        return Traced()

    def measure(self, calls: Sequence[TimedCall]) -> list[Sample]:
        """Call each arm and return its next durations."""
        return [self._one(call) for call in calls]

    def _one(self, call: TimedCall) -> Sample:
        durations = self._script.get(call.arm)
        if durations is None:
            raise UsageError(f"--timer scripted: the script has no arm {call.arm!r}; it has {', '.join(self._script)}")
        call.launch()
        used = self._used.get(call.arm, 0)
        self._used[call.arm] = used + 1
        return Sample(span_ns=durations[used % len(durations)])
