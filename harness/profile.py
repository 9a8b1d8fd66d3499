"""One call of one arm for a profiler: no flush, no timer, no tracer; an NVTX range says which kernels are its."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from harness.arms import Arm, refusal
from harness.correctness import check_arms
from harness.errors import UsageError
from harness.model.case import Case
from harness.model.machine import Machine
from harness.operands import make_operands

RANGE = "cake-bench call"
"""Name of the NVTX range around the call."""

Range = Callable[[str], AbstractContextManager[object]]
"""Opens an NVTX range."""


def profile_call(
    case: Case,
    arm: Arm,
    *,
    machine: Machine,
    device: torch.device,
    seed: int,
    nvtx_range: Range,
    wait: Callable[[], None],
) -> None:
    """Prepare and check the arm, then make one call within the range.

    Raises
    ------
    UsageError
        The arm cannot do the case, or is wrong: a profile of a wrong kernel is worth nothing.
    """
    name = arm.info.name
    if refused := refusal(arm, case, machine):
        raise UsageError(f"--profile: {name} cannot do {case.case_id!r}: {refused.reason}")
    operands = make_operands(case, seed=seed, device=device)
    with nvtx_range("cake-bench prepare"):
        prepared = arm.prepare(case, operands)
        verdict = check_arms(case, operands, {name: prepared}, seed=seed)[name]
    if verdict.failure:
        raise UsageError(f"--profile: {name} fails its check on {case.case_id!r}: {verdict.failure}")
    wait()
    with nvtx_range(RANGE):
        prepared.launch()
        wait()


def ncu_line(case: Case, arm: str, rows: Sequence[str]) -> str:
    """Return the command that profiles one call of ``arm`` on ``case`` with Nsight Compute, clocks left alone.

    Parameters
    ----------
    rows
        The options of ``cake-bench run`` that name the suite or the shape of the case.
    """
    run = ["cake-bench", "run", *rows, "--op", case.op, "--case", case.case_id, "--arm", arm, "--profile"]
    ncu = ["ncu", "--clock-control", "none", "--set", "full", "--nvtx", "--nvtx-include", f"{RANGE}/"]
    return shlex.join([*ncu, *run])
