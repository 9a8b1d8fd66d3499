"""Plays rounds: starts their processes, listens to the ranks, and says which one is to blame where a round fails."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import timers
from harness.errors import MeasurementError, UsageError
from harness.rounds.environment import without_ours
from harness.rounds.messages import GaveUp, Hello, Job, Mailbox, Report, Step, Turn
from harness.rounds.model import METHOD_VERSION, Plan, Role, disagreement
from harness.rounds.orders import first_roles
from harness.rounds.processes import Launch, gone

POLL_S = 0.02
AGENT_POLL_S = 1
"""How often torchrun looks after its ranks: seldom, so that who died first is seen before it ends the others."""

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""What torchrun sets, and says at length, where nobody has chosen: ranks would fight for the cores."""

WORKER = "harness.rounds.worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the conductor needs beside the plan.

    Attributes
    ----------
    timer
        With its argument.
    pythons
        Interpreter of each role.
    environment
        Of every process.
    """

    timer: str
    pythons: Mapping[Role, str]
    environment: Mapping[str, str]
    allow_busy: bool = False

    @property
    def together(self) -> bool:
        """Whether both arms can run in one process."""
        return len(set(self.pythons.values())) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What became of an attempt at a round: reports of all ranks, or why not.

    Attributes
    ----------
    reports
        Of each rank; where the arms have an interpreter each, of each rank for each.
    said
        The last line that the processes printed before a failure; for the terminal.
    """

    index: int
    first: Role
    reports: tuple[tuple[int, Report], ...] = ()
    failure: str = ""
    failed_ranks: tuple[int, ...] = ()
    said: str = ""


class RankFailed(MeasurementError):
    """A round cannot have a result; ``ranks`` are to blame, where that is known."""

    def __init__(self, reason: str, ranks: Sequence[int] = (), *, said: str = "") -> None:
        super().__init__(reason)
        self.ranks = tuple(ranks)
        self.said = said


def check(plan: Plan, setting: Setting) -> None:
    """Raise what no round could be played with, before anything starts.

    What only another interpreter can know, that of an arm with its own, is not asked: its first round says so.

    Raises
    ------
    UsageError
        ``session`` with two interpreters, an interpreter that is no program, a timer that cannot be used so.
    """
    if plan.isolate == "session" and not setting.together:
        raise UsageError("--isolate session runs both arms in one process, got two interpreters; leave out --isolate")
    for python in setting.pythons.values():
        if shutil.which(python, path=setting.environment.get("PATH")) is None:
            raise UsageError(f"{python} cannot be started: it is no program; check --python")
    if plan.device == "cpu" or not (plan.baseline.own_python and plan.new.own_python):
        timers.check(setting.timer, plan.device)
    else:
        timers.check_argument(setting.timer)


def play(plan: Plan, setting: Setting, indices: Sequence[int]) -> Generator[Played, None, None]:
    """Play the rounds ``indices`` of ``plan``, one after the other; yield what became of each as soon as it is over.

    ``plan`` and ``setting`` are such as :func:`check` lets pass. Closing it ends the processes that still run.

    With ``process`` each round has processes of its own: one launch, or one an arm where the arms' interpreters differ.
    With ``session`` one launch plays all rounds; where one fails, another launch goes on with the next.
    """
    firsts = first_roles(plan.rounds, plan.order, seed=plan.seed)
    left = [(index, firsts[index]) for index in indices]
    while left:
        if not setting.together:
            yield _apart(plan, setting, *left.pop(0))
            continue
        for played in _together(plan, setting, tuple(left if plan.isolate == "session" else left[:1])):
            left.pop(0)
            yield played


def _together(plan: Plan, setting: Setting, rounds: Sequence[tuple[int, Role]]) -> Iterator[Played]:
    """Play rounds with one launch, both arms in each process; the first that fails is the last."""
    turns = tuple(Turn(index=index, roles=_in_order(first)) for index, first in rounds)
    over = 0
    try:
        for reports in _reports(plan, setting, setting.pythons["new"], turns):
            index, first = rounds[over]
            over += 1
            yield Played(index=index, first=first, reports=reports)
    except RankFailed as failed:
        yield _failed(*rounds[over], failed)


