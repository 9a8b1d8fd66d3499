"""Clocks and energy are readable: the probe kernel's clock is the driver's, and the energy counter advances."""

from __future__ import annotations

from statistics import mean

from harness.doctor.finding import Finding, held
from harness.doctor.load import Load

ADVICE = "do not read cycles or joules of this machine; times are not concerned"

TOLERANCE = 0.05
"""The driver's clock is a momentary one in steps of 15 MHz, of which a mean of twenty stands for the second."""


def judge(load: Load) -> Finding:
    """Compare the probe's mean clock with the mean of the driver's, and ask that energy was counted."""
    nvml_mhz = mean(state.clock_mhz for state in load.states)
    watts = load.energy_mj / 1e3 / (load.duration_ns / 1e9)
    nvml_watts = mean(state.power_w for state in load.states)
    energy = f"energy counter +{load.energy_mj / 1e3:.0f} J = {watts:.0f} W (NVML says {nvml_watts:.0f} W)"
    limit = f"clocks within {TOLERANCE:.0%}, energy above 0"
    if load.probe_mhz is None:
        said = f"under load the probe cannot tell the clock, NVML says {nvml_mhz:.0f} MHz; {energy}"
        return Finding(status=held(good=False), measured=said, limit=limit)
    off = load.probe_mhz / nvml_mhz - 1 if nvml_mhz else float("inf")
    said = f"under load probe {load.probe_mhz} MHz, NVML {nvml_mhz:.0f} MHz ({off:+.1%}); {energy}"
    return Finding(status=held(good=abs(off) <= TOLERANCE and load.energy_mj > 0), measured=said, limit=limit)
