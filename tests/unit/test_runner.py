from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from harness.arms import Prepared
from harness.errors import UsageError
from harness.protocols.paired_groups import Session
from harness.protocols.regimes import Boost, Sustained
from harness.runner import Bench, MeasuredCase, measure_case, why_not_row
from tests.bench import FakeArm, FunctionTimer, QuietDevice, machine, small_case


def measured(*arms: FakeArm, device: QuietDevice | None = None, span_ns: float = 1000) -> MeasuredCase:
    timer = FunctionTimer(lambda index, arm: 1000 / (span_ns and 1))
    bench = Bench(arms=arms, session=Session(timer=timer, device=device or QuietDevice(), groups=6), seed=0, twins={})
    return measure_case(small_case(), [Boost()], bench, machine=0)


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def raises(error: BaseException) -> Callable[..., object]:
    def raising(*arguments: object) -> object:
        raise error

    return raising


def odd_arm(**methods: Callable[..., object]) -> FakeArm:
    """The arm ``odd`` with some of its methods replaced."""
    return type("OddArm", (FakeArm,), {name: staticmethod(method) for name, method in methods.items()})("odd")


def statuses(measured: MeasuredCase) -> dict[str, str]:
    return {name: outcome.status for name, outcome in measured.rows[0].arms.items()}


def test_right_arms_are_measured_and_others_say_why_not() -> None:
    found = measured(FakeArm("a"), FakeArm("gpu", reason="needs a GPU"), FakeArm("b", allocates=True))

    assert statuses(found) == {"a": "measured", "gpu": "unsupported", "b": "measured"}
    assert found.rows[0].arms["gpu"].reason == "needs a GPU"
    assert found.rows[0].n_groups == 6
    assert len(found.rows[0].samples) == 12
    assert found.rows[0].arms["a"].check.worst <= 1


def test_a_wrong_arm_has_no_time() -> None:
    found = measured(FakeArm("a"), FakeArm("wrong", spoil=lambda call, out: out.mul_(1.5)))

    assert statuses(found) == {"a": "measured", "wrong": "failed"}
    assert found.rows[0].arms["wrong"].reason.startswith("wrong: rel L2 0.5 is above")
    assert set(found.rows[0].samples.arm) == {"a"}


def test_an_arm_that_is_wrong_in_its_first_call_only_has_no_time() -> None:
    # gpu-mode/reference-kernels#104: wrong in the first call, and only the last was checked.
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
    assert found.rows[0].arms["a"].reason.startswith("right at first, after timing: wrong: rel L2 1 is above")
    assert set(found.rows[0].samples.arm) == {"b"}
    # b keeps the places in which it ran; a's stay empty.
    assert found.rows[0].samples.position == (1, 0, 1, 0, 1, 0)


def test_an_arm_that_cannot_be_prepared_is_a_recorded_failure() -> None:
    class Unprepared(FakeArm):
        def prepare(self, case, operands):  # type: ignore[no-untyped-def]
            raise RuntimeError("no plan\ndetails")

    found = measured(Unprepared("x"), FakeArm("b"))

    assert found.rows[0].arms["x"].reason == "could not be prepared: RuntimeError: no plan"
    assert statuses(found)["b"] == "measured"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (raises(RuntimeError("no driver\nmore")), "why_not raised RuntimeError: no driver"),
        (raises(SystemExit(0)), "why_not raised SystemExit: 0"),
        (raises(UnreadableError()), "why_not raised UnreadableError: a message that cannot be read"),
        (lambda case, machine: "", "why_not must return a reason or None, got ''"),
        (lambda case, machine: False, "why_not must return a reason or None, got False"),
    ],
)
def test_an_arm_that_does_not_say_whether_it_can_has_failed(answer: Callable[..., object], reason: str) -> None:
    found = measured(odd_arm(why_not=answer), FakeArm("b"))

    assert statuses(found) == {"odd": "failed", "b": "measured"}
    assert found.rows[0].arms["odd"].reason == reason


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (raises(SystemExit("bye")), "could not be prepared: SystemExit: bye"),
        (raises(UsageError("mine")), "could not be prepared: UsageError: mine"),
        (
            lambda case, operands: None,
            "could not be prepared: PluginError: prepare must return a Prepared, got NoneType",
        ),
        (
            lambda case, operands: Prepared(launch=lambda: torch.empty(0), out=None, note=5),  # type: ignore[arg-type]
            "could not be prepared: PluginError: note of a Prepared must be text, got 5",
        ),
    ],
)
def test_what_prepare_does_wrong_is_the_arms_failure(prepare: Callable[..., object], reason: str) -> None:
    found = measured(odd_arm(prepare=prepare), FakeArm("b"))

    assert statuses(found) == {"odd": "failed", "b": "measured"}
    assert found.rows[0].arms["odd"].reason == reason


def test_control_c_in_an_arm_is_no_failure_of_the_arm() -> None:
    with pytest.raises(KeyboardInterrupt):
        measured(odd_arm(prepare=raises(KeyboardInterrupt())))


