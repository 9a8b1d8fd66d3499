"""The exceptions that a user sees, and the exit codes of every command.

::

    HarnessError
    ├── UsageError         exit 2: an option, a file or a name is wrong
    │   ├── UnknownName        the name is none of those known
    │   ├── ShapesError        shapes.yaml (or an ad-hoc shape) breaks its schema
    │   └── RunFileError       a run file cannot be read, or holds what no run can have produced
    ├── PluginError        exit 2: a plug-in's file exists and fails to import
    ├── MeasurementError   a sample cannot become a result; the runner turns it into a recorded reason
    └── NothingMeasured    exit 3
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What ``cake-bench run`` and ``report`` return; if several hold: 2, 1, 5, 3."""

    OK = 0
    BELOW = 1
    USAGE = 2
    NOTHING = 3
    FAILED_ROWS = 5
    INTERRUPTED = 130


class HarnessError(Exception):
    """Base of every error that the harness raises on purpose."""


class UsageError(HarnessError):
    """An option, a file or a name is wrong; the message says the thing, the rule, the value and the next step."""


class UnknownName(UsageError):
    """A name is none of those known."""

    def __init__(self, what: str, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"{what} {name!r} is not known; known: {', '.join(known) or 'none'}")
        self.name = name
        self.known = known


class ShapesError(UsageError):
    """``shapes.yaml`` or an ad-hoc shape breaks its schema."""


class RunFileError(UsageError):
    """A run file cannot be read, or holds what no run can have produced."""


class PluginError(HarnessError):
    """A plug-in's file exists and fails to import."""


class MeasurementError(HarnessError):
    """A sample cannot become a result."""


class NothingMeasured(HarnessError):
    """No row of the run has a time."""


FOREIGN = (Exception, SystemExit)
"""What code that is not the harness's own may raise: its own failure, even where it asks for the end of the process.

Ctrl-C is not among them: it is the user's.
"""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message: what fits into a table."""
    try:
        text = str(error).strip()
    except FOREIGN:
        return "a message that cannot be read"
    return written(text.splitlines()[0]) if text else "no message"


def written(text: str) -> str:
    """Return ``text`` as a file can hold it: what is no character (a surrogate, from a file name) becomes an escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
