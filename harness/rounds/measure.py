"""What a rank does in a round: make the inputs, load the arms, check them, time each in every cell, check again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from harness import arms as arm_files
from harness import devices, timers
from harness.arms import Arm, Prepared, refusal
from harness.correctness import check_arms
from harness.devices import Device
from harness.errors import FOREIGN, MeasurementError, UsageError, first_line
from harness.kernels import current
from harness.machine import open_nvml
from harness.model.case import Case
from harness.model.machine import Machine
from harness.operands import fingerprint, make_operands
from harness.rounds.environment import versions_of
from harness.rounds.messages import Job, Report, Turn
from harness.rounds.model import Mode, Plan, Role, Side, Status, Timing
from harness.rounds.peers import Peers, open_peers
from harness.timers import TimedCall, Timer

PRE_SLEEP_NS = 560_000
"""``pre-sleep``: how long the device is idle or spins before a call, at least. A sleep of 10^6 cycles at 1.79 GHz."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Why an arm has no time in a case."""

    status: Status
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a rank measures with.

    Attributes
    ----------
    begin
        Told what begins, before each step at which this rank may wait for others or be waited for.
    """

    plan: Plan
    arms: Mapping[Role, Arm]
    device: Device
    timer: Timer
    peers: Peers
    begin: Callable[[str], None]


@contextmanager
def open_bench(job: Job, begin: Callable[[str], None], *, rank: int, local_rank: int) -> Iterator[Bench]:
    """Open the device, the timer and the group of ranks for as long as the block lasts.

    Raises
    ------
    UsageError
        There is no such device, timer or arm here, or another process computes on the GPU.
    """
    plan = job.plan
    settings: dict[str, str] = {}
    if plan.device == "cuda":
        torch.cuda.set_device(local_rank)
        settings = _foreign(allow_busy=job.allow_busy)
    device = devices.open_device(plan.device, settings)
    roles = {role for turn in job.turns for role in turn.roles}
    with open_peers(rank, plan.ranks, limit_s=plan.round_limit_ns / 1e9) as peers:
        yield Bench(
            plan=plan,
            arms={role: arm_files.load(plan.side(role).arm) for role in roles},
            device=device,
            timer=timers.open_timer(job.timer, device),
            peers=peers,
            begin=begin,
        )


def _foreign(*, allow_busy: bool) -> dict[str, str]:
    foreign = open_nvml().foreign_processes()
    if foreign and not allow_busy:
        raise UsageError("another process computes on the GPU; wait for it, or say --allow-busy")
    return {"other processes on the GPU": str(len(foreign))} if foreign else {}


def play(bench: Bench, turn: Turn) -> Report:
    """Play one round; all that an arm does wrong becomes the reason for its missing time."""
    inputs: list[tuple[int, ...]] = []
    timings: list[Timing] = []
    for index, case in enumerate(bench.plan.cases):
        measured = _Case(bench, turn, index, case)
        timings += measured.timings()
        inputs.append(measured.inputs)
    # Nobody reports, or goes on to another round, before all are done: a fault then falls into the round it belongs to.
    bench.begin(f"ending round {turn.index}")
    bench.peers.barrier()
    machine = _with_versions(bench.device.machine, [bench.plan.side(role) for role in turn.roles])
    return Report(index=turn.index, machine=machine, inputs=tuple(inputs), timings=tuple(timings))


def _with_versions(machine: Machine, sides: Sequence[Side]) -> Machine:
    """Return ``machine`` with the versions that the arms bring, and of what an interpreter of its own calls ours."""
    found = {name: version for side in sides for name, version in versions_of(side.arm).items()}
    if any(side.own_python for side in sides):
        found["cake_kernels"] = f"sources {current('').sha256[:12]}"
    return replace(machine, versions={**machine.versions, **found, **machine.versions})


class _Case:
    """One case of a round, on its way through load, check, time and check.

    Whatever goes wrong on one rank, each rank takes the same steps; otherwise one would wait for another for ever.
    """

    def __init__(self, bench: Bench, turn: Turn, index: int, case: Case) -> None:
        self._bench = bench
        self._turn = turn
        self._index = index
        self._case = case
        self._prepared: dict[Role, Prepared] = {}
        self._outcomes: dict[Role, Outcome] = {}
        self.inputs: tuple[int, ...] = ()

    def timings(self) -> list[Timing]:
        bench = self._bench
        bench.begin(f"loading and checking {self._where()}")
        for role in self._turn.roles:
            if refused := refusal(bench.arms[role], self._case, bench.device.machine):
                self._outcomes[role] = Outcome(status=refused.status, reason=refused.reason)
        try:
            self._load_and_check()
        except torch.OutOfMemoryError as error:
            for role in self._turn.roles:
                self._fail(role, f"the case does not fit in memory: {first_line(error)}")
        self._agree()
        timings = [self._timed(mode, role) for mode in bench.plan.modes for role in self._turn.roles]
        bench.begin(f"checking {self._where()} again")
        return self._checked_again(timings)

    def _where(self) -> str:
        return f"{self._case.case_id!r} in round {self._turn.index}"

    def _fail(self, role: Role, reason: str) -> None:
        self._outcomes.setdefault(role, Outcome(status="failed", reason=reason))

    def _load_and_check(self) -> None:
        bench, case = self._bench, self._case
        roles = [role for role in self._turn.roles if role not in self._outcomes]
        if not roles:
            return
        self._operands = make_operands(case, seed=bench.plan.seed, device=bench.device.torch_device)
        self.inputs = fingerprint(self._operands)
        for role in roles:
            try:
                self._prepared[role] = bench.arms[role].prepare(case, self._operands)
            except FOREIGN as error:
                self._fail(role, f"could not be prepared: {type(error).__name__}: {first_line(error)}")
        self._check("")

    def _check(self, when: str) -> None:
        prepared: dict[str, Prepared] = {r: arm for r, arm in self._prepared.items() if r not in self._outcomes}
        verdicts = check_arms(self._case, self._operands, prepared, seed=self._bench.plan.seed)
        for role in self._prepared:
            if (verdict := verdicts.get(role)) and verdict.failure:
                self._fail(role, when + verdict.failure)

    def _agree(self) -> None:
        """Fail an arm here that another rank cannot time: a rank alone has no part in a time of all."""
        self._bench.begin(f"agreeing on who can be timed in {self._where()}")
        everyone = self._bench.peers.gather(
            {role: f"{outcome.status}: {outcome.reason}" for role, outcome in self._outcomes.items()}
        )
        for rank, theirs in enumerate(everyone):
            for role in self._turn.roles:
                if role in theirs:
                    self._fail(role, f"rank {rank}: {theirs[role]}")

    def _timed(self, mode: Mode, role: Role) -> Timing:
        bench = self._bench
        if role == self._turn.roles[0]:
            bench.timer.start_row(f"{mode} {self._case.case_id}")
        bench.begin(f"timing {role} of {self._where()}, {mode}")
        bench.peers.barrier()
        outcome = self._outcomes.get(role)
        spans: tuple[int, ...] = ()
        if outcome is None:
            try:
                spans = self._spans(mode, role)
            except MeasurementError as error:
                outcome = Outcome(status="failed", reason=first_line(error))
            except FOREIGN as error:  # whatever an arm raises is the recorded reason for its missing time
                outcome = Outcome(status="failed", reason=f"raised {type(error).__name__}: {first_line(error)}")
        return Timing(
            case=self._index,
            mode=mode,
            role=role,
            status=outcome.status if outcome else "measured",
            reason=outcome.reason if outcome else "",
            span_ns=spans,
        )

    def _spans(self, mode: Mode, role: Role) -> tuple[int, ...]:
        bench = self._bench
        launch = self._prepared[role].launch
        launch()
        bench.device.synchronize()
        if mode == "back-to-back":
            launch()  # what the first timed call is back to back with
        call = timed_call(bench.plan.side(role).arm, launch, mode, on_gpu=bench.plan.device == "cuda")
        floor_ns = bench.device.machine.floor_ns(self._case)
        return time_block(call, bench.timer, iterations=bench.plan.iterations, floor_ns=floor_ns)

    def _checked_again(self, timings: list[Timing]) -> list[Timing]:
        """Take the times of an arm whose output is wrong after them."""
        right = [role for role in self._turn.roles if role not in self._outcomes]
        if not right:
            return timings
        if fingerprint(self._operands) != self.inputs:
            for role in right:
                self._fail(role, "an arm wrote to the inputs, which both arms share, while it was timed")
        else:
            self._check("right at first, after timing: ")
        return [
            timing
            if (outcome := self._outcomes.get(timing.role)) is None
            else timing.model_copy(update={"status": outcome.status, "reason": outcome.reason, "span_ns": ()})
            for timing in timings
        ]


def timed_call(arm: str, launch: Callable[[], object], mode: Mode, *, on_gpu: bool) -> TimedCall:
    """Return the call as the timer is asked for it in ``mode``.

    ``pre-sleep``: a GPU spins before the flush, while the host enqueues the call; a CPU, which has no queue, is idle.
    ``back-to-back``: nothing but the flush between two calls, and no wait for the host.
    """
    sleep_ns = PRE_SLEEP_NS if mode == "pre-sleep" else 0
    return TimedCall(arm=arm, launch=launch, gap_ns=0 if on_gpu else sleep_ns, enqueue_ns=sleep_ns if on_gpu else 0)


def time_block(call: TimedCall, timer: Timer, *, iterations: int, floor_ns: int) -> tuple[int, ...]:
    """Time ``iterations`` of ``call`` in a row; return their spans in ns. None is dropped or measured again.

    Raises
    ------
    MeasurementError
        An iteration has no time that can be one, or one below ``floor_ns``.
    """
    spans = []
    for iteration, sample in enumerate(timer.measure([call] * iterations)):
        if reason := sample.impossible():
            raise MeasurementError(f"iteration {iteration} of {iterations}: {reason}")
        if sample.span_ns < floor_ns:
            needs = f"below the {floor_ns} ns that the case's FLOPs and bytes need here"
            raise MeasurementError(f"iteration {iteration} of {iterations} took {sample.span_ns:g} ns, {needs}")
        spans.append(int(sample.span_ns))
    return tuple(spans)
