"""The deterministic variant of another revision of our kernels."""

from __future__ import annotations

from harness.arms._previous import PreviousArm
from harness.model.run import ArmInfo

ARM = PreviousArm(
    info=ArmInfo(
        name="previous_det",
        key="",
        is_cake=True,
        note="deterministic; offs on the device, output preallocated, a step's allocated",
    ),
    variant="det",
)
