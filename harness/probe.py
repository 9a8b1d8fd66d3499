"""The GPU kernels that measuring needs: SM clock around a call, a reading flush, a wait of known length.

Each class compiles, loads and allocates at its first launch, never before: have that one before a capture begins.
A launch then costs the host a few microseconds, allocates nothing and does not wait. ``stream`` is a handle (torch's
``Stream.cuda_stream``) of the device; by default the current stream's, and looking that up is a third of the cost.
"""

from __future__ import annotations

import ctypes
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike

from cake_kernels import jit
from cake_kernels.device import DeviceFacts, facts
from harness.errors import MeasurementError

SOURCE = Path(__file__).parent / "cuda" / "probe.cu"

FLUSH_FACTOR = 4
"""A flush reads this many times the L2: what a cache with imperfect replacement needs to forget all."""

_VECTOR_BYTES = 16
_FLUSH_THREADS = 512
_FLUSH_BLOCKS_PER_SM = 4

MAX_SPIN_NS = 10_000_000_000
"""Longest wait that :class:`Spin` takes: an unfinished kernel cannot be interrupted."""


def clock_mhz(before: ArrayLike, after: ArrayLike) -> int:
    """Return the mean SM clock between two probes, in MHz: the median over the SMs that both have seen.

    Parameters
    ----------
    before, after
        Integers [2, slots] as :meth:`ClockProbe.record` writes them, on the host: cycles and ns of each SM, zeros where
        a probe has not seen one.

    Raises
    ------
    MeasurementError
        No SM is in both, or on some SM the clock or the timer did not go forward.
    """
    first, last = np.asarray(before, dtype=np.int64), np.asarray(after, dtype=np.int64)
    if first.shape != last.shape or first.ndim != 2 or len(first) != 2:
        raise MeasurementError(f"clock: two probes of one shape [2, slots] are needed, got {first.shape}, {last.shape}")
    in_both = (first[1] != 0) & (last[1] != 0)
    if not in_both.any():
        raise MeasurementError("clock: no SM is in both probes; a probe that was launched fills its tensor")
    cycles, ns = (last - first)[:, in_both]
    if (cycles <= 0).any() or (ns <= 0).any():
        sm = int(np.flatnonzero(in_both)[np.flatnonzero((cycles <= 0) | (ns <= 0))[0]])
        at = f"{last[0, sm] - first[0, sm]} cycles in {last[1, sm] - first[1, sm]} ns"
        raise MeasurementError(f"clock: from the first probe to the second SM {sm} went {at}; both must be above 0")
    return round(float(np.median(1000 * cycles / ns)))


class ClockProbe:
    """Writes cycle counter and time of every SM; two of them around a call give its :func:`clock_mhz`."""

    def __init__(self, device: torch.device) -> None:
        self.device = _indexed(device)
        self._out = ctypes.c_void_p()

    @cached_property
    def slots(self) -> int:
        """SMs of the device: the columns of what :meth:`record` writes."""
        return self._facts.sms

    def record(self, out: torch.Tensor, stream: int | None = None) -> None:
        """Enqueue a probe.

        Parameters
        ----------
        out
            int64 [2, slots], contiguous, on the device, zeros before its first use. Row 0 gets each SM's clock64, row 1
            its globaltimer in ns. Busy SMs that another stream does not let go of keep what they had.
        """
        if out.dtype is not torch.int64 or out.shape != (2, self.slots) or out.device != self.device:
            raise ValueError(
                f"out must be int64 [2, {self.slots}] on {self.device},"
                f" got {out.dtype} {list(out.shape)} on {out.device}"
            )
        if not out.is_contiguous():
            raise ValueError(f"out must be contiguous, got stride {out.stride()}")
        self._out.value = out.data_ptr()
        self._launch(torch.cuda.current_stream(self.device).cuda_stream if stream is None else stream)

    @cached_property
    def _facts(self) -> DeviceFacts:
        return facts(self.device.index)

    @cached_property
    def _launch(self) -> jit.Launch:
        # All the shared memory that a block can have: no SM takes a second block, so each of the grid's has its own.
        kernel = _module(self.device.index).kernel("probe", smem_bytes=self._facts.smem_bytes)
        return kernel.bind(self._out, ctypes.c_uint32(self.slots), grid=(self.slots, 1, 1), block=(1, 1, 1))


