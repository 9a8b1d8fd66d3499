"""Our deterministic variant: bitwise the same from run to run."""

from __future__ import annotations

from harness.arms._cake import CakeArm
from harness.model.run import ArmInfo

ARM = CakeArm(
    info=ArmInfo(
        name="cake_det",
        key="",
        is_cake=True,
        note="cake_kernels, deterministic; offs on the device, output preallocated, a step's allocated",
    ),
    variant="det",
)
