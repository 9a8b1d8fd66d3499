"""The section "Measured floor": what each machine could do, and how far an operation's rows are from that."""

from __future__ import annotations

from statistics import median

from harness.model.report import SOTA, Environment, FloorStanding, Report, RunRates
from harness.model.run import Rate
from harness.pages.markdown import words
from harness.pages.markdown.escape import escape
from harness.pages.markdown.items import Item, bullets
from harness.pages.markdown.numbers import NOTHING, counted, four_digits, percent, speedup
from harness.pages.markdown.table import table

CLOSED = "distance to the floor closed"
"""What a column of closed shares is called."""


def floor_rates(report: Report) -> str:
    """Return the rates of each machine and run, a line each; empty where none were measured."""
    return bullets(
        Item(line=_rates(environment, of_run)) for environment in report.environments for of_run in environment.rates
    )


def floor_table(report: Report) -> str:
    """Return one line a device, regime, suite and operation; empty where no row has a floor."""
    if not report.floors:
        return ""
    new = escape(report.new.name)
    headers = {
        "device": "device",
        "regime": "regime",
        "suite": "suite",
        "op": "operation",
        "n": "n",
        "new": f"{new} / floor",
        "sota": f"{words.column(report, SOTA)} / floor",
        "closed": CLOSED,
        "below": f"rows below the floor: {new}, {words.column(report, SOTA)}",
    }
    for name in ("device", "regime", "suite"):
        if len({getattr(floor, name) for floor in report.floors}) == 1:
            del headers[name]
    cells = (_cells(floor) for floor in report.floors)
    return table(headers, [{name: line[name] for name in headers} for line in cells])


def without_floor(report: Report) -> str:
    """Return how many rows with a time have no floor, where a run measured rates; empty where all have one."""
    timed = [row for row in report.rows if any(figure.span_ns is not None for figure in row.figures)]
    count = sum(row.floor is None for row in timed)
    if not count or not any(environment.rates for environment in report.environments):
        return ""
    return f"Without a floor: {counted(count, 'row')}; a run that timed it measured no rates, or it does no work."


def _rates(environment: Environment, of_run: RunRates) -> str:
    machine, rates = environment.machine, of_run.rates
    board = f", board {escape(machine.board)}" if machine.board else ""
    return (
        f"{escape(machine.product)}{board}, run {escape(of_run.run_id)}:"
        f" plain read {_rate(rates.plain_read, 'TB/s')} of {rates.plain_read.amount / 2**30:.3g} GiB;"
        f" dense BF16 product {_rate(rates.dense_mm, 'TFLOP/s')} of {four_digits(rates.dense_mm.amount / 1e9)} GFLOP"
    )


def _rate(rate: Rate, unit: str) -> str:
    """Return ``4.312 TB/s [4.309, 4.314], n 8, 1935 MHz``: from the median span, the longest and the shortest."""
    spans, clocks = rate.samples.span_ns, [mhz for mhz in rate.samples.clock_mhz if mhz is not None]
    low, high = (four_digits(rate.amount / span_ns / 1e3) for span_ns in (max(spans), min(spans)))
    clock = f", {median(clocks):.0f} MHz" if clocks else ""
    return f"{four_digits(rate.per_s / 1e12)} {unit} [{low}, {high}] (n {len(spans)}{clock})"


def _cells(floor: FloorStanding) -> dict[str, str]:
    return {
        "device": escape(floor.device),
        "regime": escape(floor.regime),
        "suite": escape(floor.suite),
        "op": floor.op,
        "n": f"{floor.n} of {counted(floor.rows, 'row')}",
        "new": NOTHING if floor.new is None else speedup(floor.new),
        "sota": NOTHING if floor.sota is None else speedup(floor.sota),
        "closed": percent(floor.closed),
        "below": f"{_bold(floor.new_below)}, {_bold(floor.sota_below)}",
    }


def _bold(count: int) -> str:
    return f"**{count}**" if count else "0"
