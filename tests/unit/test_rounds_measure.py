"""What a rank does in a round, in this process: arms that behave as told, a timer that gives what it is told."""

import math

import pytest
import torch

from harness.errors import MeasurementError
from harness.rounds.measure import PRE_SLEEP_NS, Bench, play, time_block, timed_call
from harness.rounds.messages import Report, Turn
from harness.rounds.model import ROLES, Plan, Role, disagreement
from harness.rounds.peers import Alone
from tests.bench import FakeArm, FunctionTimer, QuietDevice, machine, small_case
from tests.unit.test_rounds_file import plan_of


class Others(Alone):
    """Two ranks, of which the other one says ``theirs`` of every case."""

    def __init__(self, theirs: dict[Role, str]) -> None:
        self._theirs = theirs

    def gather(self, mine):  # type: ignore[no-untyped-def]
        return [mine, self._theirs]


def bench_of(plan: Plan, **given: object) -> tuple[Bench, list[str]]:
    steps: list[str] = []
    values = {
        "plan": plan,
        "arms": {"baseline": FakeArm("cublas_loop"), "new": FakeArm("torch_grouped_mm")},
        "device": QuietDevice(),
        "timer": FunctionTimer(lambda index, arm: 100 + index if arm == "cublas_loop" else 200 + index),
        "peers": Alone(),
        "begin": steps.append,
        **given,
    }
    return Bench(**values), steps  # type: ignore[arg-type]


def played(bench: Bench, *roles: Role) -> Report:
    return play(bench, Turn(index=3, roles=roles or ROLES))


def reasons(report: Report) -> dict[Role, set[str]]:
    return {role: {t.reason for t in report.timings if t.role == role} for role in ROLES}


def test_every_cell_has_every_iteration_of_both_arms_in_the_order_of_the_round() -> None:
    plan = plan_of(cases=(small_case(), small_case("dW")), ranks=1)
    bench, _ = bench_of(plan)

    report = played(bench, "new", "baseline")

    assert disagreement(plan, ROLES, report.timings) == ""
    assert (report.index, report.machine, len(report.inputs)) == (3, machine(), 2)
    seen = [(t.case, t.mode, t.role, t.span_ns) for t in report.timings]
    assert seen == [
        (case, mode, *cell)
        for case in (0, 1)
        for mode in ("pre-sleep", "back-to-back")
        for cell in (("new", (200, 201, 202)), ("baseline", (103, 104, 105)))
    ]


def test_every_round_loads_the_arms_anew_and_makes_the_same_inputs() -> None:
    prepared: list[str] = []

    class Counted(FakeArm):
        def prepare(self, case, operands):  # type: ignore[no-untyped-def]
            prepared.append(self.name)
            return super().prepare(case, operands)

    bench, _ = bench_of(plan_of(ranks=1), arms={"baseline": Counted("a"), "new": Counted("b")})

    reports = [played(bench, *roles) for roles in (("baseline", "new"), ("new", "baseline"))]

    assert prepared == ["a", "b", "b", "a"]
    assert reports[0].inputs == reports[1].inputs


def test_one_arm_may_play_both_roles() -> None:
    same = FakeArm("cublas_loop")
    bench, _ = bench_of(plan_of(ranks=1, arms=("cublas_loop", "cublas_loop")), arms={"baseline": same, "new": same})

    assert reasons(played(bench)) == {"baseline": {""}, "new": {""}}


def test_a_wrong_arm_has_no_time_and_the_other_has() -> None:
    wrong = FakeArm("torch_grouped_mm", spoil=lambda call, out: out[0, 0].add_(10))
    bench, _ = bench_of(plan_of(ranks=1), arms={"baseline": FakeArm("cublas_loop"), "new": wrong})

    report = played(bench)

    said = reasons(report)
    assert said["baseline"] == {""}
    assert len(said["new"]) == 1
    assert said["new"].pop().startswith("wrong: ")
    assert {(t.role, t.status, len(t.span_ns)) for t in report.timings} == {
        ("baseline", "measured", 3),
        ("new", "failed", 0),
    }


def test_an_arm_that_is_wrong_after_it_was_timed_loses_its_times() -> None:
    # calls: the check, then a warm-up and three iterations in each of two modes, in the second mode one more ahead of
    # them; the eleventh is the second check
    spoil = lambda call, out: out.fill_(math.nan) if call > 11 else None  # noqa: E731
    late = lambda call, out: out.fill_(math.nan) if call >= 11 else None  # noqa: E731
    arms = {"baseline": FakeArm("cublas_loop", spoil=spoil), "new": FakeArm("torch_grouped_mm", spoil=late)}
    bench, _ = bench_of(plan_of(ranks=1), arms=arms)

    said = reasons(played(bench))

    assert said["baseline"] == {""}
    assert said["new"] == {"right at first, after timing: left 128 elements unwritten or not a number"}


