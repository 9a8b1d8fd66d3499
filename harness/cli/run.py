"""``cake-bench run``: read shapes, make cases, choose arms, measure, save, say what happened."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from harness import devices, runfile
from harness.arms import Arm
from harness.cli._affected import keep_affected
from harness.cli._gate import exit_code, fail_below
from harness.cli._options import Selection, duration_ns, read_shapes, select_arms, select_cases, selection
from harness.cli._plan import print_plan
from harness.cli._previous import compare_sides, open_previous, previous_options, recorded, with_kernels
from harness.cli._progress import RowProgress, how_to_go_on
from harness.cli._rates import with_rates
from harness.cli._session import arm_infos, open_session, select_regimes, select_twin
from harness.errors import ExitCode, UsageError
from harness.kernels import Kernels, current
from harness.machine import read_machine
from harness.model.case import Case
from harness.model.cost import Cost, cost, with_rows
from harness.model.machine import Machine
from harness.model.run import Previous, Row, Run, Sitting, SuiteCount, row_key
from harness.pages.summary import summarise
from harness.profile import RANGE, profile_call
from harness.protocols.regimes import Regime
from harness.revision import revision
from harness.runner import Bench, measure_case

DEFAULT_FOLDER = Path("reports")
TOP = Path(__file__).resolve().parents[2]


@click.command()
@selection
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Where to measure. Default: cuda where torch sees one."
)
@click.option("--timer", metavar="NAME", help="Timer; cake-bench list names them. Default: cupti on a GPU, else cpu.")
@click.option(
    "--regime",
    "regimes",
    metavar="REGIME[,REGIME]",
    help="boost: single calls after an idle gap; sustained: blocks of back-to-back calls. Default: both on a GPU, else"
    " boost. For studies of the method: rotation, sustained:SECONDS.",
)
@click.option(
    "--aa", metavar="ARM", help="The arm that runs twice, as an A/A pair; off: none. Default: the first, on a GPU."
)
@click.option(
    "--floors",
    is_flag=True,
    help="First measure how fast the machine reads memory and multiplies dense matrices, so that the report has each"
    " row's floor.",
)
@click.option("--allow-busy", is_flag=True, help="Measure although another process computes on the GPU.")
@click.option(
    "--groups",
    type=click.IntRange(min=1),
    default=6,
    show_default=True,
    help="Paired groups a row, at least; raised until the arms' order balances.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the inputs.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Folder of the run file. Default: {DEFAULT_FOLDER}.",
)
@click.option("--run-id", metavar="ID", help="Name of the run file. Default: time and suite.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Go on with a run file: the same command without --out and --run-id measures the rows that are missing.",
)
@click.option(
    "--time-limit",
    callback=duration_ns,
    metavar="9m",
    help="Stop after the row in which this time is over; --resume goes on.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan with an estimate of time and memory; measure nothing.")
@click.option(
    "--profile",
    is_flag=True,
    help="One call of one arm of one row in an NVTX range, for ncu and nsys; measure nothing.",
)
@click.option(
    "--revision", "named_revision", metavar="REV", help="Revision of the measured tree, where git cannot tell it."
)
@previous_options
@fail_below
def command(
    chosen: Selection,
    device: str | None,
    timer: str | None,
    regimes: str | None,
    aa: str | None,
    floors: bool,
    allow_busy: bool,
    groups: int,
    seed: int,
    out: Path | None,
    run_id: str | None,
    resume: Path | None,
    time_limit: int | None,
    dry_run: bool,
    profile: bool,
    named_revision: str | None,
    previous: str | None,
    only_affected: bool,
    fail_below: float | None,
) -> int:
    """Measure rows and write a run file after each.

    Every arm's output is checked against an FP64 reference before and after it is timed; a wrong arm has no time.

    \b
    Examples:
      cake-bench run --suite smoke
      cake-bench run --suite moe-training --op dW --case '*E4*' --arm torch_grouped_mm,cublas_loop
      cake-bench run --shape E=8,M=4096,N=512,K=256,dist=lognormal:0.35 --op fwd --dry-run
      cake-bench run --suite smoke --op dW --case '*M777 bal' --arm cublas_loop --profile
      cake-bench run --suite moe-training --arm cake_det,previous_det --previous HEAD~1 --only-affected

    \b
    Exit codes:
      0    measured
      1    a geomean of SOTA / new is below --fail-below
      2    usage, or an internal error
      3    nothing measured, or no row is affected
      5    an arm failed its check, or a row failed
      130  Ctrl-C; the rows that are done are saved
    """
    if resume and (out or run_id):
        raise UsageError(f"--resume goes on with {resume}; leave out {'--out' if out else '--run-id'}")
    cases, counts = select_cases(read_shapes(chosen.shapes_file), chosen)
    arms = select_arms(chosen.arms, previous=previous is not None)
    other = open_previous(previous, arms, only_affected=only_affected, top=TOP)
    arms = with_kernels(arms, other)
    if profile:
        others = {"--only-affected": only_affected, "--floors": floors, "--dry-run": dry_run, "--resume": resume}
        for option, given in others.items():
            if given:
                raise UsageError(f"{option} does not apply to --profile; leave it out")
        _profile(cases, arms, device, seed)
        return ExitCode.OK
    session, timer_spec = open_session(device, timer, groups=groups, allow_busy=allow_busy)
    machine = session.device.machine
    bench = Bench(arms=arms, session=session, seed=seed, twins=select_twin(aa, arms, machine.device))
    in_regimes = select_regimes(regimes, machine.device)
    kernels = current(revision(named_revision, top=TOP))
    compared = compare_sides(cases, arms, machine.arch, kernels, other) if other else None
    if compared and only_affected:
        of, cases = len(cases), keep_affected(cases, compared)
        controls = len(cases) - len(compared.affected)
        click.echo(f"--only-affected: {len(compared.affected)} of {of} rows, and {controls} as controls", err=True)
    if dry_run:
        print_plan(cases, bench, in_regimes, timer_spec, controls=compared.controls if compared else ())
        return ExitCode.OK
    beside = recorded(compared, cases, in_regimes) if compared else None
    plan = _new_run(cases, counts, bench, in_regimes, timer_spec, kernels, beside, run_id)
    path = resume or (out or DEFAULT_FOLDER) / f"{plan.run_id}.json"
    if resume is None and path.exists():
        raise UsageError(f"{path} exists; choose another --run-id, or go on with it by --resume {path}")
    run = _resumed(runfile.load(resume), plan, cases, machine, floors=floors) if resume else plan
    run = with_rates(run, bench) if floors else run
    earlier = len(run.sittings)
    run, stopped = _measure(run, cases, bench, in_regimes, path, time_limit)
    click.echo(took(cost(with_rows(run)[earlier:])), err=True)
    click.echo(_closing(run, path, stopped))
    return exit_code([run], summarise([run]), fail_below)


def _profile(cases: Sequence[Case], arms: Sequence[Arm], device: str | None, seed: int) -> None:
    if len(cases) != 1 or len(arms) != 1:
        raise UsageError(f"--profile takes one row and one arm, got {len(cases)} and {len(arms)}; use --case and --arm")
    if (device or devices.names()[0]) != "cuda":
        raise UsageError("--profile is for ncu and nsys, which need a CUDA device; torch sees none here")
    import torch

    profile_call(
        cases[0],
        arms[0],
        machine=read_machine("cuda"),
        device=torch.device("cuda", torch.cuda.current_device()),
        seed=seed,
        nvtx_range=torch.cuda.nvtx.range,
        wait=torch.cuda.synchronize,
    )
    click.echo(f"one call of {arms[0].info.name} on {cases[0].case_id!r}, in the NVTX range {RANGE!r}")


def _new_run(
    cases: Sequence[Case],
    counts: tuple[SuiteCount, ...],
    bench: Bench,
    regimes: Sequence[Regime],
    timer: str,
    kernels: Kernels,
    previous: Previous | None,
    run_id: str | None,
) -> Run:
    now = datetime.now(UTC)
    suites = "+".join(dict.fromkeys(case.suite for case in cases))
    return Run(
        run_id=run_id or f"{now:%Y%m%dT%H%M%SZ}-{suites}-{secrets.token_hex(2)}",
        started=_utc(now),
        revision=kernels.revision,
        timer=timer.partition(":")[0],
        heading=bench.session.timer.heading,
        protocol="paired_groups",
        regimes=tuple(regime.name for regime in regimes),
        groups=bench.session.groups,
        seed=bench.seed,
        arms=arm_infos(bench.arms, dict(bench.twins)),
        machines=(bench.session.device.machine,),
        planned=tuple(row_key(regime.name, case) for case in cases for regime in regimes),
        suite_counts=counts,
        sources_sha256=kernels.sha256,
        previous=previous,
    )


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _resumed(old: Run, plan: Run, cases: Sequence[Case], machine: Machine, *, floors: bool) -> Run:
    """Return ``old`` ready to go on, after asking that it is the run that ``plan`` would be."""
    same = (
        "method_version",
        "timer",
        "heading",
        "protocol",
        "regimes",
        "groups",
        "seed",
        "arms",
        "planned",
        "suite_counts",
        "previous",
    )
    for name in same:
        if getattr(old, name) != getattr(plan, name):
            raise UsageError(
                f"--resume: {name} of run {old.run_id} differs from this command's; give the command that began it"
            )
    if bool(old.rates) != floors:
        raise UsageError(f"--resume: run {old.run_id} began {'without' if floors else 'with'} --floors; go on likewise")
    if old.revision != plan.revision:
        raise UsageError(
            f"--resume: run {old.run_id} measures revision {old.revision}, this tree is {plan.revision}; run anew"
        )
    if old.sources_sha256 != plan.sources_sha256:
        raise UsageError(f"--resume: cake_kernels has changed since run {old.run_id} began; run anew")
    for row in old.rows:
        if row.case not in cases:
            raise UsageError(f"--resume: sizes or source of {row.case.case_id!r} differ from those measured; run anew")
    return old if machine in old.machines else replace(old, machines=(*old.machines, machine))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why a run ended before its last row."""

    reason: str
    device_lost: bool = False


