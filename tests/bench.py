"""What tests of measuring share: a small case, a machine, a device without a flush, and arms that behave as told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from harness.arms import Operands, Prepared, new_output
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo
from harness.model.sample import Sample
from harness.model.shape import Shape
from harness.timers import TimedCall, Traced


def small_case(
    op: str = "fwd", *, sizes: tuple[int, ...] = (3, 0, 5), out_dtype: str = "bf16", name: str = "tiny"
) -> Case:
    shape = Shape(
        name=name, row_class="smoke", N=16, K=8, group_sizes=sizes, distribution="by hand", source="made for a test"
    )
    return Case(suite="test", op=op, shape=shape, out_dtype=out_dtype)


def machine(*, peak_flops: float | None = None, product: str = "Test CPU") -> Machine:
    return Machine(
        device="cpu",
        product=product,
        arch="x86_64",
        units=2,
        cache_bytes=1 << 20,
        memory_bytes=1 << 30,
        peak_flops=peak_flops,
        peak_bytes_per_s=None,
        peak_source="made for a test",
        versions={"torch": "2.13.0"},
    )


class QuietDevice:
    """A CPU whose caches nobody flushes."""

    torch_device = torch.device("cpu")

    def __init__(self, *, free: int = 1 << 30, facts: Machine | None = None) -> None:
        self.machine = facts or machine()
        self._free = free

    def flush(self, cover_ns: int = 0) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def free_bytes(self) -> int:
        return self._free

    def reader(self, num_bytes: int) -> Callable[[], torch.Tensor]:
        return torch.zeros(num_bytes // 4).sum


def fp64(case: Case, operands: Operands) -> torch.Tensor:
    """Return the product of the BF16 inputs, group by group in FP64."""
    start, parts = 0, []
    for expert, size in enumerate(operands.group_sizes):
        rows = slice(start, start + size)
        start += size
        if case.op == "fwd":
            parts.append(operands.x[rows].double() @ operands.w[expert].double().t())
        elif case.op == "dX":
            parts.append(operands.g[rows].double() @ operands.w[expert].double())
        else:
            parts.append(operands.g[rows].double().t() @ operands.x[rows].double())
    return torch.stack(parts) if case.op == "dW" else torch.cat(parts)


def right_product(case: Case, operands: Operands, out: torch.Tensor) -> torch.Tensor:
    """Write the right result, rounded once."""
    return out.copy_(fp64(case, operands))


@dataclass(frozen=True)
class FakeArm:
    """An arm that is right unless ``spoil`` changes its output; ``spoil(call_number, out)`` may also raise."""

    name: str
    spoil: Callable[[int, torch.Tensor], None] = lambda call, out: None
    reason: str | None = None
    allocates: bool = False

    @property
    def info(self) -> ArmInfo:
        return ArmInfo(name=self.name, key="", is_cake=False, note="")

    def why_not(self, case: Case, machine: Machine) -> str | None:
        return self.reason

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        kept = new_output(case, operands.offs.device)
        calls = 0

        def launch() -> torch.Tensor:
            nonlocal calls
            calls += 1
            out = new_output(case, operands.offs.device) if self.allocates else kept
            right_product(case, operands, out)
            self.spoil(calls, out)
            return out

        return Prepared(launch=launch, out=None if self.allocates else kept)


class FunctionTimer:
    """Gives ``span_ns(index of the call in the row, arm)`` for each call."""

    heading = "made for a test"

    def __init__(self, span_ns: Callable[[int, str], float]) -> None:
        self._span_ns = span_ns
        self._index = 0

    def start_row(self, case_id: str) -> None:
        self._index = 0

    def traced(self) -> Traced:
        return Traced()

    def measure(self, calls: Sequence[TimedCall]) -> list[Sample]:
        samples = []
        for call in calls:
            call.launch()
            samples.append(Sample(span_ns=self._span_ns(self._index, call.arm)))
            self._index += 1
        return samples
