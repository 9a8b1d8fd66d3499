import pytest
import torch

from harness.clock import RingClock
from harness.errors import MeasurementError

CPU = torch.device("cpu")


class FakeProbe:
    """Two SMs that run at 1500 MHz: 1500 cycles more, 1000 ns more, with every reading."""

    slots = 2

    def __init__(self) -> None:
        self.readings = 0

    def record(self, out: torch.Tensor) -> None:
        self.readings += 1
        out[0], out[1] = 1500 * self.readings, 1000 * self.readings


def test_the_clock_is_cycles_over_time_between_two_readings() -> None:
    clock = RingClock(FakeProbe(), CPU, capacity=4)

    before, after = clock.read(), clock.read()

    assert clock.clock_mhz(before, after) == 1500


def test_a_reading_that_was_overwritten_is_an_error() -> None:
    clock = RingClock(FakeProbe(), CPU, capacity=4)
    first = clock.read()
    others = [clock.read() for _ in range(3)]

    assert clock.clock_mhz(first, others[0]) == 1500
    clock.read()
    with pytest.raises(MeasurementError, match="reading 0 is gone, the ring keeps 4"):
        clock.clock_mhz(first, others[0])


def test_two_readings_that_do_not_tell_give_no_clock() -> None:
    class Stopped(FakeProbe):
        def record(self, out: torch.Tensor) -> None:
            out.fill_(7)

    clock = RingClock(Stopped(), CPU)

    assert clock.clock_mhz(clock.read(), clock.read()) is None
