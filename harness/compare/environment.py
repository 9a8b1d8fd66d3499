"""What two measurements must have in common to be comparable, and what differs between them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from harness.compare.comparison import Difference, Reason
from harness.model.machine import Machine
from harness.model.run import Run

UNKNOWN = "unknown"

ENVIRONMENT: tuple[str, ...] = (
    "product",
    "power-limit",
    "clock-policy",
    "ecc",
    "mig",
    "driver",
    "torch",
    "cuda",
    "cudnn",
)
"""Facts of the machine; rows that differ in one are not comparable for reason ``environment``."""

METHOD: tuple[str, ...] = ("method", "timer", "regime")
"""How numbers came about; rows that differ in one are not comparable for reason ``method``."""

ALLOWABLE = (*ENVIRONMENT, *METHOD)
"""What ``--allow`` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Where and how one side of a row was measured."""

    run: Run
    machine: Machine
    regime: str


def differences(base: Measured, head: Measured, *, allow: Collection[str]) -> tuple[Difference, ...]:
    """Return every fact in which the two differ, those that make them incomparable first.

    Another board of one product, another seed and other libraries are shown, and do not matter.
    """
    one, other = _facts(base), _facts(head)
    found = [(name, one.get(name, UNKNOWN), other.get(name, UNKNOWN)) for name in (*one, *(other.keys() - one.keys()))]
    differing = [
        Difference(
            field=name,
            base=ours,
            head=theirs,
            role="shown" if name not in ALLOWABLE else "allowed" if name in allow else "refused",
        )
        for name, ours, theirs in found
        if ours != theirs
    ]
    return tuple(sorted(differing, key=lambda difference: _rank(difference.field)))


def reason_of(refused: Collection[Difference]) -> Reason:
    """Return the reason code of rows that differ so: the machine's, where one of its facts is among them."""
    return "environment" if any(difference.field in ENVIRONMENT for difference in refused) else "method"


def said(refused: Collection[Difference]) -> str:
    """Return the differences in words: ``driver 570.1 → 580.2``."""
    return ", ".join(f"{difference.field} {difference.base} → {difference.head}" for difference in refused)


def _rank(field: str) -> tuple[int, str]:
    return (ALLOWABLE.index(field) if field in ALLOWABLE else len(ALLOWABLE), field)


def _facts(of: Measured) -> dict[str, str]:
    machine, run = of.machine, of.run
    settings, versions = dict(machine.settings), dict(machine.versions)
    facts = {
        "product": f"{machine.product} ({machine.arch})",
        "power-limit": settings.pop("power limit", UNKNOWN),
        "clock-policy": settings.pop("clocks", UNKNOWN),
        "ecc": settings.pop("ECC", UNKNOWN),
        "mig": settings.pop("MIG", UNKNOWN),
        **{name: versions.pop(name, UNKNOWN) for name in ("driver", "torch", "cuda", "cudnn")},
        "method": f"{run.protocol} {run.method_version}",
        "timer": run.timer,
        "regime": of.regime,
        "board": machine.board or UNKNOWN,
        "seed": str(run.seed),
    }
    return facts | settings | versions
