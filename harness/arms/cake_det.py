"""Our deterministic variant: bitwise the same from run to run. ``cake_det@NAME``: see ``at``."""

from __future__ import annotations

from harness.arms._cake import CakeArm
from harness.arms._configured import ConfiguredArm
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


def at(name: str) -> ConfiguredArm:
    """Return the arm of one configuration, ``cake_det@128x256_c2x1_s3_b8_l16``, or of one tail, ``cake_det@plain``.

    Raises
    ------
    ArgumentError
        There is no such configuration or tail, or its results are not repeatable.
    """
    return ConfiguredArm.named("det", name)
