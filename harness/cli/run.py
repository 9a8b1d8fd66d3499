"""``cake-bench run``: read shapes, make cases, choose arms, measure, save, say what happened."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from harness import devices, runfile, timers
from harness.cli._options import duration_ns, read_shapes, select_arms, select_cases, selection
from harness.cli._plan import print_plan
from harness.cli._progress import RowProgress
from harness.errors import ExitCode, NothingMeasured, UsageError
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import Row, Run, SuiteCount, row_key
from harness.pages.summary import below, summarise
from harness.protocols import paired_groups
from harness.revision import revision
from harness.runner import Bench, measure_row

DEFAULT_TIMER = {"cpu": "cpu", "cuda": "cuda_event"}


@click.command()
@selection
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Where to measure. Default: cuda where torch sees one."
)
@click.option(
    "--timer", metavar="NAME", help="Timer; cake-bench list names them. Default: cuda_event on a GPU, else cpu."
)
@click.option(
    "--groups",
    type=click.IntRange(min=1),
    default=6,
    show_default=True,
    help="Paired groups a row, at least; raised until the arms' order balances.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the inputs.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reports"),
    show_default=True,
    help="Folder of the run file.",
)
@click.option("--run-id", metavar="ID", help="Name of the run file. Default: time and suite.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Go on with a run file: the same command, the rows that are missing.",
)
@click.option(
    "--time-limit",
    callback=duration_ns,
    metavar="9m",
    help="Stop after the row in which this time is over; --resume goes on.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan with an estimate of time and memory; measure nothing.")
@click.option(
    "--revision", "named_revision", metavar="REV", help="Revision of the measured tree, where git cannot tell it."
)
@click.option(
    "--fail-below",
    type=click.FloatRange(min=0, min_open=True),
    metavar="R",
    help="Exit with 1 if a geomean of SOTA / new is below R.",
)
def command(
    suites: tuple[str, ...],
    adhoc: tuple[str, ...],
    globs: tuple[str, ...],
    ops: str | None,
    arms: str | None,
    shapes_file: Path | None,
    device: str | None,
    timer: str | None,
    groups: int,
    seed: int,
    out: Path,
    run_id: str | None,
    resume: Path | None,
    time_limit: int | None,
    dry_run: bool,
    named_revision: str | None,
    fail_below: float | None,
) -> int:
    """Measure rows and write a run file after each.

    Every arm's output is checked against an FP64 reference before and after it is timed; a wrong arm has no time.

    \b
    Examples:
      cake-bench run --suite smoke
      cake-bench run --suite moe-training --op dW --case '*E4*' --arm torch_grouped_mm,cublas_loop
      cake-bench run --shape E=8,M=4096,N=512,K=256,dist=lognormal:0.35 --op fwd --dry-run

    \b
    Exit codes:
      0    measured
      1    a geomean of SOTA / new is below --fail-below
      2    usage, or an internal error
      3    nothing measured
      5    an arm failed its check, or a row failed
      130  Ctrl-C; the rows that are done are saved
    """
    cases, counts = select_cases(read_shapes(shapes_file), suites, adhoc, globs, ops)
    chosen = select_arms(arms)
    where = devices.open_device(device or devices.names()[0])
    timer_spec = timer or DEFAULT_TIMER[where.machine.device]
    bench = Bench(arms=chosen, device=where, timer=timers.open_timer(timer_spec, where), groups=groups, seed=seed)
    if dry_run:
        print_plan(cases, bench, timer_spec)
        return ExitCode.OK
    plan = _new_run(cases, counts, bench, timer_spec, _revision(named_revision), run_id)
    path = resume or out / f"{plan.run_id}.json"
    if resume is None and path.exists():
        raise UsageError(f"{path} exists; choose another --run-id, or go on with it by --resume {path}")
    run = _resumed(runfile.load(resume), plan, where.machine) if resume else plan
    run, stopped = _measure(run, cases, bench, path, time_limit)
    click.echo(_closing(run, path, stopped))
    return _exit_code(run, fail_below)


def _revision(named: str | None) -> str:
    return revision(named, top=Path(__file__).resolve().parents[2])


def _new_run(
    cases: Sequence[Case],
    counts: tuple[SuiteCount, ...],
    bench: Bench,
    timer: str,
    measured_revision: str,
    run_id: str | None,
) -> Run:
    now = datetime.now(UTC)
    suites = "+".join(dict.fromkeys(case.suite for case in cases))
    return Run(
        run_id=run_id or f"{now:%Y%m%dT%H%M%SZ}-{suites}-{secrets.token_hex(2)}",
        started=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        revision=measured_revision,
        timer=timer.partition(":")[0],
        protocol="paired_groups",
        regimes=paired_groups.REGIMES,
        groups=bench.groups,
        seed=bench.seed,
        arms=tuple(arm.info for arm in bench.arms),
        machines=(bench.device.machine,),
        planned=tuple(row_key(regime, case) for regime in paired_groups.REGIMES for case in cases),
        suite_counts=counts,
    )


def _resumed(old: Run, plan: Run, machine: Machine) -> Run:
    """Return ``old`` ready to go on, after asking that it is the run that ``plan`` would be."""
    same = ("method_version", "timer", "protocol", "regimes", "groups", "seed", "arms", "planned", "suite_counts")
    for name in same:
        if getattr(old, name) != getattr(plan, name):
            raise UsageError(
                f"--resume: {name} of run {old.run_id} differs from this command's; give the command that began it"
            )
    if old.revision != plan.revision:
        raise UsageError(
            f"--resume: run {old.run_id} measures revision {old.revision}, this tree is {plan.revision}; run anew"
        )
    return old if machine in old.machines else replace(old, machines=(*old.machines, machine))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why a run ended before its last row."""

    reason: str
    device_lost: bool = False


