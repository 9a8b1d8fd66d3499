"""Each judge at its limit, from both sides."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cupti_session import PINNED
from harness.doctor import (
    aa_floor,
    baselines,
    clocks,
    cpu_cold,
    cpu_timer,
    cupti_live,
    known_duration,
    l2,
    locked,
    newest,
    prefill,
    processes,
    settings,
    thermal,
)
from harness.doctor.aa_floor import AaFloor, AaRegime
from harness.doctor.baselines import Baseline
from harness.doctor.cpu_cold import CpuCold
from harness.doctor.cpu_timer import CpuSpins
from harness.doctor.cupti_live import CuptiLive
from harness.doctor.known_duration import KnownDuration
from harness.doctor.prefill import Filling, Prefill
from harness.doctor.processes import Processes
from harness.doctor.settings import Settings
from harness.monitor import ABNORMAL, THROTTLE_REASONS
from tests.unit.doctor_readings import SETTINGS, caches, load, state, times


@pytest.mark.parametrize(
    ("cupti_ns", "events_ns", "status"),
    [
        (100_000, 100_000, "ok"),
        (98_000, 100_000, "ok"),
        (97_999, 100_000, "FAIL"),
        (105_000, 105_000, "ok"),
        (105_001, 105_000, "FAIL"),
        (100_000, 110_000, "ok"),
        (100_000, 110_001, "FAIL"),
        (98_500, 109_000, "FAIL"),  # each within its limit, and too far apart
        (101_000, 98_999, "FAIL"),
    ],
)
def test_a_timers_error_has_a_limit_on_either_side(cupti_ns: int, events_ns: int, status: str) -> None:
    reading = KnownDuration(ns=100_000, cupti_ns=(cupti_ns,) * 3, events_ns=(events_ns,) * 3)

    assert known_duration.judge(reading).status == status


def test_one_call_off_does_not_condemn_a_timer_and_most_of_them_do() -> None:
    sound, off = 100_500, 190_000

    one = KnownDuration(ns=100_000, cupti_ns=(sound, sound, off), events_ns=(sound,) * 3)
    most = KnownDuration(ns=100_000, cupti_ns=(sound, off, off), events_ns=(sound,) * 3)

    assert known_duration.judge(one).status == "ok"
    assert known_duration.judge(most).status == "FAIL"


# 22 MiB at 960 MiB in 234 us take 5362.5 ns, a warm pass 3550 ns: half of what lies between is 906.25 ns.
@pytest.mark.parametrize(
    ("cupti_ns", "events_ns", "status"),
    [(6_707, 10_207, "ok"), (6_706, 10_207, "FAIL"), (6_707, 10_206, "FAIL")],
)
def test_cold_must_be_slower_by_half_of_what_the_bytes_ask_by_either_timer(
    cupti_ns: int, events_ns: int, status: str
) -> None:
    reading = caches(cold=times(cupti_ns, events_ns))

    assert reading.memory_pass_ns == pytest.approx(5362.5)
    assert reading.warm_pass_ns == 3550
    assert l2.judge_cold(reading).status == status


def test_a_memory_faster_than_its_data_sheet_is_a_broken_reading() -> None:
    finding = l2.judge_cold(caches(stream=times(190_000, 190_000)))

    assert (finding.status, finding.limit) == ("FAIL", "memory at most 5.04 TB/s")
    assert l2.judge_cold(caches(stream=times(190_000, 190_000), peak_bytes_per_s=None)).status == "ok"


@pytest.mark.parametrize("warm_long_ns", [5_800, 5_700, 5_800 + 8 * 5_363])
def test_an_l2_that_is_no_faster_than_memory_proves_nothing(warm_long_ns: int) -> None:
    finding = l2.judge_cold(caches(warm_long=times(warm_long_ns, warm_long_ns), cold=times(90_000, 90_000)))

    assert (finding.status, finding.limit) == ("FAIL", "the L2 faster than memory, else nothing shows")


# An eighth of 5362.5 ns.
@pytest.mark.parametrize(("dirty_ns", "status"), [(9_571, "ok"), (9_570, "FAIL")])
def test_write_backs_must_show_after_a_write_and_not_after_the_flush(dirty_ns: int, status: str) -> None:
    assert l2.judge_clean(caches(dirty=times(dirty_ns, dirty_ns))).status == status


@pytest.mark.parametrize(("gap_ns", "status"), [(400_000, "ok"), (400_001, "FAIL")])
def test_filling_must_halve_the_gap(gap_ns: int, status: str) -> None:
    bare = Filling(span_ns=860_000, busy_ns=60_000, cover_ns=0)
    filled = Filling(span_ns=60_000 + gap_ns, busy_ns=60_000, cover_ns=10**6)

    assert prefill.judge(Prefill(enqueue_ns=900_000, bare=bare, filled=filled)).status == status


@pytest.mark.parametrize(
    ("probe_mhz", "status"), [(2078, "ok"), (2080, "FAIL"), (1882, "ok"), (1880, "FAIL"), (None, "FAIL")]
)
def test_clocks_agree_within_a_twentieth_under_a_light_load(probe_mhz: int | None, status: str) -> None:
    assert clocks.judge(load(light_probe_mhz=probe_mhz)).status == status


def test_under_the_power_cap_the_drivers_clock_is_shown_beside_the_probes_and_not_held_against_it() -> None:
    finding = clocks.judge(load(probe_mhz=1332, states=(state(1463),)))

    assert finding.status == "ok"
    assert "under full load 1332 MHz, NVML 1463 MHz" in finding.measured
    assert clocks.judge(load(probe_mhz=None)).status == "FAIL"


def test_an_energy_counter_that_stands_still_fails_and_so_does_a_clock_of_zero() -> None:
    assert clocks.judge(load(energy_mj=0)).status == "FAIL"
    assert clocks.judge(load(states=(state(0),))).status == "FAIL"
    assert clocks.judge(load(light_states=(state(0),))).status == "FAIL"


@pytest.mark.parametrize(("clock_mhz", "status"), [(1980, "ok"), (1782, "ok"), (1781, "FAIL"), (0, "FAIL")])
def test_a_clock_that_stays_low_under_a_light_load_is_locked(clock_mhz: int, status: str) -> None:
    light = (state(clock_mhz, throttle=()), state(clock_mhz, throttle=("application clocks",)))

    assert locked.judge(load(light_states=light)).status == status


@pytest.mark.parametrize("reason", ["power cap", *ABNORMAL])
def test_a_clock_that_power_or_heat_holds_down_is_a_note(reason: str) -> None:
    finding = locked.judge(load(light_states=(state(1410, throttle=(reason,)), state(1410, throttle=()))))

    assert finding.status == "note"
    assert finding.measured == f"light load: 1410 MHz of at most 1980 MHz; held down by power or heat: {reason}"
    assert locked.judge(load(light_states=(state(1980, throttle=(reason,)),))).status == "ok"


@pytest.mark.parametrize("reason", THROTTLE_REASONS.values())
def test_only_what_is_not_normal_under_load_fails(reason: str) -> None:
    finding = thermal.judge(load(states=(state(), state(throttle=(reason,)), state())))

    assert finding.status == ("FAIL" if reason in ABNORMAL else "ok")
    assert reason in finding.measured


@pytest.mark.parametrize(
    ("boost", "sustained", "status"),
    [
        (1.0049, 1.0099, "ok"),
        (0.9951, 0.9901, "ok"),
        (1.0051, 1.0, "FAIL"),
        (0.9949, 1.0, "FAIL"),
        (1.0, 1.0101, "FAIL"),
    ],
)
def test_each_regime_has_its_floor(boost: float, sustained: float, status: str) -> None:
    reading = AaFloor(
        case="fwd tiny",
        arm="cublas_loop",
        regimes=(
            AaRegime(regime="boost", ratios=(0.9, boost, 1.1)),
            AaRegime(regime="sustained", ratios=(0.9, sustained, 1.1)),
        ),
    )

    assert aa_floor.judge(reading).status == status


@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=30))
def test_a_floor_that_holds_is_one_whose_median_is_within_the_limit(ratios: list[float]) -> None:
    reading = AaFloor(case="fwd tiny", arm="a", regimes=(AaRegime(regime="boost", ratios=tuple(ratios)),))
    ordered = sorted(ratios)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2

    assert (aa_floor.judge(reading).status == "ok") == (abs(middle - 1) <= 0.005)


def test_a_regime_that_was_not_measured_is_a_note_unless_another_fails() -> None:
    short = AaRegime(regime="sustained", skipped="a call takes 1 ms")
    sound, failed = AaRegime(regime="boost", ratios=(1.0,)), AaRegime(regime="boost", failure="out of memory")

    assert aa_floor.judge(AaFloor(case="c", arm="a", regimes=(sound, short))).status == "note"
    assert aa_floor.judge(AaFloor(case="c", arm="a", regimes=(failed, short))).status == "FAIL"


@pytest.mark.parametrize(
    ("foreign", "allowed", "status"),
    [((), False, "ok"), ((), True, "ok"), ((7,), False, "FAIL"), ((7,), True, "note")],
)
def test_company_on_the_gpu_fails_unless_it_is_allowed_and_is_named_either_way(
    foreign: tuple[int, ...], allowed: bool, status: str
) -> None:
    finding = processes.judge(Processes(foreign=foreign, allowed=allowed))

    assert finding.status == status
    assert ("(pid 7)" in finding.measured) == bool(foreign)


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("MIG", "on", "note"),
        ("MPS", "on", "note"),
        ("ECC", "off", "note"),
        ("persistence", "off", "note"),
        ("clocks", "unknown (Not Supported)", "note"),
        ("power limit", "unknown (Not Supported)", "note"),
        ("power limit", "500 W", "ok"),
    ],
)
def test_a_setting_that_is_unusual_or_unknown_is_a_note(name: str, value: str, status: str) -> None:
    finding = settings.judge(Settings(values=SETTINGS | {name: value}))

    assert finding.status == status
    assert f"{name} {value}" in finding.measured


@pytest.mark.parametrize(
    ("versions", "probes", "status"),
    [
        (PINNED, 1, "ok"),
        (PINNED, 3, "ok"),
        (PINNED, 0, "FAIL"),
        (PINNED | {"nvidia-cuda-cupti": "13.0.48"}, 1, "FAIL"),
        ({"cupti-python": "13.0.1"}, 1, "FAIL"),
    ],
)
def test_cupti_is_live_with_the_pinned_pair_and_a_probe(versions: dict[str, str], probes: int, status: str) -> None:
    assert cupti_live.judge(CuptiLive(versions=versions, probes=probes, unfiltered=())).status == status


@pytest.mark.parametrize(("off_ns", "status"), [(100_000, "ok"), (100_001, "FAIL"), (-100_001, "FAIL")])
def test_the_cpu_timer_is_compared_call_by_call(off_ns: int, status: str) -> None:
    known = (10_000_000, 14_000_000, 10_000_050)

    reading = CpuSpins(known_ns=known, timer_ns=tuple(ns + off_ns for ns in known))

    assert cpu_timer.judge(reading).status == status


def test_cold_caches_are_judged_by_the_fastest_reads_and_need_a_flush_larger_than_the_cache() -> None:
    sound = CpuCold(
        num_bytes=1, cache_bytes=10, flush_bytes=20, cold_ns=(30, 15, 90), warm_ns=(10, 500)
    )  # fmt: skip

    assert cpu_cold.judge(sound).status == "ok"
    assert cpu_cold.judge(replace(sound, cold_ns=(30, 14, 90))).status == "FAIL"
    assert cpu_cold.judge(replace(sound, flush_bytes=10)).status == "FAIL"


@pytest.mark.parametrize(
    ("version", "old"),
    [("2.11.0", True), ("2.15.0+cu130", False), ("2.9.1", True), ("2.15.1", False), ("3.0.0a1", False), ("2.15", True)],
)
def test_versions_are_compared_as_numbers(version: str, old: bool) -> None:
    assert newest.is_old("torch", version) is old


def test_a_library_that_the_table_does_not_have_is_never_old() -> None:
    assert not newest.is_old("triton", "0.1")


def test_an_old_baseline_is_named_in_words_with_the_day_of_the_table() -> None:
    reading = Baseline(arm="a", libraries={"torch": "2.11.0"}, why_not={"fwd": "", "dW": "no such node"})

    finding = baselines.judge(reading)

    assert finding.status == "note"
    assert finding.measured == (
        f"torch 2.11.0; newer exists (2.15.0 on {newest.AS_OF}); does fwd; cannot do dW: no such node"
    )


def test_every_limit_of_the_floor_has_its_groups() -> None:
    assert aa_floor.GROUPS.keys() == aa_floor.LIMITS.keys()
