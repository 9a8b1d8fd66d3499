"""The two rates that measured floors rest on: plain reads of memory, and a dense product, each timed as a row is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from harness.arms import Prepared
from harness.devices import Device
from harness.errors import MeasurementError
from harness.model.run import RATE_SAMPLES, Rate, Rates
from harness.protocols import paired_groups
from harness.protocols.paired_groups import Session
from harness.protocols.regimes import Boost


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is timed on a kind of device.

    Attributes
    ----------
    read_caches
        Bytes of a plain read, in sizes of the last-level cache: what a cold cache costs at its start does not matter.
    dense_size
        M, N and K of the dense product.
    """

    read_caches: int
    dense_size: int


WORK = {"cpu": Work(read_caches=4, dense_size=1024), "cuda": Work(read_caches=32, dense_size=8192)}
"""By kind of device: on an H200, 1.9 GiB and 1.1 TFLOP."""


def measure_rates(session: Session, *, machine: int, seed: int) -> Rates:
    """Measure both rates of the session's device, whose index in the run is ``machine``.

    Each is one call alone in its groups, in boost, by the session's timer: with the flush and the idle gap of a row,
    and measured again for what a row is measured again for.

    Parameters
    ----------
    seed
        Of the factors, which are standard normal: a product of zeros would take less power.

    Raises
    ------
    MeasurementError
        The tensors do not fit into the device's free memory, or a call has no time that can be one.
    """
    return Rates(machine=machine, plain_read=_plain_read(session), dense_mm=_dense_mm(session, seed=seed))


def _plain_read(session: Session) -> Rate:
    device = session.device
    num_bytes = -(-WORK[device.machine.device].read_caches * device.machine.cache_bytes // 16) * 16
    _refuse_too_large("plain_read", num_bytes, device)
    least_ns = device.machine.least_ns(num_bytes=num_bytes)
    return _timed("plain_read", device.reader(num_bytes), session, amount=num_bytes, least_ns=least_ns)


def _dense_mm(session: Session, *, seed: int) -> Rate:
    device = session.device
    n = WORK[device.machine.device].dense_size
    _refuse_too_large("dense_mm", 3 * 2 * n * n, device)
    generator = torch.Generator(device.torch_device).manual_seed(seed)
    a, b, out = (torch.empty(n, n, dtype=torch.bfloat16, device=device.torch_device) for _ in range(3))
    a.normal_(generator=generator)
    b.normal_(generator=generator)
    flops = 2 * n**3
    least_ns = device.machine.least_ns(flops=flops)
    return _timed("dense_mm", lambda: torch.mm(a, b, out=out), session, amount=flops, least_ns=least_ns)


def _timed(name: str, launch: Callable[[], torch.Tensor], session: Session, *, amount: int, least_ns: int) -> Rate:
    measured = paired_groups.measure(
        {name: Prepared(launch=launch, out=None)},
        Boost(),
        replace(session, groups=RATE_SAMPLES),
        floor_ns=least_ns,
        case_id=f"rate {name}",
    )
    if name in measured.failures:
        raise MeasurementError(
            f"--floors: {name} has no time: {measured.failures[name]}; without its rate there is no floor, so mend that"
            " or leave out --floors"
        )
    return Rate(
        amount=amount,
        samples=measured.samples,
        discarded=measured.discarded,
        states=measured.states,
        records=measured.records,
        kernels=measured.kernels,
    )


def _refuse_too_large(name: str, num_bytes: int, device: Device) -> None:
    free = device.free_bytes()
    if num_bytes > free:
        raise MeasurementError(
            f"--floors: {name} needs {num_bytes / 2**30:.2f} GiB of device memory, {free / 2**30:.2f} GiB are free;"
            " free some, or leave out --floors"
        )
