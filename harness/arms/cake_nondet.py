"""Our non-deterministic variant: the order of a sum may differ from run to run. ``cake_nondet@NAME``: see ``at``."""

from __future__ import annotations

from harness.arms._cake import CakeArm
from harness.arms._configured import ConfiguredArm
from harness.model.run import ArmInfo

ARM = CakeArm(
    info=ArmInfo(
        name="cake_nondet",
        key="",
        is_cake=True,
        note="cake_kernels, non-deterministic; offs on the device, output preallocated, a step's allocated",
    ),
    variant="nondet",
)


def at(name: str) -> ConfiguredArm:
    """Return the arm of the tail, ``cake_nondet@atomics``, or of one configuration that has it.

    Raises
    ------
    ArgumentError
        There is no such configuration or tail, or its results are repeatable.
    """
    return ConfiguredArm.named("nondet", name)