def _apart(plan: Plan, setting: Setting, index: int, first: Role) -> Played:
    """Play a round with a launch for each arm, the first one's over before the second one's begins."""
    found: list[tuple[int, Report]] = []
    try:
        for role in _in_order(first):
            turn = Turn(index=index, roles=(role,))
            for reports in _reports(plan, setting, setting.pythons[role], (turn,)):
                found += reports
        _refuse_other_inputs(found)
    except RankFailed as failed:
        return _failed(index, first, failed)
    return Played(index=index, first=first, reports=tuple(found))


def _in_order(first: Role) -> tuple[Role, Role]:
    return ("baseline", "new") if first == "baseline" else ("new", "baseline")


def _failed(index: int, first: Role, failed: RankFailed) -> Played:
    return Played(index=index, first=first, failure=str(failed), failed_ranks=failed.ranks, said=failed.said)


def _reports(
    plan: Plan, setting: Setting, python: str, turns: Sequence[Turn]
) -> Iterator[tuple[tuple[int, Report], ...]]:
    """Launch the ranks and yield, turn by turn, what they report; the last turn is over when the processes are.

    Raises
    ------
    RankFailed
        A rank died, gave up, hung for longer than the plan allows, or reported something else than the others.
    """
    with tempfile.TemporaryDirectory(prefix="cake-rounds-") as scratch:
        folder = Path(scratch)
        job = Job(
            method_version=METHOD_VERSION,
            plan=plan,
            turns=tuple(turns),
            timer=setting.timer,
            allow_busy=setting.allow_busy,
        )
        (folder / "job.json").write_text(job.model_dump_json(), encoding="utf-8")
        ranks = [Rank(folder, rank) for rank in range(plan.ranks)]
        log = folder / "log"
        try:
            own = all(plan.side(role).own_python for role in turns[0].roles)
            variables = without_ours(setting.environment) if own else setting.environment
            environment = {**(ONE_THREAD if plan.ranks > 1 else {}), **variables}
            with Launch(command(python, plan.ranks, folder), environment=environment, log=log) as launch:
                for place, turn in enumerate(turns):
                    _wait(launch, ranks, place, limit_ns=plan.round_limit_ns, last=place + 1 == len(turns))
                    yield _checked(plan, turn, [(rank.number, rank.reports[place]) for rank in ranks])
        except RankFailed as failed:
            raise RankFailed(str(failed), failed.ranks, said=_last_line(log)) from failed
        except OSError as error:
            raise UsageError(f"{python} cannot be started: {error.strerror}; check --python") from error


def command(python: str, ranks: int, folder: Path) -> tuple[str, ...]:
    """Return the command that plays the job in ``folder``: one process, or torchrun with one a rank."""
    worker = ("-m", WORKER, str(folder))
    if ranks == 1:
        return (python, *worker)
    agent = ("--standalone", "--nnodes=1", f"--nproc-per-node={ranks}", f"--monitor-interval={AGENT_POLL_S}")
    # Unless told where, torchrun makes a log folder that nobody removes.
    return (python, "-m", "torch.distributed.run", *agent, f"--log-dir={folder / 'torchrun'}", *worker)


@dataclass(slots=True)
class Rank:
    """What is known of a rank so far."""

    folder: Path
    number: int
    pid: int | None = None
    step: int = -1
    doing: str = "starting"
    reports: list[Report] = field(default_factory=list)
    gave_up: GaveUp | None = None
    mailbox: Mailbox = field(init=False)

    def __post_init__(self) -> None:
        self.mailbox = Mailbox(self.folder, self.number)

    def listen(self) -> bool:
        """Take in what the rank has said; return whether its process was gone before."""
        ended = self.pid is not None and gone(self.pid)
        for word in self.mailbox.heard():
            if self.gave_up:
                break  # what comes after that counts no more
            match word:
                case Hello():
                    self.pid = word.pid
                case Step():
                    self.step, self.doing = word.number, word.doing
                case Report():
                    self.reports.append(word)
                case GaveUp():
                    self.gave_up = word
        return ended