def test_an_arm_that_writes_to_the_inputs_while_it_is_timed_costs_both_their_times() -> None:
    class Writes(FakeArm):
        def prepare(self, case, operands):  # type: ignore[no-untyped-def]
            made = super().prepare(case, operands)
            calls = iter(range(100))

            def launch() -> torch.Tensor:
                out = made.launch()
                if next(calls) == 3:
                    operands.x.zero_()
                return out

            return type(made)(launch=launch, out=made.out)

    bench, _ = bench_of(plan_of(ranks=1), arms={"baseline": FakeArm("cublas_loop"), "new": Writes("w")})

    why = "an arm wrote to the inputs, which both arms share, while it was timed"
    assert reasons(played(bench)) == {"baseline": {why}, "new": {why}}


def test_an_arm_that_cannot_do_the_case_says_why() -> None:
    bench, _ = bench_of(
        plan_of(ranks=1), arms={"baseline": FakeArm("cublas_loop"), "new": FakeArm("n", reason="needs a GPU")}
    )

    report = played(bench)

    assert {(t.role, t.status, t.reason) for t in report.timings} == {
        ("baseline", "measured", ""),
        ("new", "unsupported", "needs a GPU"),
    }


def test_back_to_back_the_first_timed_call_is_enqueued_behind_another() -> None:
    log: list[str] = []

    class Device(QuietDevice):
        def synchronize(self) -> None:
            log.append("wait")

    def timed(index: int, arm: str) -> int:
        log.append("timed")
        return 100 + index

    arm = FakeArm("cublas_loop", spoil=lambda call, out: log.append("call"))
    arms = {"baseline": arm, "new": arm}
    bench, _ = bench_of(plan_of(ranks=1), arms=arms, device=Device(), timer=FunctionTimer(timed))

    played(bench, "baseline")

    steps = "".join({"wait": "w", "call": "c", "timed": "t"}[step] for step in log)
    pre_sleep, back_to_back = "cw" + "ct" * 3, "cwc" + "ct" * 3
    assert pre_sleep + back_to_back in steps


def test_an_arm_that_another_rank_cannot_time_has_no_time_here_either() -> None:
    bench, _ = bench_of(plan_of(ranks=2), peers=Others({"new": "failed: wrong: rel L2 1 is above 0.002"}))

    assert reasons(played(bench)) == {"baseline": {""}, "new": {"rank 1: failed: wrong: rel L2 1 is above 0.002"}}


@pytest.mark.parametrize("fault", ["none", "refuses", "raises"])
def test_every_rank_takes_the_same_steps_whatever_its_arms_do(fault: str) -> None:
    def explode(call: int, out: torch.Tensor) -> None:
        raise ValueError(fault)

    arms = {
        "none": FakeArm("torch_grouped_mm"),
        "refuses": FakeArm("torch_grouped_mm", reason="no"),
        "raises": FakeArm("torch_grouped_mm", spoil=explode),
    }
    bench, steps = bench_of(plan_of(ranks=1), arms={"baseline": FakeArm("cublas_loop"), "new": arms[fault]})

    played(bench)

    assert steps == [
        "loading and checking 'fwd tiny' in round 3",
        "agreeing on who can be timed in 'fwd tiny' in round 3",
        "timing baseline of 'fwd tiny' in round 3, pre-sleep",
        "timing new of 'fwd tiny' in round 3, pre-sleep",
        "timing baseline of 'fwd tiny' in round 3, back-to-back",
        "timing new of 'fwd tiny' in round 3, back-to-back",
        "checking 'fwd tiny' in round 3 again",
        "ending round 3",
    ]


def test_memory_that_does_not_suffice_is_the_reason_of_both_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("tried to allocate 9 GiB")

    monkeypatch.setattr("harness.rounds.measure.make_operands", full)
    bench, _ = bench_of(plan_of(ranks=1))

    why = "the case does not fit in memory: tried to allocate 9 GiB"
    assert reasons(played(bench)) == {"baseline": {why}, "new": {why}}


def test_one_arm_alone_makes_the_inputs_that_both_make() -> None:
    bench, _ = bench_of(plan_of(ranks=1))

    assert played(bench, "new").inputs == played(bench).inputs


def test_an_iteration_without_a_time_is_never_left_out() -> None:
    call = timed_call("a", lambda: None, "back-to-back", on_gpu=False)

    with pytest.raises(MeasurementError, match="iteration 2 of 5: span_ns must be finite, got nan"):
        time_block(call, FunctionTimer(lambda i, arm: math.nan if i == 2 else 9), iterations=5, floor_ns=1)
    with pytest.raises(MeasurementError, match="iteration 4 of 5 took 6 ns, below the 7 ns"):
        time_block(call, FunctionTimer(lambda i, arm: 10 - i), iterations=5, floor_ns=7)
    assert time_block(call, FunctionTimer(lambda i, arm: 10 - i), iterations=3, floor_ns=7) == (10, 9, 8)


def test_pre_sleep_spins_a_gpu_and_idles_a_cpu() -> None:
    calls = {
        (mode, on_gpu): timed_call("a", lambda: None, mode, on_gpu=on_gpu)
        for mode in ("pre-sleep", "back-to-back")
        for on_gpu in (True, False)
    }

    assert {key: (call.gap_ns, call.enqueue_ns) for key, call in calls.items()} == {
        ("pre-sleep", True): (0, PRE_SLEEP_NS),
        ("pre-sleep", False): (PRE_SLEEP_NS, 0),
        ("back-to-back", True): (0, 0),
        ("back-to-back", False): (0, 0),
    }
