"""The non-deterministic variant of another revision of our kernels."""

from __future__ import annotations

from harness.arms._previous import PreviousArm
from harness.model.run import ArmInfo

ARM = PreviousArm(
    info=ArmInfo(
        name="previous_nondet",
        key="",
        is_cake=True,
        note="non-deterministic; offs on the device, output preallocated, a step's allocated",
    ),
    variant="nondet",
)