def _measure(
    run: Run, cases: Sequence[Case], bench: Bench, path: Path, time_limit: int | None
) -> tuple[Run, Stop | None]:
    done = {row_key(row.regime, row.case) for row in run.rows}
    left = [(regime, case) for regime in run.regimes for case in cases if row_key(regime, case) not in done]
    machine = run.machines.index(bench.device.machine)
    start = time.monotonic_ns()
    runfile.save(run, path)
    with RowProgress(len(left), Console(stderr=True), time.monotonic_ns) as progress:
        for index, (regime, case) in enumerate(left):
            progress.begin(case.case_id)
            measured = measure_row(case, regime, bench, machine=machine)
            run = replace(run, rows=(*run.rows, measured.row))
            runfile.save(run, path)
            progress.end(case.case_id, measured.row)
            if measured.device_lost:
                return run, Stop(reason=f"the device is lost ({measured.device_lost})", device_lost=True)
            if time_limit is not None and time.monotonic_ns() - start >= time_limit and index + 1 < len(left):
                return run, Stop(reason="--time-limit is over")
    return run, None


def _closing(run: Run, path: Path, stopped: Stop | None) -> str:
    timed = sum(bool(len(row.samples)) for row in run.rows)
    failed = sum(_failed(row) for row in run.rows)
    skipped = sum(bool(row.skipped) for row in run.rows)
    lines = [
        f"{path}: {timed} of {len(run.planned)} rows measured, {failed} with a failed arm, {skipped} skipped",
        f"table: cake-bench report {path}",
    ]
    if stopped:
        lines.insert(
            1, f"stopped after {len(run.rows)} rows: {stopped.reason}; go on with the same command and --resume {path}"
        )
    return "\n".join(lines)


def _failed(row: Row) -> bool:
    return any(outcome.status == "failed" for outcome in row.arms.values())


def _exit_code(run: Run, fail_below: float | None) -> int:
    measured = any(len(row.samples) for row in run.rows)
    if measured and fail_below is not None:
        low = below(summarise([run]), fail_below)
        if low:
            for geomean in low:
                click.echo(f"below {fail_below:g}: {geomean.op} {geomean.row_class} {geomean.value:.3f}", err=True)
            return ExitCode.BELOW
    if any(_failed(row) for row in run.rows):
        return ExitCode.FAILED_ROWS
    if not measured:
        raise NothingMeasured("nothing measured: " + _why_nothing(run))
    return ExitCode.OK


def _why_nothing(run: Run) -> str:
    reasons = [row.skipped for row in run.rows if row.skipped]
    reasons += [f"{name}: {outcome.reason}" for row in run.rows for name, outcome in row.arms.items()]
    return "; ".join(dict.fromkeys(reasons)) or "the run has no rows"
