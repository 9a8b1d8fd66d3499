import math
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pytest
import torch

from harness.errors import MeasurementError, UsageError
from harness.model.run import GroupState
from harness.model.sample import Sample
from harness.operands import make_operands
from harness.protocols.paired_groups import Measured, Session, measure
from harness.protocols.regimes import Boost
from harness.timers.scripted import ScriptedTimer
from tests.bench import FakeArm, FunctionTimer, QuietDevice, small_case

CASE = small_case()


def measured(span_ns: Callable[[int, str], float], *arms: FakeArm, groups: int = 6, floor_ns: int = 1) -> Measured:
    operands = make_operands(CASE, seed=0, device=torch.device("cpu"))
    prepared = {arm.name: arm.prepare(CASE, operands) for arm in arms}
    session = Session(timer=FunctionTimer(span_ns), device=QuietDevice(), groups=groups)
    return measure(prepared, Boost(rounds=1), session, floor_ns=floor_ns, case_id=CASE.case_id)


def ratios(row: Measured, baseline: str, new: str) -> list[float]:
    spans = {name: [row.samples.span_ns[i] for _, i in row.samples.by_group(name)] for name in (baseline, new)}
    return [b / n for b, n in zip(spans[baseline], spans[new], strict=True)]


def test_every_group_holds_every_arm_once() -> None:
    row = measured(lambda index, arm: 1000 + index, FakeArm("a"), FakeArm("b"), FakeArm("c"))

    assert row.n_groups == 6
    assert [row.samples.arm[3 * g : 3 * g + 3] for g in range(6)] == [
        ("a", "b", "c"),
        ("b", "c", "a"),
        ("c", "a", "b"),
        ("c", "b", "a"),
        ("a", "c", "b"),
        ("b", "a", "c"),
    ]
    assert row.samples.position == (0, 1, 2) * 6
    assert row.samples.group == tuple(g for g in range(6) for _ in range(3))


def test_drift_of_one_percent_a_slot_cancels_between_identical_arms() -> None:
    # flashinfer-ai/flashinfer#4188 and vtjeng/MIPVerify.jl#276: two identical arms and a drift.
    drifting = measured(lambda index, arm: round(1e6 * 1.01**index), FakeArm("a"), FakeArm("b"))

    in_groups = ratios(drifting, "a", "b")

    fixed = [1.01 ** (2 * g) / 1.01 ** (2 * g + 1) for g in range(6)]

    # The second place costs 1 %: in a fixed order every group says so, in a balanced one half say the opposite.
    assert median(fixed) == pytest.approx(0.990, abs=1e-4)
    assert sorted({round(r, 3) for r in in_groups}) == [0.990, 1.010]
    assert median(in_groups) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("bad", [0, -5, math.nan, math.inf])
def test_a_group_with_an_invalid_sample_is_measured_again_and_counted(bad: float) -> None:
    row = measured(lambda index, arm: bad if index == 3 else 1000, FakeArm("a"), FakeArm("b"))

    assert row.failures == {}
    assert len(row.samples) == 12
    assert set(row.samples.span_ns) == {1000}
    assert [(d.group, d.arm) for d in row.discarded] == [(1, "a")]
    assert "span_ns must be" in row.discarded[0].reason
    assert row.discarded[0].span_ns == {"a": None, "b": 1000}


def test_an_arm_whose_samples_are_never_valid_fails_after_finitely_many_tries() -> None:
    # NVIDIA/nvbench#231: every sample was under the clock's threshold.
    row = measured(lambda index, arm: 0 if arm == "a" else 1000, FakeArm("a"), FakeArm("b"))

    assert row.failures == {"a": "7 groups discarded, 0 accepted: span_ns must be at least 1, got 0"}
    assert set(row.samples.arm) == {"b"}
    assert len(row.discarded) == 7


def test_the_arm_that_lost_most_fails_and_not_the_one_that_lost_last() -> None:
    # Calls in order a b, b a, a b, ...: b is invalid six times over, then a once, which is one time too many.
    def span_ns(index: int, arm: str) -> float:
        return 0 if (arm == "b" and index < 12) or (arm == "a" and 12 <= index < 14) else 1000

    row = measured(span_ns, FakeArm("a"), FakeArm("b"))

    assert list(row.failures) == ["b"]
    assert row.failures["b"].startswith("6 groups discarded, 0 accepted")


