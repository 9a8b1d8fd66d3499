"""What the README shows is run as it stands."""

import re
from pathlib import Path

import torch

from harness.arms import Arm
from harness.correctness import check_arms
from harness.operands import make_operands
from tests.bench import machine, small_case

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_readmes_arm_is_right() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    space: dict[str, object] = {}
    exec(compile(source, "README.md", "exec"), space)
    arm = space["ARM"]
    case = small_case("fwd", sizes=(3, 0, 5, 1))
    operands = make_operands(case, seed=0, device=torch.device("cpu"))

    assert isinstance(arm, Arm)
    assert arm.why_not(case, machine()) is None
    assert arm.why_not(small_case("dW"), machine()) == "einsum is written for fwd only"
    assert check_arms(case, operands, {"einsum": arm.prepare(case, operands)}, seed=0)["einsum"].failure == ""
