"""The flush on the real device: a read is slow after it and fast without it."""

from collections.abc import Callable
from importlib import import_module

import pytest
import torch

from harness import devices
from harness.errors import MeasurementError
from harness.probe import ReadFlush, Spin

pytestmark = pytest.mark.gpu


def events_around(call: Callable[[], object], *, cover_ns: int = 1_000_000) -> float:
    """Return the milliseconds of ``call``, enqueued while the device is busy: an empty queue would time the host."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    Spin(torch.device("cuda", 0)).launch(cover_ns)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def test_a_read_is_slower_after_the_flush_than_before_it() -> None:
    device = devices.open_device("cuda")
    # Less than half of the L2, each half of which may keep its own copy; a plain sum would be bound by its own pace.
    read = ReadFlush(device.torch_device, 22 << 20).launch

    warm, cold = [], []
    for _ in range(20):
        read()
        warm.append(events_around(read))
        device.flush()
        cold.append(events_around(read))

    print(f"22 MiB read warm {sorted(warm)[10]:.4f} ms, cold {sorted(cold)[10]:.4f} ms")
    assert sorted(cold)[10] > 1.2 * sorted(warm)[10]


def test_the_flush_lasts_as_long_as_it_is_asked_to_cover() -> None:
    device = devices.open_device("cuda")

    lasted_ms = events_around(lambda: device.flush(cover_ns=2_000_000))

    assert 1.9 < lasted_ms < 2.4


def test_a_part_of_the_l2_that_is_set_aside_is_found_and_given_up_by_the_next_device() -> None:
    driver = import_module("cuda.bindings.driver")
    device = devices.open_device("cuda")
    limit = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    assert driver.cuCtxSetLimit(limit, 1 << 20) == (driver.CUresult.CUDA_SUCCESS,)

    with pytest.raises(MeasurementError, match="none of the L2 may be set aside"):
        device.synchronize()

    devices.open_device("cuda").synchronize()
