"""The clock between two probes, and probe.cu itself, without a GPU."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cake_kernels import jit
from cake_kernels.cubin_cache import CubinCache
from harness import probe
from harness.errors import MeasurementError
from harness.probe import ClockProbe, ReadFlush, Spin, clock_mhz

NOW_NS = 1_790_000_000_000_000_000


def pair(mhz: list[float], ns: int = 1_000_000) -> tuple[np.ndarray, np.ndarray]:
    """Two probes ``ns`` apart of SMs that ran at ``mhz``."""
    begin = np.array([[1000 * (sm + 1) for sm in range(len(mhz))], [NOW_NS] * len(mhz)], dtype=np.int64)
    end = begin + np.array([[round(f * ns / 1000) for f in mhz], [ns] * len(mhz)], dtype=np.int64)
    return begin, end


def test_the_clock_is_the_median_over_the_sms() -> None:
    assert clock_mhz(*pair([1400, 1410, 1980])) == 1410


def test_an_even_number_of_sms_gives_the_middle_rounded() -> None:
    assert clock_mhz(*pair([1400, 1410, 1421, 1980])) == 1416


def test_the_timers_epoch_does_not_cost_precision() -> None:
    assert clock_mhz(*pair([1980], ns=1000)) == 1980


def test_an_sm_that_one_probe_has_not_seen_does_not_count() -> None:
    before, after = pair([1400, 1500, 1980])
    before[:, 1] = 0
    after[:, 2] = 0

    assert clock_mhz(before, after) == 1400


def test_tensors_are_taken_too() -> None:
    before, after = pair([1755])

    assert clock_mhz(torch.from_numpy(before), torch.from_numpy(after)) == 1755


def test_no_common_sm_is_an_error() -> None:
    before, after = pair([1400, 1500])
    before[:, 0] = 0
    after[:, 1] = 0

    with pytest.raises(MeasurementError, match="no SM is in both probes"):
        clock_mhz(before, after)


@pytest.mark.parametrize(("row", "says"), [(0, "0 cycles in 1000000 ns"), (1, "1500000 cycles in 0 ns")])
def test_a_counter_that_stands_still_is_an_error(row: int, says: str) -> None:
    before, after = pair([1400, 1500])
    after[row, 1] = before[row, 1]

    with pytest.raises(MeasurementError, match=f"SM 1 went {says}; both must be above 0"):
        clock_mhz(before, after)


def test_probes_in_the_wrong_order_are_an_error() -> None:
    before, after = pair([1400])

    with pytest.raises(MeasurementError, match="-1400000 cycles in -1000000 ns"):
        clock_mhz(after, before)


def test_probes_of_two_shapes_are_an_error() -> None:
    with pytest.raises(MeasurementError, match=r"one shape \[2, slots\] are needed, got \(2, 2\), \(2, 3\)"):
        clock_mhz(np.ones((2, 2)), np.ones((2, 3)))


@given(st.lists(st.floats(200, 2100), min_size=1, max_size=200), st.integers(100_000, 10_000_000_000))
def test_the_clock_lies_within_those_of_the_sms(mhz: list[float], ns: int) -> None:
    assert round(min(mhz) - 0.01) <= clock_mhz(*pair(mhz, ns)) <= round(max(mhz) + 0.01)


@pytest.mark.parametrize("kind", [ClockProbe, ReadFlush, Spin])
def test_a_cpu_is_refused(kind: type) -> None:
    with pytest.raises(ValueError, match="run on a CUDA device, got cpu"):
        kind(torch.device("cpu"))


@pytest.mark.parametrize("kind", [ClockProbe, ReadFlush, Spin])
def test_nothing_is_asked_of_the_driver_before_a_launch(kind: type) -> None:
    assert kind(torch.device("cuda", 0)).device == torch.device("cuda", 0)


@pytest.mark.parametrize("ns", [-1, probe.MAX_SPIN_NS + 1])
def test_a_spin_out_of_range_is_refused(ns: int) -> None:
    with pytest.raises(ValueError, match=rf"must be in 0..10000000000, got {ns}"):
        Spin(torch.device("cuda", 0)).launch(ns)


def test_a_flush_reads_at_least_once() -> None:
    with pytest.raises(ValueError, match="repeat must be in"):
        ReadFlush(torch.device("cuda", 0)).launch(repeat=0)


def test_a_flush_reads_at_least_four_times_the_l2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "facts", lambda index: SimpleNamespace(l2_bytes=60 << 20))

    assert ReadFlush(torch.device("cuda", 0)).num_bytes >= 4 * (60 << 20)


@pytest.mark.parametrize("num_bytes", [0, 17])
def test_a_flush_reads_whole_vectors(num_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"positive multiple of 16, got {num_bytes}"):
        assert ReadFlush(torch.device("cuda", 0), num_bytes).num_bytes


def test_probe_cu_compiles_for_sm_90a_without_local_memory() -> None:
    cubin = jit.compile(
        probe.SOURCE, arch="sm_90a", include=(), options=("--ptxas-options=-v",), cache=CubinCache(None)
    )

    assert {name for name in ("probe", "read_flush", "spin") if f".text.{name}\0".encode() in cubin.code} == {
        "probe",
        "read_flush",
        "spin",
    }
    stacks = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", cubin.log)
    assert stacks == 3 * [("0", "0", "0")]
