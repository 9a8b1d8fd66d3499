"""Timers: one way to time calls a file. This file holds what a timer is and how timers are found.

A module ``harness/timers/<name>.py`` has three functions: ``why_not(device)`` of ``cpu`` or ``cuda``,
``check_argument(argument)`` and ``open_timer(device, argument)``; the first two open nothing, and touch no GPU.
A whole paired group goes to one timer, so that no group can mix two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast

from harness import plugins
from harness.devices import Device
from harness.errors import UsageError
from harness.model.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall:
    """One call that a timer is asked to time.

    Attributes
    ----------
    launch
        The arm's public call.
    gap_ns
        Idle time that the device is given before the call.
    enqueue_ns
        Host time that the call needs to enqueue its work; the device must be busy for at least as long before it. 0
        where it is so anyhow, behind another call.
    """

    arm: str
    launch: Callable[[], object]
    gap_ns: int = 0
    enqueue_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What a timer that sees the device's records has seen in a row so far; empty for a timer that does not.

    Attributes
    ----------
    records
        What became of the records: seen, attributed, orphans, dropped, ...
    kernels
        Arm -> each set of kernels, memsets and copies that one of its calls launched, as ``name x count``.
    """

    records: dict[str, int | None] = field(default_factory=dict)
    kernels: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)


class Timer(Protocol):
    """A way to time calls."""

    @property
    def heading(self) -> str:
        """What its numbers are, as a table's environment line says it."""

    def start_row(self, case_id: str) -> None:
        """Be told that the calls of another row follow, or, with the same ``case_id``, that the row starts again."""

    def traced(self) -> Traced:
        """Return what was seen of the row's records."""

    def measure(self, calls: Sequence[TimedCall]) -> list[Sample]:
        """Run the calls in order, each with cold caches; return one sample for each, as it was read."""


def names() -> tuple[str, ...]:
    """Return every timer's name, importing none."""
    return plugins.names("timers")


def why_not(name: str, device: Literal["cpu", "cuda"]) -> str | None:
    """Return why the timer ``name`` cannot be used here on ``device``, or None."""
    return cast("str | None", plugins.load("timers", name).why_not(device))


def check(spec: str, device: Literal["cpu", "cuda"]) -> None:
    """Raise what :func:`open_timer` would raise of ``NAME`` or ``NAME:ARGUMENT`` before it opens anything.

    Raises
    ------
    UsageError
        It cannot be used there, its argument is wrong, or there is none of that name.
    """
    check_argument(spec)
    name = spec.partition(":")[0]
    reason = why_not(name, device)
    if reason:
        raise UsageError(f"--timer {name} cannot be used here: {reason}")


def check_argument(spec: str) -> None:
    """Raise if there is no such timer, or not with this argument, whatever the machine."""
    name, _, argument = spec.partition(":")
    plugins.load("timers", name).check_argument(argument or None)


def open_timer(spec: str, device: Device) -> Timer:
    """Return the timer of ``NAME`` or ``NAME:ARGUMENT``.

    Raises
    ------
    UsageError
        As :func:`check`; or it cannot be opened. No other takes its place.
    """
    check(spec, device.machine.device)
    name, _, argument = spec.partition(":")
    return cast("Timer", plugins.load("timers", name).open_timer(device, argument or None))


def refuse_argument(name: str, argument: str | None) -> None:
    """Raise if a timer that takes no argument was given one."""
    if argument is not None:
        raise UsageError(f"--timer {name} takes no argument, got {argument!r}; write --timer {name}")
