"""What a check is and what comes of it: a reading, and a finding in words. A check that raises has failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from harness.errors import first_line

R = TypeVar("R")

MEND = "mend what the message names; until then nothing is known of what this check would show"
"""What to do where a check did not run to its end: its own advice is for what it measures."""


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    FAIL = "FAIL"
    NOTE = "note"
    """Worth knowing, and no reason to distrust what is measured here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a reading means.

    Attributes
    ----------
    measured
        What was found, with its numbers.
    limit
        What had to hold; empty where nothing had to.
    """

    status: Status
    measured: str
    limit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[R]):
    """One check.

    Attributes
    ----------
    advice
        What to do if it fails.
    read
        Touches the machine; returns a dataclass of plain values.
    judge
        Pure.
    """

    name: str
    advice: str
    read: Callable[[], R]
    judge: Callable[[R], Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A check that was made; ``reading`` is None where it came to none."""

    name: str
    advice: str
    finding: Finding
    reading: Any = None


def examine(check: Check[Any]) -> Examined:
    """Read and judge; what is raised is a failure with its message, and the next check runs all the same."""
    reading = None
    try:
        reading = check.read()
        finding = check.judge(reading)
    except Exception as error:  # noqa: BLE001 - whatever stops a check is what it found
        raised = f"{type(error).__name__}: {first_line(error)}"
        finding = Finding(status=Status.FAIL, measured=raised, limit="the check runs to its end")
        return Examined(name=check.name, advice=MEND, finding=finding, reading=reading)
    return Examined(name=check.name, advice=check.advice, finding=finding, reading=reading)


def left_out(check: Check[Any], reason: str) -> Examined:
    """Return the note that ``check`` was not made."""
    return Examined(name=check.name, advice=check.advice, finding=Finding(status=Status.NOTE, measured=reason))


def held(*, good: bool) -> Status:
    """Return OK or FAIL."""
    return Status.OK if good else Status.FAIL