def test_a_time_below_the_floor_fails_its_arm_at_once_and_the_others_start_again() -> None:
    # gpu-mode/reference-kernels#159: one shape took 1e-9 us.
    row = measured(lambda index, arm: 99 if arm == "b" and index == 3 else 1000, *map(FakeArm, "abc"), floor_ns=100)

    assert row.failures == {"b": "took 99 ns, below the 100 ns that the row's FLOPs and bytes need here"}
    # The group that was accepted before, and the impossible one, are kept as what they were.
    assert [(d.attempt, d.group, d.arm) for d in row.discarded] == [(0, 1, "b"), (0, 0, "b")]
    assert row.discarded[0].span_ns == {"b": 99, "c": 1000, "a": 1000}
    assert row.discarded[1].reason == "the row started again without b"
    assert [row.samples.arm[2 * g : 2 * g + 2] for g in range(2)] == [("a", "c"), ("c", "a")]
    assert row.n_groups == 6


@pytest.mark.parametrize("error", [RuntimeError("boom"), UsageError("boom"), SystemExit("boom")])
def test_an_arm_that_raises_while_timed_fails_and_keeps_no_sample(error: BaseException) -> None:
    def seventh_call_raises(call: int, out: torch.Tensor) -> None:
        if call == 7:
            raise error

    row = measured(lambda index, arm: 1000, FakeArm("a", spoil=seventh_call_raises), FakeArm("b"))

    assert row.failures == {"a": f"raised {type(error).__name__}: boom"}
    assert set(row.samples.arm) == {"b"}


def test_a_usage_error_of_the_timer_is_not_taken_for_an_arms() -> None:
    timer = ScriptedTimer({"a": (1000,)})
    operands = make_operands(CASE, seed=0, device=torch.device("cpu"))
    prepared = {name: FakeArm(name).prepare(CASE, operands) for name in "ab"}
    session = Session(timer=timer, device=QuietDevice(), groups=6)

    with pytest.raises(UsageError, match="the script has no arm 'b'; it has a"):
        measure(prepared, Boost(rounds=1), session, floor_ns=1, case_id="x")


def test_a_timer_that_fails_for_one_arm_of_three_leaves_no_mixed_group() -> None:
    # tile-ai/TileOPs#1792.
    class LosesB(FunctionTimer):
        def measure(self, calls):  # type: ignore[no-untyped-def]
            samples = super().measure(calls)
            return [
                Sample(span_ns=math.nan, reason="lost") if call.arm == "b" and self._index > 6 else sample
                for call, sample in zip(calls, samples, strict=True)
            ]

    operands = make_operands(CASE, seed=0, device=torch.device("cpu"))
    prepared = {name: FakeArm(name).prepare(CASE, operands) for name in "abc"}
    session = Session(timer=LosesB(lambda index, arm: 1000), device=QuietDevice(), groups=6)

    row = measure(prepared, Boost(rounds=1), session, floor_ns=1, case_id="x")

    assert row.failures == {"b": "7 groups discarded, 2 accepted: lost"}
    groups = [set(row.samples.arm[2 * g : 2 * g + 2]) for g in range(row.n_groups)]
    assert groups == [{"a", "c"}] * 6
    assert len(row.samples) == 12
    # The two whole groups of three are kept as thrown away, not mixed into those of two.
    restarted = [d for d in row.discarded if d.reason == "the row started again without b"]
    assert [set(d.span_ns) for d in restarted] == [{"a", "b", "c"}] * 2


def test_a_timer_that_loses_a_sample_is_an_error() -> None:
    class Loses(FunctionTimer):
        def measure(self, calls):  # type: ignore[no-untyped-def]
            return super().measure(calls)[1:]

    operands = make_operands(CASE, seed=0, device=torch.device("cpu"))
    with pytest.raises(MeasurementError, match="1 samples for 2 calls"):
        measure(
            {name: FakeArm(name).prepare(CASE, operands) for name in "ab"},
            Boost(rounds=1),
            Session(timer=Loses(lambda index, arm: 1000), device=QuietDevice(), groups=6),
            floor_ns=1,
            case_id="x",
        )


