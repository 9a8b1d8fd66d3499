import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from harness.errors import UsageError
from harness.profile import ncu_line, profile_call
from tests.bench import FakeArm, machine, small_case


def profiled(arm: FakeArm, log: list[str]) -> None:
    @contextmanager
    def nvtx_range(name: str) -> Iterator[None]:
        log.append(f"open {name}")
        yield
        log.append(f"close {name}")

    profile_call(
        small_case(),
        arm,
        machine=machine(),
        device=torch.device("cpu"),
        seed=0,
        nvtx_range=nvtx_range,
        wait=lambda: log.append("wait"),
    )


def test_one_call_lies_in_the_range_and_the_check_before_it() -> None:
    log: list[str] = []

    profiled(FakeArm("a", spoil=lambda call, out: log.append(f"call {call}")), log)

    assert log == [
        "open cake-bench prepare",
        "call 1",
        "close cake-bench prepare",
        "wait",
        "open cake-bench call",
        "call 2",
        "wait",
        "close cake-bench call",
    ]


def test_a_wrong_or_unable_arm_is_not_profiled() -> None:
    with pytest.raises(UsageError, match="--profile: a cannot do 'fwd tiny': needs a GPU"):
        profiled(FakeArm("a", reason="needs a GPU"), [])
    with pytest.raises(UsageError, match="--profile: a fails its check on 'fwd tiny': wrong"):
        profiled(FakeArm("a", spoil=lambda call, out: out.mul_(2)), [])


def test_the_ncu_line_names_the_range_the_row_and_the_arm_and_leaves_clocks_alone() -> None:
    words = shlex.split(ncu_line(small_case(), "cublas_loop", ["--suite", "test"]))

    assert words[:3] == ["ncu", "--clock-control", "none"]
    assert words[words.index("--nvtx-include") + 1] == "cake-bench call/"
    row = ["--suite", "test", "--op", "fwd", "--case", "fwd tiny"]
    assert words[words.index("cake-bench") :] == ["cake-bench", "run", *row, "--arm", "cublas_loop", "--profile"]
