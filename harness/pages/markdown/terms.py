"""The footer: every term that the page uses, explained once."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.model.case import OPS
from harness.model.figures import CLOCK_APART
from harness.model.report import BEST_KNOWN, PREVIOUS, PREVIOUS_OF, SOTA, SOTA_ARMS, Report
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.floors import CLOSED
from harness.pages.markdown.geomean_table import BUSY_APART
from harness.pages.markdown.numbers import NOTHING

_OPS = {
    "fwd": "Y = X Wᵀ",
    "dX": "data gradient, dX = G W",
    "dW": "weight gradient, dW = Gᵀ X (`fp32` in a row's name: FP32 output, else BF16)",
    "ckpt": "forward and backward of one grouped GEMM in a checkpoint region, early stop off",
    "ckpt ES": "forward and backward of one grouped GEMM in a checkpoint region, early stop on, torch's default",
}

_ROW_CLASSES = {
    "adhoc": "shapes given on the command line",
    "model": "sizes of published models",
    "owner": "balanced, descending and one-empty sizes",
    "smoke": "tiny shapes that show the tool works; their times say little",
    "unsorted": "ascending and random sizes",
}

_REGIMES = {
    "sustained": "the headline; in a group each arm runs a block of back-to-back calls, some tenths of a second, long"
    " enough for its own clock to settle under the power limit; its time is the median of the block's last two thirds",
    "boost": "the arms' calls rotate one by one, each after an idle gap of about one call, so that the clock is the"
    " board's highest",
    "rotation": "a study, no result: the arms' calls rotate one by one without an idle gap, so that under the power"
    " limit all share one clock, whatever each would have on its own",
}

_BLOCK_STUDY = re.compile(r"sustained:[\d.]+s?")


def terms(report: Report) -> tuple[str, ...]:
    """Return the footer's lines; only of operations, classes and regimes that the report has."""
    new = escape(report.new.name)
    lines = [
        f"**Ratio**: latency of the baseline / latency of new ({new}) within one paired group: above 1, new is faster."
        " A row's ratio is the median over its groups, with the [least, largest] group beside it.",
        "**Paired group**: every arm of the row has its turn once (a call, or a block of them), close together in time;"
        " the order changes from group to group, so that each arm has each place equally often.",
        "**Latency**: the span of one call, last end - first start of its work; the median over the groups, and of"
        " several machines of one model the median over them.",
        _sota(report),
    ]
    if BEST_KNOWN in report.columns:
        other = "" if report.new.is_cake else "other "
        best = words.column(report, BEST_KNOWN)
        lines.append(f"**{best}**: in each row the fastest of all {other}arms that are not ours.")
    if PREVIOUS in report.columns:
        lines.append(
            f"**{PREVIOUS}**: {escape(PREVIOUS_OF[report.new.name])}, the same variant of ours in another revision,"
            " loaded beside this one."
        )
    if any(row.control for row in report.rows):
        lines.append(
            f"**Control**: a row in which both revisions of ours run the same program, so that {PREVIOUS} / new shows"
            f" what is not the program's; it is in no geomean and no count of {PREVIOUS}."
        )
    lines += [
        "**Geomean**: geometric mean of the rows' ratios (lowest-highest row); *count* is how many rows are in it, of"
        " how many the suite has. Means and counts use unrounded ratios.",
        "**Spread**: (max - min) / median of a row's first six ratios; the effect it is held against is how much faster"
        " the faster side is, max(g, 1/g) - 1 of a geomean g.",
        "**Chance**: if both were equally fast, half of the rows would lie above 1.0, and all n groups of a row once in"
        " 2^n rows; below as often. The furthest row: each row's scatter around its own median, its signs drawn anew,"
        " the furthest of all rows in the mean of 1000 draws. Drift that groups share makes the true figures larger.",
        "**Host-bound**: in more than 10 % of an arm's span (the *gap*) none of its kernels ran; such a row is in no"
        " geomean.",
    ]
    if any(ratio.busy_median is not None for row in report.rows for ratio in row.ratios):
        lines.append(
            "**Busy**: the time within the span in which at least one kernel runs. A geomean of busy times stands"
            f" beside that of spans where they differ by more than {BUSY_APART:g}; a bar counts only if it holds on"
            " both."
        )
    if any(ratio.clock is not None for row in report.rows for ratio in row.ratios):
        lines.append(
            "**Cycles**: span x the SM clock while the call ran. Where in boost two arms' clocks differ by more than"
            f" {100 * CLOCK_APART:g} %, a verdict needs cycles to name the same arm as faster."
        )
    if report.floors:
        lines += _floors(report)
    if any(environment.costs for environment in report.environments):
        lines.append(
            "**Calls that count**: those behind the rows' times, by their busy time where the timer sees it; the rest"
            " of what a run took is flushes, idle gaps, checks, the settling third of each block, discarded groups, and"
            " the host, which makes inputs, and builds and tunes kernels."
        )
    lines += _explained("Operations", [op for op in OPS if op in {row.case.op for row in report.rows}], _OPS)
    lines += _explained("Rows", sorted({row.case.shape.row_class for row in report.rows}), _ROW_CLASSES)
    lines += _explained("Regimes", *_regimes(report))
    lines.append(
        f"**{NOTHING}**: no number, for a reason given above; *failed*: the arm's output was wrong, or it raised."
    )
    return tuple(lines)


def _sota(report: Report) -> str:
    keys = {arm.name: f" ({escape(arm.key)})" for arm in report.arms if arm.key}
    arms = ", ".join(f"{escape(arm)}{keys.get(arm, '')}" for arm in SOTA_ARMS if arm != report.new.name)
    name = words.column(report, SOTA)
    return f"**{name}**: in each row the fastest of {arms} that has a time; its column says which, by its letter."


def _floors(report: Report) -> list[str]:
    new, sota = escape(report.new.name), words.column(report, SOTA)
    return [
        "**Floor** (measured): the longer of two times: the row's bytes (each operand that is used read once, the"
        " output written once) at the rate of a plain read, and its FLOPs at the rate of a dense product, both measured"
        " in boost before the rows, on the same card. A row *below the floor* shows that a rate was too low for it.",
        f"**{CLOSED[:1].upper()}{CLOSED[1:]}**: ({sota} - {new}) / ({sota} - floor), latencies; of an operation"
        f" (S - N) / (S - 1), with N and S the geomeans of {new} / floor and {sota} / floor over the n rows in which"
        " both have a time and no arm is host-bound.",
    ]


def _regimes(report: Report) -> tuple[list[str], dict[str, str]]:
    """Return the regimes of the rows with their meanings; blocks of another length are one."""
    found = list(dict.fromkeys(row.regime for row in report.rows))
    studies = [regime for regime in found if _BLOCK_STUDY.fullmatch(regime)]
    if not studies:
        return found, _REGIMES
    names = ", ".join(escape(study) for study in studies)
    meaning = "a study, no result: as sustained, with blocks of that many seconds, however few calls fit"
    return [*(regime for regime in found if regime not in studies), names], {**_REGIMES, names: meaning}


def _explained(title: str, names: Iterable[str], meanings: dict[str, str]) -> list[str]:
    """Return one line for those of ``names`` that have an explanation."""
    known = [f"*{name}*: {meanings[name]}" for name in names if name in meanings]
    return [f"**{title}**: {'; '.join(known)}."] if known else []
