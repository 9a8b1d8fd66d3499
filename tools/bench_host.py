"""What the harness itself costs on this machine's CPU: `make bench-host`.

Times whole processes of `cake-bench report` on a large run (200 rows, 4 arms, 8 groups, both regimes) and on one of the
usual size (100 rows, 3 arms, 6 groups, one regime), and, inside this process, saving and loading their files.
Each figure is printed as lowest, median and highest of five.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from harness import cases as case_rules
from harness import runfile, shapes
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo, ArmOutcome, Check, Row, Run, row_key
from harness.model.sample import Samples
from harness.orders import orders
from harness.paths import data

ARMS = ("cake_nondet", "torch_grouped_mm", "cublas_loop", "cudnn")
REGIMES = ("boost", "sustained")
REPEATS = 5


def made_run(run_id: str, arms: Sequence[str], regimes: tuple[str, ...], groups: int) -> Run:
    """Return a run of 100 rows of moe-heldout in each regime, with times that follow from the rows' FLOPs."""
    all_shapes = shapes.load(data("shapes.yaml"))
    cases = case_rules.cases(all_shapes, "moe-heldout")[:100]
    machine = Machine(
        device="cuda",
        product="NVIDIA H200",
        arch="sm_90a",
        units=132,
        cache_bytes=60 << 20,
        memory_bytes=140 << 30,
        peak_flops=1.07e15,
        peak_bytes_per_s=5.04e12,
        peak_source="made for bench-host",
    )
    return Run(
        run_id=run_id,
        started="2026-01-01T00:00:00Z",
        revision="unknown",
        timer="scripted",
        heading="made for bench-host: no measurement",
        protocol="paired_groups",
        regimes=regimes,
        groups=groups,
        seed=0,
        arms=tuple(
            ArmInfo(name=a, key=k, is_cake=a.startswith("cake"), note="")
            for a, k in zip(arms, ("", "t", "c", "d"), strict=False)
        ),
        machines=(machine,),
        planned=tuple(row_key(regime, case) for case in cases for regime in regimes),
        suite_counts=case_rules.suite_counts(all_shapes, "moe-heldout"),
        rows=tuple(_row(case, regime, arms, groups) for case in cases for regime in regimes),
    )


def _row(case: Case, regime: str, arms: Sequence[str], groups: int) -> Row:
    cells = [(g, p, arms[arm]) for g, order in enumerate(orders(len(arms), groups)) for p, arm in enumerate(order)]
    spans = [round(case.flops / 7e5) + 1009 * index for index in range(len(cells))]
    outcome = ArmOutcome(status="measured", check=Check(rel_l2=0.0017, rel_l2_limit=0.0023, worst=0.9))
    samples = Samples(
        group=tuple(g for g, _, _ in cells),
        position=tuple(p for _, p, _ in cells),
        arm=tuple(a for _, _, a in cells),
        span_ns=tuple(spans),
        busy_ns=tuple(spans),
        clock_mhz=(1500,) * len(cells),
        joules=(4.2,) * len(cells),
        calls=(1,) * len(cells),
    )
    return Row(case=case, machine=0, regime=regime, n_groups=groups, arms=dict.fromkeys(arms, outcome), samples=samples)


def timed(title: str, work: Callable[[], object]) -> None:
    """Print how long ``work`` takes."""
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    print(f"{title}: {min(seconds):.2f} / {median(seconds):.2f} / {max(seconds):.2f} s")


def main() -> None:
    """Print the table."""
    large = made_run("large", ARMS, REGIMES, 8)
    usual = made_run("usual", ARMS[:3], REGIMES[:1], 6)
    with tempfile.TemporaryDirectory() as folder:
        for run in (large, usual):
            path = Path(folder) / f"{run.run_id}.json"
            size = f"{len(run.rows)} rows, {len(run.arms)} arms, {run.groups} groups"
            print(f"{size}; lowest / median / highest of {REPEATS}")
            timed("save the run file", lambda r=run, p=path: runfile.save(replace(r), p))
            timed("load the run file", lambda p=path: runfile.load(p))
            for form in ("pr", "csv", "json"):
                words = ["report", "--format", form, "-o", f"{folder}/out", str(path)]
                command = [sys.executable, "-m", "harness", *words]
                timed(
                    f"cake-bench report --format {form}, the whole process",
                    lambda c=command: subprocess.run(c, check=True),
                )


if __name__ == "__main__":
    main()