class ReadFlush:
    """Makes the L2 forget by reading through a buffer that nothing ever writes: no dirty line is left behind.

    Parameters
    ----------
    num_bytes
        Size of the buffer, a multiple of 16; by default :data:`FLUSH_FACTOR` times the L2. It is allocated, and filled
        with zeros, by the first launch.
    """

    def __init__(self, device: torch.device, num_bytes: int | None = None) -> None:
        self.device = _indexed(device)
        self._asked_bytes = num_bytes
        self._repeat = ctypes.c_uint32(1)

    def launch(self, repeat: int = 1, stream: int | None = None) -> None:
        """Enqueue ``repeat`` passes over the buffer, at least one, in one kernel."""
        if not 1 <= repeat < 2**32:
            raise ValueError(f"repeat must be in 1..2**32 - 1, got {repeat}")
        self._repeat.value = repeat
        self._launch(torch.cuda.current_stream(self.device).cuda_stream if stream is None else stream)

    @cached_property
    def num_bytes(self) -> int:
        """Bytes that one pass reads."""
        least = FLUSH_FACTOR * facts(self.device.index).l2_bytes if self._asked_bytes is None else self._asked_bytes
        if least < _VECTOR_BYTES or least % _VECTOR_BYTES:
            raise ValueError(f"num_bytes must be a positive multiple of {_VECTOR_BYTES}, got {least}")
        return least

    @cached_property
    def buffer(self) -> torch.Tensor:
        """What is read: uint8 [num_bytes], zeros."""
        return torch.zeros(self.num_bytes, dtype=torch.uint8, device=self.device)

    @cached_property
    def sink(self) -> torch.Tensor:
        """int32 []: threads whose words summed to one; none do, as the buffer is zeros."""
        return torch.zeros((), dtype=torch.int32, device=self.device)

    @cached_property
    def _launch(self) -> jit.Launch:
        return (
            _module(self.device.index)
            .kernel("read_flush")
            .bind(
                ctypes.c_void_p(self.buffer.data_ptr()),
                ctypes.c_uint64(self.num_bytes // _VECTOR_BYTES),
                self._repeat,
                ctypes.c_uint32(1),
                ctypes.c_void_p(self.sink.data_ptr()),
                grid=(_FLUSH_BLOCKS_PER_SM * facts(self.device.index).sms, 1, 1),
                block=(_FLUSH_THREADS, 1, 1),
            )
        )


class Spin:
    """Keeps the device busy for a known time, with one thread."""

    def __init__(self, device: torch.device) -> None:
        self.device = _indexed(device)
        self._ns = ctypes.c_int64()

    def launch(self, ns: int, stream: int | None = None) -> None:
        """Enqueue a kernel that ends ``ns`` after it began, by the device's own clock."""
        if not 0 <= ns <= MAX_SPIN_NS:
            raise ValueError(f"ns of a spin must be in 0..{MAX_SPIN_NS}, got {ns}")
        self._ns.value = ns
        self._launch(torch.cuda.current_stream(self.device).cuda_stream if stream is None else stream)

    @cached_property
    def _launch(self) -> jit.Launch:
        return _module(self.device.index).kernel("spin").bind(self._ns, grid=(1, 1, 1), block=(1, 1, 1))


def _indexed(device: torch.device) -> torch.device:
    if device.type != "cuda":
        raise ValueError(f"the probe, the flush and the spin run on a CUDA device, got {device}")
    return device if device.index is not None else torch.device("cuda", torch.cuda.current_device())


@cache
def _module(index: int) -> jit.Module:
    return jit.load(jit.compile(SOURCE, arch=facts(index).arch, include=()), device=index)
