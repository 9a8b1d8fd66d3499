"""``cake-bench rounds run``: make the plan, play the rounds that are missing, save after each, say what happened."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Literal

import click
from pydantic import ValidationError

from harness import arms as arm_files
from harness import devices
from harness.cli._options import Selection, duration_ns, read_shapes, select_cases, selection
from harness.cli._progress import how_to_go_on
from harness.cli._session import DEFAULT_TIMER
from harness.errors import UsageError
from harness.kernels import current
from harness.pages.rounds.summary import exit_code, summarise
from harness.revision import revision
from harness.rounds import file
from harness.rounds.conductor import Played, Setting, check, play
from harness.rounds.model import (
    METHOD_VERSION,
    MODES,
    ROLES,
    SCHEMA_VERSION,
    Isolation,
    Mode,
    Order,
    Plan,
    RankReport,
    Role,
    Round,
    RoundsRun,
    Side,
)
from harness.strict import violations

DEFAULT_FOLDER = Path("reports")
TOP = Path(__file__).resolve().parents[2]
ROWS = ("suites", "adhoc", "globs", "ops", "shapes_file")


@click.command()
@selection
@click.option("--baseline", required=True, metavar="ARM", help="The arm to compare with.")
@click.option("--new", required=True, metavar="ARM", help="The arm whose speedup is shown; may be the baseline (A/A).")
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="ARM=PATH",
    help="Interpreter that runs this arm, with its own torch; cake-kernels must be installed there. ARM may also be"
    " baseline or new. May be given again.",
)
@click.option(
    "--rounds", type=click.IntRange(2, 100), default=32, show_default=True, help="Rounds; half load each arm first."
)
@click.option(
    "--iterations", type=click.IntRange(min=1), default=40, show_default=True, help="Timed calls a cell, arm and round."
)
@click.option(
    "--mode", "modes", multiple=True, type=click.Choice(MODES), help="Launch mode; may be given again. Default: both."
)
@click.option("--ranks", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes a round; torchrun.")
@click.option(
    "--order",
    type=click.Choice(["halves", "abba"]),
    default="halves",
    show_default=True,
    help="halves: half of the rounds the baseline first, then half the new; abba: in blocks of four, by the seed.",
)
@click.option(
    "--isolate",
    type=click.Choice(["process", "session"]),
    default="process",
    show_default=True,
    help="process: fresh processes every round; session: the same processes load everything anew.",
)
@click.option(
    "--round-limit",
    callback=duration_ns,
    default="10m",
    show_default=True,
    metavar="10m",
    help="A round that takes longer has failed, and its processes are ended.",
)
@click.option(
    "--max-failures",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Stop after so many failed rounds; --resume goes on.",
)
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Where to measure. Default: cuda where torch sees one."
)
@click.option("--timer", metavar="NAME", help="Timer; cake-bench list names them. Default: cupti on a GPU, else cpu.")
@click.option("--allow-busy", is_flag=True, help="Measure although another process computes on the GPU.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    default=0,
    show_default=True,
    help="Seed of the inputs and of the order abba.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help=f"Folder of the file. Default: {DEFAULT_FOLDER}."
)
@click.option("--run-id", metavar="ID", help="Name of the file. Default: time and suite.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Go on with a file of rounds: the same command without --out and --run-id plays those missing or failed.",
)
@click.option(
    "--revision", "named_revision", metavar="REV", help="Revision of the measured tree, where git cannot tell it."
)
def run(
    chosen: Selection,
    baseline: str,
    new: str,
    pythons: tuple[str, ...],
    rounds: int,
    iterations: int,
    modes: tuple[Mode, ...],
    ranks: int,
    order: Order,
    isolate: Isolation,
    round_limit: int,
    max_failures: int,
    device: Literal["cuda", "cpu"] | None,
    timer: str | None,
    allow_busy: bool,
    seed: int,
    out: Path | None,
    run_id: str | None,
    resume: Path | None,
    named_revision: str | None,
) -> int:
    """Measure two arms round by round and write a file after each round.

    Each arm's output is checked against an FP64 reference before and after it is timed; a wrong arm has no time.

    \b
    Examples:
      cake-bench rounds run --suite smoke --op fwd --baseline cublas_loop --new torch_grouped_mm
      cake-bench rounds run --suite smoke --baseline cublas_loop --new cublas_loop --ranks 2 --order abba

    \b
    Exit codes:
      0    measured
      2    usage, or an internal error
      3    nothing measured
      5    a round failed, or an arm failed its check
      130  Ctrl-C, SIGTERM or SIGHUP; the rounds that are done are saved
    """
    chosen.refuse_other_than(ROWS, "rounds run, which takes --baseline and --new")
    if resume and (out or run_id):
        raise UsageError(f"--resume goes on with {resume}; leave out {'--out' if out else '--run-id'}")
    if rounds % 2:
        raise UsageError(f"--rounds must be even, half for each load order, got {rounds}")
    cases, _ = select_cases(read_shapes(chosen.shapes_file), chosen)
    interpreters = _interpreters(pythons, {"baseline": baseline, "new": new})
    for role, arm in (("baseline", baseline), ("new", new)):
        if role not in interpreters:
            arm_files.load(arm)
    on: Literal["cuda", "cpu"] = device or ("cuda" if "cuda" in devices.names() else "cpu")
    if on not in devices.names() and len(interpreters) < len(ROLES):
        raise UsageError(f"--device {on} cannot be used: torch sees no CUDA device; here: cpu")
    spec = timer or DEFAULT_TIMER[on]
    plan = Plan(
        baseline=Side(arm=baseline, own_python="baseline" in interpreters),
        new=Side(arm=new, own_python="new" in interpreters),
        cases=cases,
        modes=tuple(dict.fromkeys(modes)) or MODES,
        rounds=rounds,
        iterations=iterations,
        ranks=ranks,
        order=order,
        isolate=isolate,
        device=on,
        timer=spec.partition(":")[0],
        seed=seed,
        round_limit_ns=round_limit,
    )
    setting = Setting(
        timer=spec,
        pythons={role: interpreters.get(role, sys.executable) for role in ROLES},
        environment=os.environ,
        allow_busy=allow_busy,
    )
    check(plan, setting)
    begun = _new_run(plan, run_id, named_revision)
    path = resume or (out or DEFAULT_FOLDER) / f"{begun.run_id}.json"
    if resume is None and path.exists():
        raise UsageError(f"{path} exists; choose another --run-id, or go on with it by --resume {path}")
    going_on = _resumed(file.load(resume), begun) if resume else begun
    with ended_as_by_ctrl_c():
        done = _play(going_on, setting, path, max_failures)
    click.echo(f"{path}: {len(done.done)} of {rounds} rounds measured\ntable: cake-bench rounds report {path}")
    return exit_code(summarise(done))


def _interpreters(pythons: Sequence[str], arms: Mapping[Role, str]) -> dict[Role, str]:
    """Return the interpreter of each role that has one of its own."""
    found: dict[Role, str] = {}
    for spec in pythons:
        name, equals, path = spec.partition("=")
        roles = [role for role in ROLES if name in (role, arms[role])]
        if not equals or not path:
            raise UsageError(f"--python must be ARM=PATH, got {spec!r}")
        if len(roles) != 1:
            which = "neither arm" if not roles else "both arms"
            raise UsageError(f"--python {spec}: {name!r} is {which} of {arms['baseline']}, {arms['new']}; say new=PATH")
        if roles[0] in found:
            raise UsageError(f"--python names {roles[0]} twice; name each once")
        found[roles[0]] = path
    return found


def _new_run(plan: Plan, run_id: str | None, named_revision: str | None) -> RoundsRun:
    now = datetime.now(UTC)
    suites = "+".join(dict.fromkeys(case.suite for case in plan.cases))
    kernels = current(revision(named_revision, top=TOP))
    try:
        return RoundsRun(
            schema_version=SCHEMA_VERSION,
            method_version=METHOD_VERSION,
            run_id=run_id or f"{now:%Y%m%dT%H%M%SZ}-rounds-{suites}-{secrets.token_hex(2)}",
            started=f"{now:%Y-%m-%dT%H:%M:%SZ}",
            revision=kernels.revision,
            sources_sha256=kernels.sha256,
            plan=plan,
            machines=(),
            rounds=(),
        )
    except ValidationError as error:
        raise UsageError(f"this run cannot be recorded: {violations(error)[0].text}") from error


def _resumed(old: RoundsRun, begun: RoundsRun) -> RoundsRun:
    """Return ``old`` after asking that it is the run that this command would have begun, be it with another limit."""
    for name in Plan.model_fields:
        if name == "round_limit_ns":  # whoever goes on after a hang may want a longer one
            continue
        if getattr(old.plan, name) != getattr(begun.plan, name):
            raise UsageError(
                f"--resume: {name} of run {old.run_id} differs from this command's; give the command that began it"
            )
    for name in ("revision", "sources_sha256"):
        if getattr(old, name) != getattr(begun, name):
            raise UsageError(
                f"--resume: {name} of run {old.run_id} is {getattr(old, name)}, here it is {getattr(begun, name)};"
                " run anew"
            )
    return old.model_copy(update={"plan": begun.plan})


def _play(run: RoundsRun, setting: Setting, path: Path, max_failures: int) -> RoundsRun:
    missing = [index for index in range(run.plan.rounds) if index not in run.done]
    file.save(run, path)
    failures = 0
    try:
        with closing(play(run.plan, setting, missing)) as attempts:
            for played in attempts:
                run = _with(run, played)
                file.save(run, path)
                _say(run, played)
                failures += bool(played.failure)
                if failures == max_failures:
                    click.echo(f"stopped after {failures} failed rounds; {how_to_go_on(path)}", err=True)
                    break
    except KeyboardInterrupt:
        click.echo(f"the rounds that are done are saved; {how_to_go_on(path)}", err=True)
        raise
    return run


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, which would end this process alone, end the block as Ctrl-C does.

    The first one counts: what is then cleared away is not interrupted by another. One that is ignored (nohup) stays so.
    """
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        for number in heard:
            signal.signal(number, interrupt)
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def _with(run: RoundsRun, played: Played) -> RoundsRun:
    """Return ``run`` with one attempt more; a machine that is new in it is added."""
    machines = list(run.machines)
    for _, report in played.reports:
        if report.machine not in machines:
            machines.append(report.machine)
    attempt = Round(
        index=played.index,
        first=played.first,
        failure=played.failure,
        failed_ranks=played.failed_ranks,
        reports=tuple(
            RankReport(rank=rank, machine=machines.index(report.machine), timings=report.timings)
            for rank, report in played.reports
        ),
    )
    return run.model_copy(update={"machines": tuple(machines), "rounds": (*run.rounds, attempt)})


def _say(run: RoundsRun, played: Played) -> None:
    head = f"{len(run.done)}/{run.plan.rounds} round {played.index}, {played.first} first"
    if not played.failure:
        click.echo(f"{head}: measured", err=True)
        return
    click.echo(f"{head}: failed: {played.failure}", err=True)
    if played.said:
        click.echo(f"  its processes' last line: {played.said}", err=True)
