"""Clocks and energy are readable: the probe kernel's clock is the driver's, and the energy counter advances."""

from __future__ import annotations

from statistics import mean

from harness.doctor.finding import Finding, held
from harness.doctor.load import Load

ADVICE = "do not read cycles or joules of this machine; times are not concerned"

TOLERANCE = 0.05
"""The driver's clock is a momentary one, in steps of 15 MHz."""


def judge(load: Load) -> Finding:
    """Compare the probe's clock with the driver's under a light load, and ask that energy was counted under a full one.

    Under a full load the two are shown and not compared: held down by the power cap, an H200's driver says 5 to 10 %
    more than cycles over time, which is what the probe counts and what kernels run on.
    """
    light_mhz = mean(state.clock_mhz for state in load.light_states)
    full_mhz = mean(state.clock_mhz for state in load.states)
    watts = load.energy_mj / 1e3 / (load.duration_ns / 1e9)
    nvml_watts = mean(state.power_w for state in load.states)
    energy = f"energy counter +{load.energy_mj / 1e3:.0f} J = {watts:.0f} W (NVML says {nvml_watts:.0f} W)"
    full = f"under full load {_mhz(load.probe_mhz)}, NVML {full_mhz:.0f} MHz"
    light = f"light load: probe {_mhz(load.light_probe_mhz)}, NVML {light_mhz:.0f} MHz"
    limit = f"clocks within {TOLERANCE:.0%} under a light load, energy above 0"
    said = f"{light}; {full}; {energy}"
    if load.light_probe_mhz is None or load.probe_mhz is None or not light_mhz or not full_mhz:
        return Finding(status=held(good=False), measured=said, limit=limit)
    agree = abs(load.light_probe_mhz / light_mhz - 1) <= TOLERANCE
    return Finding(status=held(good=agree and load.energy_mj > 0), measured=said, limit=limit)


def _mhz(clock: int | None) -> str:
    return "cannot tell" if clock is None else f"{clock} MHz"
