"""The floor: one arm against itself, by the protocol of runs. Nothing smaller than this is a difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness import arms, cases, shapes
from harness.doctor.finding import Check, Finding, Status, held
from harness.doctor.gpu import Gpu
from harness.model.case import Case
from harness.model.run import Row
from harness.paths import data
from harness.protocols.paired_groups import Session
from harness.protocols.regimes import regime
from harness.runner import Bench, MeasuredCase, measure_case
from harness.stats.median import median
from harness.stats.ratio import ratios

ADVICE = "find what disturbs the GPU or the host (heat, other work) before you believe a difference of this size"

SUITE = "moe-training"
CASE_IDS = ("fwd down E4 M112576 bal", "dW gate_up E4 M112576 bal")
ARM = "cublas_loop"
AGAIN = f"{ARM} again"

GROUPS = {"boost": 24, "sustained": 10}
"""More than a row of a run has: with six, the median of one row in twenty is off by the limit through chance."""

LIMITS = {"boost": 0.005, "sustained": 0.01}


@dataclass(frozen=True, slots=True, kw_only=True)
class AaRegime:
    """One regime of a row.

    Attributes
    ----------
    ratios
        Of each group: the arm's time over its own, once more.
    discarded
        Groups that were measured again.
    skipped, failure
        Why there are no ratios.
    """

    regime: str
    ratios: tuple[float, ...] = ()
    discarded: int = 0
    skipped: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AaFloor:
    """A row, one arm twice."""

    case: str
    arm: str
    regimes: tuple[AaRegime, ...]


def check(gpu: Gpu, case_id: str) -> Check[AaFloor]:
    """Return the check on one row."""
    return Check(name=f"A/A {case_id.split()[0]}", advice=ADVICE, read=lambda: read_floor(gpu, case_id), judge=judge)


def find_case(case_id: str) -> Case:
    """Return the row of the training suite."""
    (case,) = cases.select(cases.cases(shapes.load(data("shapes.yaml")), SUITE), case_globs=[case_id])
    return case


def read_floor(gpu: Gpu, case_id: str) -> AaFloor:
    """Measure the row in each regime as a run does, its checks included."""
    case, arm = find_case(case_id), arms.load(ARM)
    device, monitor, timer = gpu.stage().device, gpu.driver(), gpu.cupti().timer

    def measured(name: str) -> MeasuredCase:
        session = Session(timer=timer, device=device, groups=GROUPS[name], monitor=monitor)
        bench = Bench(arms=(arm,), session=session, seed=0, twins={ARM: AGAIN})
        return measure_case(case, [regime(name)], bench, machine=0)

    return read_pairs(case_id, measured)


def read_pairs(case_id: str, measured: Callable[[str], MeasuredCase]) -> AaFloor:
    """Return the ratios of what ``measured`` gives for each regime."""
    regimes = tuple(_pairs(name, measured(name).rows[0]) for name in GROUPS)
    return AaFloor(case=case_id, arm=ARM, regimes=regimes)


def _pairs(name: str, row: Row) -> AaRegime:
    discarded = len({(d.attempt, d.group) for d in row.discarded})
    if row.skipped:
        return AaRegime(regime=name, discarded=discarded, skipped=row.skipped)
    reasons = [f"{arm}: {outcome.reason}" for arm, outcome in row.arms.items() if outcome.reason]
    if reasons:
        return AaRegime(regime=name, discarded=discarded, failure="; ".join(reasons))
    first, second = (tuple(row.samples.span_ns[i] for _, i in row.samples.by_group(arm)) for arm in (ARM, AGAIN))
    return AaRegime(regime=name, ratios=ratios(first, second), discarded=discarded)


def judge(reading: AaFloor) -> Finding:
    """Hold each regime's median to its limit; a regime that the row is not measured in is a note."""
    off = [r for r in reading.regimes if r.failure or (r.ratios and abs(median(r.ratios) - 1) > LIMITS[r.regime])]
    status = Status.NOTE if any(r.skipped for r in reading.regimes) else Status.OK
    return Finding(
        status=held(good=False) if off else status,
        measured=f"{reading.case}, {reading.arm} twice: " + "; ".join(map(_said, reading.regimes)),
        limit=", ".join(f"{name} within {limit:.1%} of 1" for name, limit in LIMITS.items()),
    )


def _said(one: AaRegime) -> str:
    if one.failure or one.skipped:
        return f"{one.regime} {'failed' if one.failure else 'not measured'}: {one.failure or one.skipped}"
    again = f", {one.discarded} measured again" if one.discarded else ""
    span = f"[{min(one.ratios):.4f}, {max(one.ratios):.4f}]"
    return f"{one.regime} {median(one.ratios):.4f} {span} in {len(one.ratios)} groups{again}"
