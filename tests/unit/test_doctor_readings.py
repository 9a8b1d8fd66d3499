"""What the checks read, on a GPU that is made up: the order of things, and each fault shows where it should."""

import sys
from collections.abc import Iterator

import pytest

from harness.cupti_session import PINNED
from harness.doctor import (
    aa_floor,
    baselines,
    checks,
    clocks,
    cupti_live,
    drops,
    known_duration,
    l2,
    prefill,
    thermal,
    tracing_cost,
)
from harness.doctor.finding import Check, Finding, Status, examine
from harness.doctor.gpu import Gpu
from harness.doctor.load import read_load
from harness.doctor.once import Once
from harness.doctor.stage import REPEATS, Stage, Trial
from harness.doctor.untraced import LAUNCHES, read_launch_cost
from harness.drop_proof import DropProof
from harness.errors import MeasurementError
from harness.model.case import Case
from harness.model.run import Row
from harness.runner import MeasuredCase
from tests.bench import FakeArm, machine, small_case
from tests.fake_cupti import HOST_NS, only, zeroed
from tests.unit.doctor_hardware import GEMM_NS, L2_BYTES, LAUNCH_NS, FakeHardware, gpu_machine


@pytest.fixture
def hardware() -> FakeHardware:
    return FakeHardware()


@pytest.fixture
def gpu(hardware: FakeHardware) -> Iterator[Gpu]:
    gpu = Gpu(hardware)
    yield gpu
    if "session" in hardware.log:
        hardware.cupti.synchronize()
        gpu.cupti().session.close()


