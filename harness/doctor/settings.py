"""What the GPU is set to: power cap, clocks, ECC, MIG, MPS, persistence. Settings are named, never changed."""

from __future__ import annotations

from dataclasses import dataclass

from harness.doctor.finding import Check, Finding, Status
from harness.doctor.gpu import Gpu

ADVICE = "mend what the message names; the driver must answer for runs to record what the GPU is set to"

USUAL = {"persistence": "on", "ECC": "on", "MIG": "off", "MPS": "off", "clocks": "application clocks at maximum"}
"""As a data-centre GPU comes; another value makes another machine of it, and stands beside every result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Name -> value, as :meth:`harness.monitor.Nvml.settings` says it."""

    values: dict[str, str]


def check(gpu: Gpu) -> Check[Settings]:
    """Return the check."""
    return Check(name="GPU settings", advice=ADVICE, read=lambda: Settings(values=gpu.driver().settings()), judge=judge)


def judge(reading: Settings) -> Finding:
    """Note what is not as usual, or not known."""
    said = ", ".join(f"{name} {value}" for name, value in reading.values.items())
    unusual = [name for name, value in USUAL.items() if reading.values.get(name) != value]
    unusual += [name for name, value in reading.values.items() if name not in USUAL and value.startswith("unknown")]
    if not unusual:
        return Finding(status=Status.OK, measured=said)
    usual = ", ".join(f"{name} {USUAL[name]}" if name in USUAL else f"{name} known" for name in unusual)
    return Finding(status=Status.NOTE, measured=f"{said}; usual is {usual}")
