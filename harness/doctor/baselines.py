"""Baselines are there, each with the versions of its libraries; missing ones and old ones are named."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from harness import arms
from harness.arms import Arm
from harness.doctor.finding import Check, Finding, Status
from harness.doctor.newest import AS_OF, NEWEST, is_old
from harness.doctor.once import Once
from harness.model.case import Case
from harness.model.machine import Machine

ADVICE = "mend the arm's file or its library: it fails to import"

DEFAULT_LIBRARY = "torch"

UNDER = {
    "torch": ("nvidia-cublas",),
    "nvidia-cudnn-frontend": ("nvidia-cudnn-cu13",),
    "quack-kernels": ("nvidia-cutlass-dsl",),
}
"""Distribution -> those under it that do the work, where they are distributions of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """An arm that is not ours.

    Attributes
    ----------
    libraries
        Distribution -> installed version.
    why_not
        Operation -> why the arm cannot do it on a row of the training suite; empty where it can.
    """

    arm: str
    libraries: dict[str, str]
    why_not: dict[str, str]


def check(name: str, machine: Once[Machine], rows: Once[tuple[Case, ...]]) -> Check[Baseline]:
    """Return the check of one arm."""
    return Check(
        name=f"baseline {name}",
        advice=ADVICE,
        read=lambda: read_baseline(arms.load(name), machine(), rows()),
        judge=judge,
    )


def read_baseline(arm: Arm, machine: Machine, rows: tuple[Case, ...]) -> Baseline:
    """Ask the arm about each row, and the installation for its libraries."""
    first = getattr(sys.modules[type(arm).__module__], "DISTRIBUTION", DEFAULT_LIBRARY)
    return Baseline(
        arm=arm.info.name,
        libraries={name: found for name in (first, *UNDER.get(first, ())) if (found := _installed(name))},
        why_not={row.op: arm.why_not(row, machine) or "" for row in rows},
    )


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def judge(reading: Baseline) -> Finding:
    """Note what cannot be done and what is old; neither makes a measured time wrong, and tables say both."""
    able = [op for op, reason in reading.why_not.items() if not reason]
    old = [name for name, found in reading.libraries.items() if is_old(name, found)]
    versions = ", ".join(_version(name, found) for name, found in reading.libraries.items())
    refused: dict[str, list[str]] = {}
    for op, reason in reading.why_not.items():
        if reason:
            refused.setdefault(reason, []).append(op)
    parts = [versions or "no library of it is installed"]
    if able:
        parts.append(f"does {', '.join(able)}")
    parts += [f"cannot do {', '.join(ops)}: {reason}" for reason, ops in refused.items()]
    return Finding(status=Status.NOTE if old or refused else Status.OK, measured="; ".join(parts))


def _version(name: str, found: str) -> str:
    return f"{name} {found}" + (f"; newer exists ({NEWEST[name]} on {AS_OF})" if is_old(name, found) else "")
