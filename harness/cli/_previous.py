"""``--previous`` and ``--only-affected``: another revision of our kernels, its arms, the rows in which it differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from harness import previous as revisions
from harness.arms import Arm
from harness.arms._cake import CakeArm
from harness.arms._previous import PreviousArm
from harness.cli._affected import Compared, compare
from harness.errors import UsageError
from harness.kernels import Kernels
from harness.model.case import Case
from harness.model.run import Previous, row_key
from harness.protocols.regimes import Regime

Command = TypeVar("Command", bound=Callable[..., Any])


def previous_options(command: Command) -> Command:
    """Add the two options."""
    option = click.option(
        "--only-affected",
        is_flag=True,
        help="Only rows that run another program than --previous does; of each operation the smallest of the others"
        " stays as a control.",
    )
    command = option(command)
    return click.option(
        "--previous",
        metavar="PATH|REV",
        help="Another revision of cake_kernels for the arms previous_det and previous_nondet: a folder that holds"
        " cake_kernels/ (make previous REV=COMMIT makes one), or a revision that git knows.",
    )(command)


def open_previous(given: str | None, arms: Sequence[Arm], *, only_affected: bool, top: Path) -> Kernels | None:
    """Return the revision that ``--previous`` names, open as long as the command runs; None where it is not given.

    Raises
    ------
    UsageError
        An arm needs the option and it is missing, nothing needs it and it is given, or there is no such revision.
    """
    needing = [arm.info.name for arm in arms if isinstance(arm, PreviousArm)]
    if given is None:
        if needing:
            raise UsageError(
                f"--arm {needing[0]} measures another revision; name it by --previous PATH or --previous REV"
            )
        if only_affected:
            raise UsageError(
                "--only-affected compares with another revision; name it by --previous PATH or --previous REV"
            )
        return None
    if not needing:
        raise UsageError(
            "--previous is for the arms previous_det and previous_nondet, and none is among --arm; add one"
        )
    return click.get_current_context().with_resource(revisions.opened(given, top=top))


def with_kernels(arms: Sequence[Arm], kernels: Kernels | None) -> tuple[Arm, ...]:
    """Return the arms, those of another revision with that revision."""
    return tuple(arm.of(kernels) if kernels and isinstance(arm, PreviousArm) else arm for arm in arms)


def compare_sides(
    cases: Sequence[Case], arms: Sequence[Arm], arch: str, current: Kernels, previous: Kernels
) -> Compared:
    """Return which rows are affected, in the variants that the arms of ours have."""
    variants = sorted({arm.variant for arm in arms if isinstance(arm, CakeArm | PreviousArm)})
    return compare(cases, variants, arch, current, previous)


def recorded(compared: Compared, cases: Sequence[Case], regimes: Sequence[Regime]) -> Previous:
    """Return what the run file says of the other revision."""
    controls = [case for case in cases if case in compared.controls]
    return Previous(
        revision=compared.previous.revision,
        sources_sha256=compared.previous.sha256,
        controls=tuple(row_key(regime.name, case) for case in controls for regime in regimes),
    )
