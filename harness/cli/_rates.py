"""``--floors``: the rates of this machine, measured once a run before its rows."""

from __future__ import annotations

from dataclasses import replace

import click

from harness.model.run import Rates, Run
from harness.protocols.rates import measure_rates
from harness.runner import Bench


def with_rates(run: Run, bench: Bench) -> Run:
    """Return ``run`` with the rates of the machine that it goes on on; what it has of it already stands."""
    machine = run.machines.index(bench.session.device.machine)
    if run.rates_of(machine):
        return run
    rates = measure_rates(bench.session, machine=machine, seed=bench.seed)
    click.echo(said(rates), err=True)
    return replace(run, rates=(*run.rates, rates))


def said(rates: Rates) -> str:
    """Return both rates in a line."""
    read, dense = rates.plain_read.per_s / 1e12, rates.dense_mm.per_s / 1e12
    return f"plain read {read:.3g} TB/s, dense product {dense:.3g} TFLOP/s"