def _wait(launch: Launch, ranks: Sequence[Rank], place: int, *, limit_ns: int, last: bool) -> None:
    """Return when every rank has reported the turn ``place`` (and, of the ``last``, the processes have ended)."""
    deadline_ns = time.monotonic_ns() + limit_ns
    while True:
        exit_code = launch.exit_code()
        ended = [rank.number for rank in ranks if rank.listen()]
        behind = [rank for rank in ranks if len(rank.reports) <= place]
        if not behind and (not last or exit_code == 0):
            return
        overdue = time.monotonic_ns() > deadline_ns
        refuse_lost(behind, ended, exit_code, limit_s=limit_ns / 1e9 if overdue else None)
        time.sleep(POLL_S)


def refuse_lost(behind: Sequence[Rank], ended: Sequence[int], exit_code: int | None, *, limit_s: float | None) -> None:
    """Raise if the ranks that have not reported will not, or the time is over; name those to blame.

    A rank that died says nothing, and its peers then give up: so who is silent goes before who gave up, and of those
    who gave up the first is the cause. Of ranks that hang, the others wait for the one at the earliest step.
    """
    died = [rank for rank in behind if rank.number in ended and rank.gave_up is None]
    if died:
        by = f" with exit code {exit_code}" if exit_code is not None and len(behind) == 1 else ""
        raise _blamed(died, f"died without a word{by} while")
    gave_up = sorted((r.gave_up.when_ns, r.number) for r in behind if r.gave_up is not None)
    if gave_up:
        rank = next(rank for rank in behind if rank.number == gave_up[0][1])
        assert rank.gave_up is not None
        raise _blamed([rank], "gave up while", f": {rank.gave_up.reason}")
    if exit_code is not None:
        if behind:
            raise _blamed(behind, f"ended with exit code {exit_code} while")
        raise RankFailed(f"the processes ended with exit code {exit_code} after their reports")
    if limit_s is not None:
        if not behind:
            raise RankFailed(f"the processes did not end within {limit_s:g} s, after their reports")
        earliest = min(rank.step for rank in behind)
        hung = [rank for rank in behind if rank.step == earliest]
        raise _blamed(hung, f"hung: no report within {limit_s:g} s; it was")


def _blamed(ranks: Sequence[Rank], what: str, why: str = "") -> RankFailed:
    numbers = tuple(rank.number for rank in ranks)
    who = f"rank {numbers[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, numbers))}"
    return RankFailed(f"{who} {what} {ranks[0].doing}{why}", numbers)


def _checked(plan: Plan, turn: Turn, reports: Sequence[tuple[int, Report]]) -> tuple[tuple[int, Report], ...]:
    for rank, report in reports:
        if report.index != turn.index:
            raise RankFailed(f"rank {rank} reported round {report.index}, this is round {turn.index}", (rank,))
        if wrong := disagreement(plan, turn.roles, report.timings):
            raise RankFailed(f"rank {rank} {wrong}", (rank,))
    _refuse_other_inputs(reports)
    return tuple(reports)


def _refuse_other_inputs(reports: Sequence[tuple[int, Report]]) -> None:
    """Raise unless all that made inputs of a case made the same; a report without an arm for it made none."""
    for case, sums in enumerate(zip(*(report.inputs for _, report in reports), strict=True)):
        made = [(rank, one) for (rank, _), one in zip(reports, sums, strict=True) if one]
        odd = next((rank for rank, one in made if one != made[0][1]), None)
        if odd is not None:
            advice = "two versions of torch may draw other numbers from one seed"
            raise RankFailed(f"rank {odd} has other inputs of case {case} than rank {made[0][0]}; {advice}", (odd,))


def _last_line(log: Path) -> str:
    """Return the last line that the processes printed, if they printed any."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