def _measure(
    run: Run, cases: Sequence[Case], bench: Bench, regimes: Sequence[Regime], path: Path, time_limit: int | None
) -> tuple[Run, Stop | None]:
    done = {row_key(row.regime, row.case) for row in run.rows}
    missing = {case: [r for r in regimes if row_key(r.name, case) not in done] for case in cases}
    left = [(case, in_regimes) for case, in_regimes in missing.items() if in_regimes]
    machine = run.machines.index(bench.session.device.machine)
    earlier, before, started, start = run.sittings, len(run.rows), _utc(datetime.now(UTC)), time.monotonic_ns()
    runfile.save(run, path)
    with _saved(path), RowProgress(len(left), Console(stderr=True), time.monotonic_ns) as progress:
        for index, (case, in_regimes) in enumerate(left):
            progress.begin(case.case_id)
            measured = measure_case(case, in_regimes, bench, machine=machine)
            rows = (*run.rows, *measured.rows)
            sitting = Sitting(started=started, elapsed_ns=time.monotonic_ns() - start, rows=len(rows) - before)
            run = replace(run, rows=rows, sittings=(*earlier, sitting))
            runfile.save(run, path)
            progress.end(case.case_id, measured.rows)
            if measured.device_lost:
                return run, Stop(reason=f"the device is lost ({measured.device_lost})", device_lost=True)
            if time_limit is not None and time.monotonic_ns() - start >= time_limit and index + 1 < len(left):
                return run, Stop(reason="--time-limit is over")
    return run, None


