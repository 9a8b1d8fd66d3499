"""Our non-deterministic variant: the order of a sum may differ from run to run."""

from __future__ import annotations

from harness.arms._cake import CakeArm
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