def test_the_session_opens_once_and_after_everything_that_is_read_without_it(
    hardware: FakeHardware, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    spins: list[bool] = []
    monkeypatch.setattr("harness.doctor.gpu.read_untraced", lambda stage: spins.append("session" in hardware.log))

    gpu.cupti()
    gpu.cupti()

    assert hardware.log == ["device", "session"]
    assert spins == [False]


def test_a_session_that_fails_to_open_is_not_opened_again(gpu: Gpu, hardware: FakeHardware) -> None:
    hardware.cupti.empty_flushes = 100
    for _ in range(2):
        with pytest.raises(Exception, match="no records"):
            gpu.cupti()

    assert hardware.log.count("session") == 1
    hardware.log.clear()


def test_a_spin_is_read_by_cupti_in_the_process_and_by_events_without(gpu: Gpu) -> None:
    reading = known_duration.read_duration(gpu, 100_000)

    assert reading.cupti_ns == REPEATS * (100_900,)
    assert reading.events_ns == REPEATS * (100_900,)
    assert known_duration.judge(reading).status is Status.OK


def test_a_launch_costs_its_kernel_on_the_device_and_its_enqueueing_on_the_host(gpu: Gpu) -> None:
    reading = tracing_cost.read_tracing_cost(gpu)

    assert reading.off == reading.on
    assert reading.on.device_ns == 900
    # The clock itself moves on by 1 us when it is read.
    assert reading.on.host_ns == HOST_NS + 1_000 / LAUNCHES


def test_a_host_too_slow_to_keep_ahead_is_refused_not_measured(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.doctor.untraced.LAUNCHES_COVER_NS", 10_000)

    with pytest.raises(MeasurementError, match=r"the host took 500\d ns for a launch"):
        read_launch_cost(gpu.stage())


def test_a_call_that_the_device_waited_for_has_no_time_by_events(gpu: Gpu) -> None:
    stage: Stage = gpu.stage()

    with pytest.raises(MeasurementError, match="the device was idle before the call was enqueued"):
        stage.by_events(Trial(prepare=lambda: None, call=lambda: stage.spin.launch(1)))


def test_a_call_whose_record_is_lost_has_no_time(gpu: Gpu, hardware: FakeHardware) -> None:
    gpu.cupti()
    hardware.cupti.report = only(["gemm"], zeroed)
    trial = Trial(prepare=lambda: gpu.stage().device.flush(10**6), call=hardware.gemm(gpu.stage().device))

    with pytest.raises(MeasurementError, match=f"{REPEATS} of {REPEATS} calls have no time by CUPTI: zero timestamp"):
        gpu.stage().by_both(gpu.cupti().session, trial)


def test_cold_and_warm_reads_are_apart_by_what_the_bytes_ask(gpu: Gpu) -> None:
    reading = l2.read_l2(gpu)

    num_bytes = 3 * L2_BYTES // 8
    assert reading.num_bytes == num_bytes
    assert reading.cold.cupti == LAUNCH_NS + num_bytes // 4_000
    assert reading.warm.cupti == reading.warm.events == LAUNCH_NS + num_bytes // 8_000
    assert reading.warm_pass_ns == num_bytes // 8_000
    assert reading.dirty.cupti == LAUNCH_NS + 2 * (num_bytes // 4_000)
    assert l2.judge_cold(reading).status is Status.OK
    assert l2.judge_clean(reading).status is Status.OK


def test_a_flush_that_leaves_operands_warm_fails(gpu: Gpu, hardware: FakeHardware) -> None:
    hardware.flush_leaves = None

    reading = l2.read_l2(gpu)

    assert reading.cold.cupti_ns[-1] == reading.warm.cupti
    assert l2.judge_cold(reading).status is Status.FAIL


def test_a_flush_that_leaves_dirty_lines_fails(gpu: Gpu, hardware: FakeHardware) -> None:
    hardware.flush_leaves = "dirty"

    assert l2.judge_clean(l2.read_l2(gpu)).status is Status.FAIL


def test_filling_the_queue_takes_the_hosts_gaps_away(gpu: Gpu) -> None:
    reading = prefill.read_prefill(gpu)

    assert reading.bare.cover_ns == 0
    assert reading.bare.gap_ns > 500_000
    assert reading.filled.cover_ns > reading.enqueue_ns
    assert reading.filled.gap_ns == 0
    assert reading.filled.busy_ns == prefill.KERNELS * (prefill.KERNEL_NS + 900)
    assert prefill.judge(reading).status is Status.OK


def test_a_load_has_the_probes_clock_the_drivers_states_and_its_energy(gpu: Gpu, hardware: FakeHardware) -> None:
    load = read_load(gpu, sleep=lambda seconds: None)

    assert load.probe_mhz == 1500
    assert len(load.states) == 20
    assert load.duration_ns > 20 * 30 * GEMM_NS
    assert load.energy_mj == pytest.approx(load.duration_ns * 650e-6, rel=1e-3)
    assert clocks.judge(load).status is thermal.judge(load).status is Status.OK


def test_a_floor_is_one_arm_twice_in_the_groups_of_each_regime(
    gpu: Gpu, hardware: FakeHardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = FakeArm("cublas_loop", spoil=lambda call, out: hardware.cupti.launch("gemm", 3_000_000))
    monkeypatch.setattr("harness.arms.load", lambda name: arm)
    monkeypatch.setattr(aa_floor, "find_case", lambda case_id: small_case())

    reading = aa_floor.read_floor(gpu, "fwd tiny")

    boost, sustained = reading.regimes
    assert boost.ratios == 24 * (1.0,)
    # The call is short by the host's clock, which the made-up GPU does not move.
    assert sustained.skipped.endswith("are measured in boost only")
    assert aa_floor.judge(reading).status is Status.NOTE


def test_an_arm_that_fails_is_the_floors_failure(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = FakeArm("cublas_loop", spoil=lambda call, out: out.mul_(2))
    monkeypatch.setattr("harness.arms.load", lambda name: wrong)
    monkeypatch.setattr(aa_floor, "find_case", lambda case_id: small_case())

    reading = aa_floor.read_floor(gpu, "fwd tiny")

    assert "cublas_loop: wrong: rel L2 1 is above" in reading.regimes[0].failure
    assert aa_floor.judge(reading).status is Status.FAIL


def test_the_rows_of_the_floor_are_in_the_suite_and_long_enough_for_blocks() -> None:
    found = [aa_floor.find_case(case_id) for case_id in aa_floor.CASE_IDS]

    assert [case.op for case in found] == ["fwd", "dW"]
    # 2 ms at 990 TFLOP/s, more than the GPU can do.
    assert all(case.flops > 2e-3 * 990e12 for case in found)


def test_a_baseline_says_its_libraries_and_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    arm = FakeArm("mine", reason="needs a GPU")
    monkeypatch.setattr(sys.modules[FakeArm.__module__], "DISTRIBUTION", "no-such-library", raising=False)

    reading = baselines.read_baseline(arm, machine(), (small_case("fwd"), small_case("dW")))

    assert reading == baselines.Baseline(arm="mine", libraries={}, why_not={"fwd": "needs a GPU", "dW": "needs a GPU"})


def test_an_arm_without_a_library_of_its_own_stands_on_torch() -> None:
    reading = baselines.read_baseline(FakeArm("mine"), machine(), (small_case("fwd"),))

    assert next(iter(reading.libraries)) == "torch"
    assert reading.why_not == {"fwd": ""}


def test_the_whole_list_runs_in_order_and_holds_on_a_sound_gpu(
    hardware: FakeHardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cupti_live, "version", PINNED.__getitem__)
    monkeypatch.setattr(drops, "prove", lambda timeout_s: DropProof(seen=0, dropped=30))
    monkeypatch.setattr(aa_floor, "measure_case", lambda case, *_, **__: MeasuredCase(rows=(skipped(case),)))

    examined = [examine(check) for check in checks.gpu_checks(hardware, allow_busy=False)]

    assert hardware.log == ["driver", "device", "session"]
    assert [(one.name, one.finding.status) for one in examined if not one.name.startswith("baseline")] == [
        ("alone on the GPU", "ok"),
        ("GPU settings", "ok"),
        ("drops counted", "ok"),
        ("machine", "ok"),
        ("CUPTI live", "ok"),
        ("CUPTI's own time", "note"),
        ("timers at 100 us", "ok"),
        ("timers at 1000 us", "ok"),
        ("cold L2", "ok"),
        ("flush reads only", "ok"),
        ("queue pre-fill", "ok"),
        ("clocks", "ok"),
        ("clock not locked", "ok"),
        ("thermal state", "ok"),
        ("A/A fwd", "note"),
        ("A/A dW", "note"),
    ]
    assert {one.name for one in examined if one.name.startswith("baseline")} >= {"baseline cudnn", "baseline quack"}
    hardware.cupti.synchronize()


def skipped(case: Case) -> Row:
    return Row(case=case, machine=0, regime="boost", n_groups=0, arms={}, skipped="too small")


def test_a_check_that_raises_fails_with_its_message_and_keeps_its_reading() -> None:
    def raises(*_: object) -> Finding:
        raise ZeroDivisionError("no rate\nsecond line")

    unread = examine(
        Check(name="a", advice="b", read=raises, judge=lambda reading: Finding(status=Status.OK, measured=""))
    )
    unjudged = examine(Check(name="a", advice="b", read=gpu_machine, judge=raises))

    assert unread.finding == unjudged.finding
    assert unread.finding.status is Status.FAIL
    assert unread.finding.measured == "ZeroDivisionError: no rate"
    assert (unread.reading, unjudged.reading) == (None, gpu_machine())


def test_what_is_shared_is_made_once_and_so_is_its_failure() -> None:
    made: list[int] = []

    def fails() -> int:
        made.append(1)
        raise MeasurementError("lost")

    once = Once(fails)
    for _ in range(2):
        with pytest.raises(MeasurementError, match="lost"):
            once()

    assert made == [1]


def test_what_is_shared_is_given_to_all() -> None:
    shared: Once[list[int]] = Once(lambda: [])

    assert shared() is shared()