def clocked(clock_mhz: Callable[[int, str], int | None], states: list[GroupState] | None = None) -> Measured:
    class Clocked(FunctionTimer):
        def measure(self, calls):  # type: ignore[no-untyped-def]
            first = self._index
            samples = super().measure(calls)
            return [
                replace(s, clock_mhz=clock_mhz(first + i, c.arm))
                for i, (s, c) in enumerate(zip(samples, calls, strict=True))
            ]

    class Monitor:
        def state(self) -> GroupState:
            return states.pop(0) if states else GroupState(clock_mhz=1980, power_w=500.0, temperature_c=50, throttle=())

        def energy_mj(self) -> int:
            return 0

    operands = make_operands(CASE, seed=0, device=torch.device("cpu"))
    prepared = {name: FakeArm(name).prepare(CASE, operands) for name in "ab"}
    timer = Clocked(lambda index, arm: 1000 + index)
    session = Session(timer=timer, device=QuietDevice(), groups=6, monitor=Monitor())
    return measure(prepared, Boost(rounds=1), session, floor_ns=1, case_id=CASE.case_id)


def test_a_group_in_which_an_arms_clock_is_off_its_own_is_measured_again() -> None:
    row = clocked(lambda index, arm: 1700 if index == 5 else 1980)

    assert [(d.group, d.arm, d.reason) for d in row.discarded] == [
        (2, "b", "clock 1700 MHz, 1980 MHz in the other groups")
    ]
    # The thirteenth and fourteenth call stand in for the third group's.
    assert row.samples.span_ns[4:6] == (1012, 1013)
    assert set(row.samples.clock_mhz) == {1980}


@pytest.mark.parametrize(("clock_mhz", "discarded"), [(1941, 0), (1939, 1), (2059, 0), (2061, 1)])
def test_a_clock_is_off_where_it_differs_by_more_than_three_percent(clock_mhz: int, discarded: int) -> None:
    # Of one group in six, against a median of 2000.
    row = clocked(lambda index, arm: clock_mhz if index == 5 else 2000)

    assert len(row.discarded) == discarded


def test_a_group_without_a_clock_does_not_switch_the_rule_off() -> None:
    row = clocked(lambda index, arm: None if index == 1 else 1700 if index == 5 else 1980)

    assert [(d.group, d.arm) for d in row.discarded] == [(2, "b")]
    assert row.samples.clock_mhz[1] is None


def test_one_clock_alone_is_off_nothing() -> None:
    assert clocked(lambda index, arm: 1700 if index == 5 else None).discarded == ()


def test_the_reason_names_the_median_of_the_other_groups() -> None:
    # Of b: 1980, 1960, 1700 (the third group), 1940, 1970, 1950.
    clocks = {1: 1980, 2: 1960, 5: 1700, 6: 1940, 9: 1970, 10: 1950}

    row = clocked(lambda index, arm: clocks.get(index, 1960) if arm == "b" else 1900)

    assert [d.reason for d in row.discarded] == ["clock 1700 MHz, 1960 MHz in the other groups"]


def test_arms_that_differ_in_clock_by_nature_are_left_alone() -> None:
    row = clocked(lambda index, arm: 1260 if arm == "a" else 1455)

    assert row.discarded == ()


def test_a_clock_that_never_agrees_stands_after_finitely_many_tries() -> None:
    row = clocked(lambda index, arm: 1000 + 100 * (index % 7))

    assert row.n_groups == 6
    assert len(row.discarded) == 6


def test_a_group_held_down_by_heat_is_measured_again_and_one_under_the_power_cap_is_not() -> None:
    # flashinfer-ai/flashinfer#2899 and tile-ai/TileOPs#1587: the clock falls in mid-run.
    cap = GroupState(clock_mhz=1400, power_w=690.0, temperature_c=60, throttle=("power cap",))
    hot = replace(cap, throttle=("power cap", "hardware thermal"))

    row = clocked(lambda index, arm: 1980, states=[cap, hot, cap, cap, cap, cap, cap])

    assert [(d.group, d.arm, d.reason) for d in row.discarded] == [(1, "", "throttled: hardware thermal")]
    assert [s.throttle for s in row.states] == [("power cap",)] * 6
