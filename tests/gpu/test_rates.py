"""What a real GPU's rates are: below its data sheet, and not far below."""

import pytest

from harness import devices, timers
from harness.protocols.paired_groups import Session
from harness.protocols.rates import measure_rates

pytestmark = pytest.mark.gpu


def test_both_rates_lie_between_half_of_the_peak_and_the_peak() -> None:
    device = devices.open_device("cuda")
    machine = device.machine
    if machine.peak_flops is None or machine.peak_bytes_per_s is None:
        pytest.skip(f"no peak is known of {machine.product}")

    rates = measure_rates(
        Session(timer=timers.open_timer("cuda_event", device), device=device, groups=6), machine=0, seed=0
    )

    print(f"{rates.plain_read.per_s / 1e12:.3f} TB/s, {rates.dense_mm.per_s / 1e12:.1f} TFLOP/s")
    assert 0.5 < rates.plain_read.per_s / machine.peak_bytes_per_s <= 1
    assert 0.5 < rates.dense_mm.per_s / machine.peak_flops <= 1
