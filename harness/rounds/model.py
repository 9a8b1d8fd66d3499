"""What a file of rounds holds: the plan, and of every round what each rank reported. Strict: nothing is cast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from harness.model.case import Case
from harness.model.machine import Machine
from harness.strict import Label, Name, NotNegative, Positive

SCHEMA_VERSION: Literal[1] = 1
"""Version of the file's form."""

METHOD_VERSION: Literal[1] = 1
"""Version of how numbers come about; a change is a commit of its own."""

MOST_ROUNDS = 100
"""What the exact tests take."""

Role = Literal["baseline", "new"]
ROLES: tuple[Role, ...] = ("baseline", "new")

Mode = Literal["pre-sleep", "back-to-back"]
MODES: tuple[Mode, ...] = ("pre-sleep", "back-to-back")

Order = Literal["halves", "abba"]
Isolation = Literal["process", "session"]
Status = Literal["measured", "unsupported", "failed"]

RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,99}$")]
Nanoseconds = Annotated[int, Field(ge=1, lt=2**63)]


class Record(BaseModel):
    """A frozen model of JSON: nothing is cast, no unknown key passes."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Side(Record):
    """The arm that plays a role.

    Attributes
    ----------
    own_python
        It ran in an interpreter of its own, named by ``--python``; its versions are those of its machine.
    """

    arm: Name
    own_python: bool


class Plan(Record):
    """What a run of rounds sets out to do; two runs with the same plan can be one run that was resumed.

    Attributes
    ----------
    rounds
        Even: half load the baseline first, half the new.
    iterations
        Timed calls of an arm in a cell and a round, on each rank.
    ranks
        Processes that run an arm together; its time is the slowest one's.
    timer
        Its name, without an argument.
    seed
        Of the inputs, and of the order ``abba``.
    round_limit_ns
        Longest time that a round may take, the start of its processes included.
    """

    baseline: Side
    new: Side
    cases: Annotated[tuple[Case, ...], Field(min_length=1)]
    modes: Annotated[tuple[Mode, ...], Field(min_length=1)]
    rounds: Annotated[int, Field(ge=2, le=MOST_ROUNDS, multiple_of=2)]
    iterations: Positive
    ranks: Positive
    order: Order
    isolate: Isolation
    device: Literal["cpu", "cuda"]
    timer: Name
    seed: NotNegative
    round_limit_ns: Nanoseconds

    def side(self, role: Role) -> Side:
        """Return who plays ``role``."""
        return self.baseline if role == "baseline" else self.new

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        ids = [(case.suite, case.case_id) for case in self.cases]
        if len(set(ids)) != len(ids) or len(set(self.modes)) != len(self.modes):
            raise PydanticCustomError("twice", "each case and each mode must stand once in a plan")
        return self


class Timing(Record):
    """One arm in one cell of one round, on one rank.

    Attributes
    ----------
    case
        Index in the plan.
    reason
        Why there is no time; empty where there is one.
    span_ns
        Every iteration, in the order in which they ran; empty unless ``measured``.
    """

    case: NotNegative
    mode: Mode
    role: Role
    status: Status
    reason: str
    span_ns: tuple[Nanoseconds, ...]

    @model_validator(mode="after")
    def _time_or_reason(self) -> Self:
        if (self.status == "measured") != bool(self.span_ns) or (self.status == "measured") == bool(self.reason):
            raise PydanticCustomError("no_reason", "a timing must have either times or the reason why not")
        return self


class RankReport(Record):
    """What one rank reported of a round; of arms in two environments there are two reports a rank.

    Attributes
    ----------
    machine
        Index in the file's machines.
    """

    rank: NotNegative
    machine: NotNegative
    timings: tuple[Timing, ...]


class Round(Record):
    """One attempt at a round.

    Attributes
    ----------
    index
        From 0. A round that failed and was measured again after ``--resume`` stands twice.
    first
        The role that was loaded, and measured, first.
    failure
        Why the round has no result; empty where it has one.
    failed_ranks
        The ranks to blame, where they are known.
    reports
        Empty in a failed round.
    """

    index: NotNegative
    first: Role
    failure: str
    failed_ranks: tuple[NotNegative, ...]
    reports: tuple[RankReport, ...]

    @model_validator(mode="after")
    def _reports_or_failure(self) -> Self:
        if bool(self.failure) == bool(self.reports) or (self.failed_ranks and not self.failure):
            raise PydanticCustomError("no_failure", "a round must have either reports or a failure")
        return self


class RoundsRun(Record):
    """Everything that one ``cake-bench rounds run`` recorded.

    Attributes
    ----------
    started
        UTC.
    sources_sha256
        Of the ``cake_kernels`` beside the command, which arms without an interpreter of their own run.
    rounds
        In the order in which they ran.
    """

    schema_version: Literal[1]
    method_version: Literal[1]
    run_id: RunId
    started: Name
    revision: Label
    sources_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    plan: Plan
    machines: tuple[Machine, ...]
    rounds: tuple[Round, ...]

    @property
    def done(self) -> frozenset[int]:
        """Indices of the rounds that have a result."""
        return frozenset(played.index for played in self.rounds if not played.failure)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        good = [played.index for played in self.rounds if not played.failure]
        if len(set(good)) != len(good):
            raise PydanticCustomError("twice", "a round must have one result, got several of one index")
        for place, played in enumerate(self.rounds):
            if wrong := impossible(self.plan, played, len(self.machines)):
                raise PydanticCustomError("impossible", "rounds[{place}]: {wrong}", {"place": place, "wrong": wrong})
        return self


def impossible(plan: Plan, played: Round, n_machines: int) -> str:
    """Return why ``played`` can be no round of ``plan``, or an empty string."""
    if played.index >= plan.rounds:
        return f"index must be below {plan.rounds}, got {played.index}"
    if any(rank >= plan.ranks for rank in played.failed_ranks):
        return f"failed_ranks must be below {plan.ranks}, got {played.failed_ranks}"
    if any(report.machine >= n_machines for report in played.reports):
        return f"a machine's index must be below {n_machines}"
    if played.failure:
        return ""
    if others := {report.rank for report in played.reports} - set(range(plan.ranks)):
        return f"a rank must be below {plan.ranks}, got {max(others)}"
    for rank in range(plan.ranks):
        timings = [timing for report in played.reports if report.rank == rank for timing in report.timings]
        if wrong := disagreement(plan, ROLES, timings):
            return f"rank {rank} {wrong}"
    return ""


def disagreement(plan: Plan, roles: Sequence[Role], timings: Sequence[Timing]) -> str:
    """Return in what a rank's timings of ``roles`` differ from the plan's, or an empty string."""
    cells = [(case, mode) for case in range(len(plan.cases)) for mode in plan.modes]
    expected = sorted((case, mode, role) for case, mode in cells for role in roles)
    got = sorted((t.case, t.mode, t.role) for t in timings)
    if got != expected:
        what = {"cases": 0, "modes": 1, "arms": 2}
        odd = [
            f"{len({key[at] for key in got})} {name} where {len({key[at] for key in expected})} are planned"
            for name, at in what.items()
            if {key[at] for key in got} != {key[at] for key in expected}
        ]
        return "reported " + ("; ".join(odd) or f"{len(got)} timings where {len(expected)} are planned")
    for timing in timings:
        if timing.status == "measured" and len(timing.span_ns) != plan.iterations:
            where = f"{timing.role} of {plan.cases[timing.case].case_id!r}, {timing.mode}"
            return f"reported {len(timing.span_ns)} iterations of {where}, {plan.iterations} are planned"
    return ""
