"""A run of rounds -> its table: medians over rounds, exact tests, what the load order and the rounds' order did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.errors import ExitCode, NothingMeasured
from harness.model.case import Case
from harness.rounds.model import ROLES, Mode, Role, Round, RoundsRun, Timing
from harness.stats import Interval, hodges_lehmann_ratio, holm, mann_whitney_u, median, signed_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Medians:
    """Medians in ns over the ``n`` rounds that loaded one role first, or over all."""

    n: int
    baseline_ns: float | None
    new_ns: float | None

    @property
    def speedup(self) -> float | None:
        """Baseline / new: above 1, new is faster."""
        if self.baseline_ns is None or self.new_ns is None:
            return None
        return self.baseline_ns / self.new_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """Exact one-sided tests of "new is faster".

    Attributes
    ----------
    p, min_p
        Mann-Whitney U on the rounds' values, and the smallest p that it could have had.
    p_holm
        The same after Holm over the cells of the table.
    p_signed_rank, min_p_signed_rank
        Wilcoxon's signed rank of log(baseline / new) within each round.
    speedup
        Hodges-Lehmann ratio baseline / new over all pairs of rounds, with its distribution-free interval.
    superiority
        How often a round of new is faster than one of the baseline, over all pairs of rounds.
    """

    p: float
    min_p: float
    p_holm: float
    p_signed_rank: float
    min_p_signed_rank: float
    speedup: Interval
    superiority: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Autocorrelation:
    """Lag-1 autocorrelation of the rounds' values in the order in which they ran; None where there is none to tell."""

    baseline: float | None
    new: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A row of the table: a case in a launch mode.

    Attributes
    ----------
    all
        Over the rounds in which both arms have a value.
    by_order
        The role that was loaded first -> the medians of those rounds.
    reasons
        Why a round that has a result has no value here, each with how many rounds.
    """

    case: Case
    mode: Mode
    all: Medians
    by_order: Mapping[Role, Medians]
    tests: Tests | None
    autocorrelation: Autocorrelation
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What the pages are made of."""

    run: RoundsRun
    cells: tuple[Cell, ...]

    @property
    def failures(self) -> tuple[Round, ...]:
        """Every attempt that failed, those that a later one made good too."""
        return tuple(played for played in self.run.rounds if played.failure)


def summarise(run: RoundsRun) -> Table:
    """Return the table of ``run``; bitwise repeatable."""
    cells = [_cell(run, index, mode) for index in range(len(run.plan.cases)) for mode in run.plan.modes]
    tested = [cell.tests for cell in cells if cell.tests]
    adjusted = iter(holm([tests.p for tests in tested]))
    held = [replace(cell, tests=replace(cell.tests, p_holm=next(adjusted))) if cell.tests else cell for cell in cells]
    return Table(run=run, cells=tuple(held))


def exit_code(table: Table) -> ExitCode:
    """Return 5 where a round failed and was not made good, or an arm failed; else 0.

    Raises
    ------
    NothingMeasured
        No cell has a value.
    """
    run = table.run
    lost = {played.index for played in table.failures} - run.done
    failed = any(timing.status == "failed" for played in run.rounds for timing in _timings(played))
    if lost or failed:
        return ExitCode.FAILED_ROWS
    if not any(cell.all.n for cell in table.cells):
        reasons = dict.fromkeys(reason for cell in table.cells for reason in cell.reasons)
        raise NothingMeasured("nothing measured: " + ("; ".join(reasons) or "no round has run"))
    return ExitCode.OK


def round_value(timings: Sequence[Timing]) -> float | None:
    """Return an arm's value in a round, in ns: the largest over ranks of each rank's median over its iterations.

    None unless every rank has times.
    """
    if not timings or any(not timing.span_ns for timing in timings):
        return None
    return max(median(timing.span_ns) for timing in timings)


def lag1(values: Mapping[int, float]) -> float | None:
    """Return the lag-1 autocorrelation: sum of d_i d_(i+1) over neighbouring rounds / sum of d_i^2, d = x - mean.

    ``values`` are by the round's index; only rounds whose index follows are neighbours. None for fewer than three
    values, or where all are equal. Of n independent rounds it scatters by about 1 / sqrt(n) around -1 / n.
    The estimator is that of G. E. P. Box and G. M. Jenkins, *Time Series Analysis*.
    """
    if len(values) < 3:
        return None
    mean = math.fsum(values.values()) / len(values)
    off = {index: value - mean for index, value in values.items()}
    total = math.fsum(d * d for d in off.values())
    return math.fsum(d * off[i + 1] for i, d in off.items() if i + 1 in off) / total if total else None


def _timings(played: Round) -> list[Timing]:
    return [timing for report in played.reports for timing in report.timings]


def _cell(run: RoundsRun, case: int, mode: Mode) -> Cell:
    values: dict[Role, dict[int, float]] = {"baseline": {}, "new": {}}
    reasons: dict[str, int] = {}
    firsts: dict[int, Role] = {}
    for played in run.rounds:
        if played.failure:
            continue
        here = [t for t in _timings(played) if (t.case, t.mode) == (case, mode)]
        found = {role: round_value([t for t in here if t.role == role]) for role in ROLES}
        said = {f"{run.plan.side(t.role).arm} ({t.role}): {t.status}: {t.reason}" for t in here if t.reason}
        for reason in sorted(said):
            reasons[reason] = reasons.get(reason, 0) + 1
        for role, value in found.items():
            if value is not None and None not in found.values():
                values[role][played.index] = value
                firsts[played.index] = played.first
    ratios = {index: math.log(b / values["new"][index]) for index, b in values["baseline"].items()}
    return Cell(
        case=run.plan.cases[case],
        mode=mode,
        all=_medians(values, list(firsts)),
        by_order={role: _medians(values, [i for i, first in firsts.items() if first == role]) for role in ROLES},
        tests=_tests(list(values["baseline"].values()), list(values["new"].values()), list(ratios.values())),
        autocorrelation=Autocorrelation(baseline=lag1(values["baseline"]), new=lag1(values["new"]), ratio=lag1(ratios)),
        reasons=reasons,
    )


def _medians(values: Mapping[Role, Mapping[int, float]], indices: Sequence[int]) -> Medians:
    if not indices:
        return Medians(n=0, baseline_ns=None, new_ns=None)
    baseline, new = (median([values[role][index] for index in indices]) for role in ROLES)
    return Medians(n=len(indices), baseline_ns=baseline, new_ns=new)


def _tests(baseline: Sequence[float], new: Sequence[float], log_ratios: Sequence[float]) -> Tests | None:
    if not log_ratios:
        return None
    unpaired = mann_whitney_u(new, baseline, alternative="less")
    paired = signed_rank(log_ratios, alternative="greater")
    return Tests(
        p=unpaired.p_value,
        min_p=unpaired.min_p_value,
        p_holm=unpaired.p_value,
        p_signed_rank=paired.p_value,
        min_p_signed_rank=paired.min_p_value,
        speedup=hodges_lehmann_ratio(baseline, new),
        superiority=unpaired.superiority,
    )
