"""Real arms on a CPU, through the runner: ragged and empty groups."""

import time

import pytest
import torch

from harness import arms
from harness.arms import Arm, Operands, Output, Prepared
from harness.arms._ops import NO_AUTOGRAD
from harness.machine import read_machine
from harness.model.case import STEPS, Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo, Row
from harness.protocols.paired_groups import Session
from harness.protocols.regimes import Boost
from harness.runner import Bench, measure_case
from harness.timers import Timer
from harness.timers.cpu import CpuTimer
from tests.bench import FunctionTimer, QuietDevice, small_case

RAGGED = (162, 0, 2577, 446, 0, 83)
ALL_EMPTY = (0, 0, 0)
NO_FP32 = "torch.mm gives FP32 from BF16 inputs on CUDA only"
NO_FP32_EITHER = "torch._grouped_mm cannot give FP32 dW from BF16 inputs"
NO_ROWS = "torch._grouped_mm needs at least one row, got M = 0"


class Watched:
    """A real arm; copies of what it gave, of a step its dW, can be looked at afterwards."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        self.outputs: list[torch.Tensor] = []

    @property
    def info(self) -> ArmInfo:
        return self.arm.info

    def why_not(self, case: Case, machine: Machine) -> str | None:
        return self.arm.why_not(case, machine)

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        prepared = self.arm.prepare(case, operands)

        def launch() -> Output:
            output = prepared.launch()
            self.outputs.append(output.clone() if isinstance(output, torch.Tensor) else output[-1].clone())
            return output

        return Prepared(launch=launch, out=prepared.out, note=prepared.note)


def measured(case: Case, timer: Timer | None = None) -> tuple[Row, list[Watched]]:
    names = ("cublas_loop", "cublas_loop_autograd") if case.is_step else ("cublas_loop",)
    watched = [Watched(arms.load(name)) for name in (*names, "reference", "torch_grouped_mm")]
    device = QuietDevice(facts=read_machine("cpu"), free=1 << 32)
    session = Session(timer=timer or FunctionTimer(lambda index, arm: 10**9), device=device, groups=6)
    bench = Bench(arms=tuple(watched), session=session, seed=0, twins={})
    (row,) = measure_case(case, [Boost()], bench, machine=0).rows
    return row, watched


@pytest.mark.parametrize(
    ("op", "out_dtype", "sizes", "refused"),
    [
        ("fwd", "bf16", RAGGED, {}),
        ("dX", "bf16", RAGGED, {}),
        ("dW", "bf16", RAGGED, {}),
        ("dW", "fp32", RAGGED, {"cublas_loop": NO_FP32, "torch_grouped_mm": NO_FP32_EITHER}),
        ("fwd", "bf16", ALL_EMPTY, {"torch_grouped_mm": NO_ROWS}),
        ("dX", "bf16", ALL_EMPTY, {"torch_grouped_mm": NO_ROWS}),
        ("dW", "bf16", ALL_EMPTY, {"torch_grouped_mm": NO_ROWS}),
        ("dW", "fp32", ALL_EMPTY, {"cublas_loop": NO_FP32, "torch_grouped_mm": NO_FP32_EITHER}),
    ],
)
def test_ragged_and_empty_groups_are_right_and_measured(
    op: str, out_dtype: str, sizes: tuple[int, ...], refused: dict[str, str]
) -> None:
    row, watched = measured(small_case(op, sizes=sizes, out_dtype=out_dtype))

    runnable = [arm for arm in watched if arm.info.name not in refused]
    assert {name: outcome.reason for name, outcome in row.arms.items() if outcome.status != "measured"} == refused
    assert set(row.samples.arm) == {arm.info.name for arm in runnable}
    assert len(row.samples) == row.n_groups * len(runnable)
    assert all(arm.outputs for arm in runnable)


@pytest.mark.parametrize(
    ("sizes", "also_refused"), [(RAGGED, {}), (ALL_EMPTY, {"torch_grouped_mm": NO_ROWS})], ids=["ragged", "all empty"]
)
@pytest.mark.parametrize("op", STEPS)
def test_a_training_step_is_right_and_timed_by_the_cpu_timer(
    op: str, sizes: tuple[int, ...], also_refused: dict[str, str]
) -> None:
    refused = {"cublas_loop": NO_AUTOGRAD, **also_refused}
    timer = CpuTimer(QuietDevice(), clock=time.perf_counter_ns, sleep=lambda seconds: None)

    row, watched = measured(small_case(op, sizes=sizes), timer)

    assert {name: outcome.reason for name, outcome in row.arms.items() if outcome.status != "measured"} == refused
    assert set(row.samples.arm) == {arm.info.name for arm in watched} - set(refused)
    for dw in (dw for arm in watched for dw in arm.outputs):
        assert [not dw[expert].any() for expert in range(len(sizes))] == [size == 0 for size in sizes]


@pytest.mark.parametrize("out_dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("sizes", [RAGGED, ALL_EMPTY])
def test_the_weight_gradient_of_an_empty_group_is_exactly_zero(sizes: tuple[int, ...], out_dtype: str) -> None:
    _, watched = measured(small_case("dW", sizes=sizes, out_dtype=out_dtype))

    for output in (output for arm in watched for output in arm.outputs):
        assert [not output[expert].any() for expert in range(len(sizes))] == [size == 0 for size in sizes]