@contextmanager
def _saved(path: Path) -> Iterator[None]:
    """Say on Ctrl-C where the rows that are done lie."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"the rows that are done are saved; {how_to_go_on(path)}", err=True)
        raise


def _closing(run: Run, path: Path, stopped: Stop | None) -> str:
    timed = sum(bool(len(row.samples)) for row in run.rows)
    failed = sum(_failed(row) for row in run.rows)
    skipped = sum(bool(row.skipped) for row in run.rows)
    lines = [
        f"{path}: {timed} of {len(run.planned)} rows measured, {failed} with a failed arm, {skipped} skipped",
        f"table: cake-bench report {path}",
    ]
    if stopped:
        lines.insert(1, f"stopped after {len(run.rows)} rows: {stopped.reason}; {how_to_go_on(path)}")
    return "\n".join(lines)


def took(of: Cost) -> str:
    """Return how long the rows took, and the share of it in calls that count: busy time, where the timer sees it."""
    seconds = f"took {of.elapsed_ns / 1e9:.0f} s"
    if of.busy:
        return f"{seconds}; the GPU was busy with calls that count {of.share:.0%} of it"
    return f"{seconds}, {of.share:.0%} of it in calls that count"


def _failed(row: Row) -> bool:
    return any(outcome.status == "failed" for outcome in row.arms.values())
