"""The footer: every term that the page uses, explained once."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model.case import OPS
from harness.model.report import BEST_KNOWN, CLOCK_APART, Report
from harness.pages.markdown.escape import escape
from harness.pages.markdown.geomean_table import BUSY_APART
from harness.pages.markdown.numbers import NOTHING
from harness.pages.summary.roles import SOTA_ARMS

_OPS = {
    "fwd": "Y = X Wᵀ",
    "dX": "data gradient, dX = G W",
    "dW": "weight gradient, dW = Gᵀ X (`fp32` in a row's name: FP32 output, else BF16)",
    "ckpt": "forward and backward of one grouped GEMM in a checkpoint region, early stop off",
    "ckpt ES": "the same with early stop on",
}

_ROW_CLASSES = {
    "adhoc": "shapes given on the command line",
    "model": "sizes of published models",
    "owner": "balanced, descending and one-empty sizes",
    "smoke": "tiny shapes that show the tool works; their times say little",
    "unsorted": "ascending and random sizes",
}

_REGIMES = {
    "sustained": "the headline; in a group each arm runs a block of about 0.3 s of back-to-back calls, long enough for"
    " its own clock to settle under the power limit; its time is the median of the last two thirds of the block",
    "boost": "the arms' calls rotate one by one, each after an idle gap of about one call, so that the clock is the"
    " board's highest",
}


def terms(report: Report) -> tuple[str, ...]:
    """Return the footer's lines; only of operations, classes and regimes that the report has."""
    new = escape(report.new.name)
    keys = {arm.name: f" ({escape(arm.key)})" for arm in report.arms if arm.key}
    sota = ", ".join(f"{escape(arm)}{keys.get(arm, '')}" for arm in SOTA_ARMS if arm != report.new.name)
    lines = [
        f"**Ratio**: latency of the baseline / latency of new ({new}) within one paired group: above 1, new is faster."
        " A row's ratio is the median over its groups, with the [least, largest] group beside it.",
        "**Paired group**: every arm of the row has its turn once (a call, or a block of them), close together in time;"
        " the order changes from group to group, so that each arm has each place equally often.",
        "**Latency**: the span of one call, last end - first start of its work; the median over the groups, and of"
        " several machines of one model the median over them.",
        f"**SOTA**: in each row the fastest of {sota} that has a time; the letter after its latency says which.",
    ]
    if BEST_KNOWN in report.columns:
        lines.append("**best known**: in each row the fastest of all arms that are not ours.")
    lines += [
        "**Geomean**: geometric mean of the rows' ratios (lowest-highest row); *count* is how many rows are in it, of"
        " how many the suite has. Means and counts use unrounded ratios.",
        "**Chance**: if both were equally fast, all n groups of a row would lie above 1.0 once in 2^n rows, and below"
        " as often.",
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
    lines += _explained("Operations", [op for op in OPS if op in {row.case.op for row in report.rows}], _OPS)
    lines += _explained("Rows", sorted({row.case.shape.row_class for row in report.rows}), _ROW_CLASSES)
    lines += _explained("Regimes", dict.fromkeys(row.regime for row in report.rows), _REGIMES)
    lines.append(
        f"**{NOTHING}**: no number, for a reason given above; *failed*: the arm's output was wrong, or it raised."
    )
    return tuple(lines)


def _explained(title: str, names: Iterable[str], meanings: dict[str, str]) -> list[str]:
    """Return one line for those of ``names`` that have an explanation."""
    known = [f"*{name}*: {meanings[name]}" for name in names if name in meanings]
    return [f"**{title}**: {'; '.join(known)}."] if known else []
