"""What the processes of a round say to each other: a job on the way in, words on the way out, JSON a line.

A rank appends its words to a file of its own in a folder that only this launch uses. A line counts once it is whole.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from harness.model.machine import Machine
from harness.rounds.model import Plan, Record, Role, Timing
from harness.strict import NotNegative, Positive, violations


class Turn(Record):
    """One round that a launch is to play: its index, and the roles in the order in which they are loaded."""

    index: NotNegative
    roles: tuple[Role, ...]


class Job(Record):
    """What a process is to do.

    Attributes
    ----------
    method_version
        A process of another version refuses the job.
    timer
        With its argument.
    """

    method_version: Positive
    plan: Plan
    turns: tuple[Turn, ...]
    timer: str
    allow_busy: bool


class Hello(Record):
    """The process is there."""

    kind: Literal["hello"] = "hello"
    pid: Positive


class Step(Record):
    """The process begins something, in which it may wait for the other ranks.

    Attributes
    ----------
    number
        Of the launch, from 0. Ranks take the same steps; who is hung is behind.
    """

    kind: Literal["step"] = "step"
    number: NotNegative
    doing: str


class Report(Record):
    """The process is done with a round.

    Attributes
    ----------
    inputs
        A sum of each input's bits, case by case: the same for all arms and ranks.
    """

    kind: Literal["report"] = "report"
    index: NotNegative
    machine: Machine
    inputs: tuple[tuple[int, ...], ...]
    timings: tuple[Timing, ...]


class GaveUp(Record):
    """The process ends on an error of its own.

    Attributes
    ----------
    when_ns
        On the host's monotonic clock: the first error of several is the cause.
    """

    kind: Literal["gave up"] = "gave up"
    when_ns: NotNegative
    reason: str


Word = Annotated[Hello | Step | Report | GaveUp, Field(discriminator="kind")]
_WORDS: TypeAdapter[Hello | Step | Report | GaveUp] = TypeAdapter(Word)


def mailbox(folder: Path, rank: int) -> Path:
    """Return the file to which ``rank`` appends."""
    return folder / f"rank-{rank}.jsonl"


def say(folder: Path, rank: int, word: Hello | Step | Report | GaveUp) -> None:
    """Append ``word``."""
    with mailbox(folder, rank).open("a", encoding="utf-8") as file:
        file.write(word.model_dump_json() + "\n")


class Mailbox:
    """What one rank has said, read as it grows."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._path = mailbox(folder, rank)
        self._read = 0

    def heard(self) -> tuple[Hello | Step | Report | GaveUp, ...]:
        """Return what came since the last call, in whole lines. One that is no word is heard as the rank giving up."""
        if not self._path.exists():
            return ()
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
        lines = whole.split(b"\n") if whole else []
        self._read += sum(len(line) + 1 for line in lines)
        return tuple(map(_word, lines))


def _word(line: bytes) -> Hello | Step | Report | GaveUp:
    try:
        return _WORDS.validate_json(line)
    except ValidationError as error:
        reason = f"it said what is no word of this version: {violations(error)[0].text}"
        return GaveUp(when_ns=time.monotonic_ns(), reason=reason)