def test_a_note_of_half_characters_can_be_written_to_a_file() -> None:
    class Noted(FakeArm):
        def prepare(self, case, operands):  # type: ignore[no-untyped-def]
            return replace(super().prepare(case, operands), note="plan \udcff")

    assert measured(Noted("a")).rows[0].arms["a"].note == "plan \\udcff"


def test_a_row_that_does_not_fit_is_skipped_with_the_reason() -> None:
    found = measured(FakeArm("a"), FakeArm("gpu", reason="needs a GPU"), device=QuietDevice(free=1000))

    assert found.rows[0].skipped.startswith("needs 0.0 GiB of device memory for 1 arms")
    assert statuses(found) == {"gpu": "unsupported"}


def test_an_impossible_time_is_no_result() -> None:
    # 2048 FLOP at 1 GFLOP/s cannot take 1000 ns.
    found = measured(FakeArm("a"), device=QuietDevice(facts=machine(peak_flops=1e9)))

    assert found.rows[0].arms["a"].reason == "took 1000 ns, below the 2048 ns that the row's FLOPs and bytes need here"


def test_no_runnable_arm_gives_a_row_of_reasons() -> None:
    found = measured(FakeArm("a", reason="no"))

    assert statuses(found) == {"a": "unsupported"}
    assert found.rows[0].n_groups == 0


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
    assert found.rows[0].arms["b"].reason == "the device was lost in this row: an illegal memory access was encountered"
    assert found.device_lost == "an illegal memory access was encountered"


def test_a_defect_of_the_timer_is_not_taken_for_an_arms() -> None:
    with pytest.raises(ZeroDivisionError):
        measured(FakeArm("a"), span_ns=0)


def test_an_arm_that_writes_to_its_inputs_fails_and_the_others_get_them_as_they_were() -> None:
    class Writes(FakeArm):
        def prepare(self, case, operands):  # type: ignore[no-untyped-def]
            prepared = super().prepare(case, operands)

            def launch() -> torch.Tensor:
                out = prepared.launch()
                operands.x[0, 0] += 1
                return out

            return replace(prepared, launch=launch)

    found = measured(Writes("writes"), FakeArm("b"))

    assert found.rows[0].arms["writes"].reason == "wrote to its inputs, which all arms share"
    assert statuses(found)["b"] == "measured"


def test_an_arm_that_writes_to_its_inputs_while_timed_leaves_the_row_without_times() -> None:
    class Later(FakeArm):
        def prepare(self, case, operands):  # type: ignore[no-untyped-def]
            def spoil(call: int, out: torch.Tensor) -> None:
                if call == 5:
                    operands.x[0, 0] += 1

            return FakeArm(self.name, spoil=spoil).prepare(case, operands)

    found = measured(Later("late"), FakeArm("b"))

    assert statuses(found) == {"late": "failed", "b": "failed"}
    assert "an arm wrote to the inputs, which all arms share" in found.rows[0].arms["b"].reason
    assert len(found.rows[0].samples) == 0


def test_a_twin_is_timed_beside_its_arm_and_checked_with_it() -> None:
    timer = FunctionTimer(lambda index, arm: 1000)
    session = Session(timer=timer, device=QuietDevice(), groups=6)
    bench = Bench(arms=(FakeArm("a"), FakeArm("b")), session=session, seed=0, twins={"a": "a again"})

    row = measure_case(small_case(), [Boost()], bench, machine=0).rows[0]

    assert list(row.arms) == ["a", "a again", "b"]
    assert sorted(set(row.samples.arm)) == ["a", "a again", "b"]
    assert row.arms["a again"].check == row.arms["a"].check


def test_each_regime_is_a_row_and_a_short_call_is_boost_only() -> None:
    session = Session(timer=FunctionTimer(lambda index, arm: 1000), device=QuietDevice(), groups=6)
    bench = Bench(arms=(FakeArm("a"),), session=session, seed=0, twins={})

    boost, sustained = measure_case(small_case(), [Boost(), Sustained()], bench, machine=0).rows

    assert (boost.regime, boost.n_groups) == ("boost", 6)
    assert (sustained.regime, sustained.n_groups) == ("sustained", 0)
    assert "rows under 2 ms are measured in boost only" in sustained.skipped


def test_an_arm_that_fails_its_check_fails_also_a_row_that_a_regime_leaves_out() -> None:
    session = Session(timer=FunctionTimer(lambda index, arm: 1000), device=QuietDevice(), groups=6)
    arms = (FakeArm("a"), FakeArm("wrong", spoil=lambda call, out: out.mul_(2)))
    bench = Bench(arms=arms, session=session, seed=0, twins={})

    (row,) = measure_case(small_case(), [Sustained()], bench, machine=0).rows

    assert row.skipped
    assert {name: outcome.status for name, outcome in row.arms.items()} == {"wrong": "failed"}


@pytest.mark.parametrize(("free", "fits"), [(0, False), (1 << 30, True)])
def test_memory_decides_whether_a_case_fits(free: int, fits: bool) -> None:
    assert (why_not_row(small_case(), 3, free) == "") is fits
