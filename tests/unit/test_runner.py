import pytest
import torch

from harness.runner import Bench, MeasuredRow, measure_row, why_not_row
from tests.bench import FakeArm, FunctionTimer, QuietDevice, machine, small_case


def measured(*arms: FakeArm, device: QuietDevice | None = None, op: str = "fwd") -> MeasuredRow:
    bench = Bench(
        arms=arms, device=device or QuietDevice(), timer=FunctionTimer(lambda index, arm: 1000), groups=6, seed=0
    )
    return measure_row(small_case(op), "boost", bench, machine=0)


def statuses(measured: MeasuredRow) -> dict[str, str]:
    return {name: outcome.status for name, outcome in measured.row.arms.items()}


def test_right_arms_are_measured_and_others_say_why_not() -> None:
    found = measured(FakeArm("a"), FakeArm("gpu", reason="needs a GPU"), FakeArm("b", allocates=True))

    assert statuses(found) == {"a": "measured", "gpu": "unsupported", "b": "measured"}
    assert found.row.arms["gpu"].reason == "needs a GPU"
    assert found.row.n_groups == 6
    assert len(found.row.samples) == 12
    assert found.row.arms["a"].check.worst <= 1


def test_a_wrong_arm_has_no_time() -> None:
    found = measured(FakeArm("a"), FakeArm("wrong", spoil=lambda call, out: out.mul_(1.5)))

    assert statuses(found) == {"a": "measured", "wrong": "failed"}
    assert found.row.arms["wrong"].reason.startswith("wrong: rel L2 0.5 is above")
    assert set(found.row.samples.arm) == {"a"}


def test_an_arm_that_is_wrong_in_its_first_call_only_has_no_time() -> None:
    def wrong_at_first(call: int, out: torch.Tensor) -> None:
        if call == 1:
            out.mul_(2)

    assert statuses(measured(FakeArm("a", spoil=wrong_at_first))) == {"a": "failed"}


def test_an_arm_that_goes_wrong_while_it_is_timed_loses_its_samples() -> None:
    def wrong_later(call: int, out: torch.Tensor) -> None:
        if call > 4:
            out.mul_(2)

    found = measured(FakeArm("a", spoil=wrong_later), FakeArm("b"))

    assert statuses(found) == {"a": "failed", "b": "measured"}
    assert found.row.arms["a"].reason.startswith("right at first, after timing: wrong: rel L2 1 is above")
    assert set(found.row.samples.arm) == {"b"}


def test_an_arm_that_cannot_be_prepared_is_a_recorded_failure() -> None:
    class Unprepared(FakeArm):
        def prepare(self, case, operands):  # type: ignore[no-untyped-def]
            raise RuntimeError("no plan\ndetails")

    found = measured(Unprepared("x"), FakeArm("b"))

    assert found.row.arms["x"].reason == "could not be prepared: RuntimeError: no plan"
    assert statuses(found)["b"] == "measured"


def test_a_row_that_does_not_fit_is_skipped_with_the_reason() -> None:
    found = measured(FakeArm("a"), FakeArm("gpu", reason="needs a GPU"), device=QuietDevice(free=1000))

    assert found.row.skipped.startswith("needs 0.0 GiB of device memory for 1 arms")
    assert statuses(found) == {"gpu": "unsupported"}


def test_an_impossible_time_is_no_result() -> None:
    # 2048 FLOP at 1 GFLOP/s cannot take 1000 ns.
    found = measured(FakeArm("a"), device=QuietDevice(facts=machine(peak_flops=1e9)))

    assert found.row.arms["a"].reason == "took 1000 ns, below the 2048 ns that the row's FLOPs and bytes need here"


def test_no_runnable_arm_gives_a_row_of_reasons() -> None:
    found = measured(FakeArm("a", reason="no"))

    assert statuses(found) == {"a": "unsupported"}
    assert found.row.n_groups == 0


def test_a_lost_device_is_reported_with_the_row() -> None:
    class Lost(QuietDevice):
        calls = 0

        def synchronize(self) -> None:
            self.calls += 1
            if self.calls > 2:
                raise RuntimeError("an illegal memory access was encountered\nmore")

    assert measured(FakeArm("a"), device=Lost()).device_lost == "an illegal memory access was encountered"


def test_a_device_that_is_lost_while_timing_fails_every_arm_of_the_row() -> None:
    class Lost(QuietDevice):
        def synchronize(self) -> None:
            raise RuntimeError("an illegal memory access was encountered")

    found = measured(FakeArm("a"), FakeArm("gpu", reason="no"), FakeArm("b"), device=Lost())

    assert statuses(found) == {"a": "failed", "gpu": "unsupported", "b": "failed"}
    assert found.row.arms["b"].reason == "the device was lost in this row: an illegal memory access was encountered"
    assert found.device_lost == "an illegal memory access was encountered"


def test_a_defect_of_the_timer_is_not_taken_for_an_arms() -> None:
    bench = Bench(
        arms=(FakeArm("a"),), device=QuietDevice(), timer=FunctionTimer(lambda index, arm: 1 / 0), groups=6, seed=0
    )
    with pytest.raises(ZeroDivisionError):
        measure_row(small_case(), "boost", bench, machine=0)


@pytest.mark.parametrize(("free", "fits"), [(0, False), (1 << 30, True)])
def test_memory_decides_whether_a_case_fits(free: int, fits: bool) -> None:
    assert (why_not_row(small_case(), 3, free) == "") is fits
