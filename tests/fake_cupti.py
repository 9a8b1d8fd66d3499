# ruff: noqa: N801, N815 - names are the binding's
"""A GPU and its CUPTI without either: a queue that kernels are launched into, and the binding that reports them.

It keeps the rules that the collector depends on: an external id goes to API calls that are traced; enabling RUNTIME or
DRIVER undoes the filter; records come shuffled over buffers and only when flushed; reading the drop counter resets it.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from tests.bench import QuietDevice

EPOCH_NS = 1_700_000_000_000_000_000
SMALLEST_RECORD_BYTES = 32
HOST_NS = 5_000
"""What one launch costs the host."""


class ActivityKind(IntEnum):
    MEMCPY = 1
    MEMSET = 2
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    EXTERNAL_CORRELATION = 39


class ExternalCorrelationKind(IntEnum):
    OPENACC = 2
    CUSTOM0 = 3


class runtime_api_trace_cbid(IntEnum):
    INVALID = 0
    cudaMemsetAsync_v3020 = 51
    cudaStreamSynchronize_v3020 = 131
    __cudaPushCallConfiguration_v13000 = 502
    __cudaLaunchKernel_v13000 = 505
    SIZE = 523
    FORCE_INT = 0x7FFFFFFF


class driver_api_trace_cbid(IntEnum):
    INVALID = 0
    cuCtxSynchronize = 17
    cuLaunchKernelEx = 652
    SIZE = 807
    FORCE_INT = 0x7FFFFFFF


class cuptiError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"ERROR ({status})")
        self.status = status


class NotSupportedError(RuntimeError):
    """What the binding raises without a driver: no cuptiError."""


@dataclass(frozen=True)
class Launched:
    """What the device did, before CUPTI gets to report it."""

    name: str
    start: int
    end: int
    kind: int = ActivityKind.CONCURRENT_KERNEL


class FakeCupti:
    """Stands in for the module ``cupti.cupti``; ``launch`` and ``synchronize`` are the device's side."""

    ActivityKind = ActivityKind
    ExternalCorrelationKind = ExternalCorrelationKind
    runtime_api_trace_cbid = runtime_api_trace_cbid
    driver_api_trace_cbid = driver_api_trace_cbid
    cuptiError = cuptiError

    def __init__(self) -> None:
        self.report: Callable[[Launched], Launched | None] = lambda launched: launched
        """What CUPTI makes of a launch: itself, another one, or None where its record is lost."""
        self.dropped: int | None = 0
        self.counts_drops = True
        self.empty_flushes = 0
        """So many of the next flushes deliver nothing and forget what there was."""
        self.refuse: dict[str, Exception] = {}
        """Function -> what it raises."""
        self.log: list[str] = []
        self.now = EPOCH_NS
        self._free_at = EPOCH_NS
        self._ids: list[int] = []
        self._correlation = 0
        self._enabled: set[int] = set()
        self._untraced: set[tuple[type[IntEnum], int]] = set()
        self._buffer_bytes = 0
        self._pending: list[SimpleNamespace] = []
        self._completed: Callable[[list[Any]], None] | None = None
        self._random = random.Random(0)

    # The device

    def launch(self, name: str, ns: int, *, api: str = "runtime", kind: int = ActivityKind.CONCURRENT_KERNEL) -> None:
        """Launch work of ``ns`` through an API: ``runtime``, ``driver``, or ``thread``: another thread's, no id."""
        self.now += HOST_NS
        self._correlation += 1
        start = max(self.now, self._free_at)
        self._free_at = start + ns
        cbids, cbid = {
            "runtime": (runtime_api_trace_cbid, 505),
            "driver": (driver_api_trace_cbid, 652),
            "thread": (runtime_api_trace_cbid, 505),
        }[api]
        self._trace_api(cbids, cbid, with_id=api != "thread")
        reported = self.report(Launched(name=name, start=start, end=self._free_at, kind=kind))
        if reported is not None and reported.kind in self._enabled:
            self._pending.append(
                SimpleNamespace(
                    kind=int(reported.kind),
                    correlation_id=self._correlation,
                    start=reported.start,
                    end=reported.end,
                    stream_id=7,
                    graph_node_id=0,
                    name=reported.name,
                    bytes=0,
                )
            )

    def synchronize(self) -> None:
        self.now = max(self.now, self._free_at) + HOST_NS

    def traced(self) -> set[str]:
        """Names of the APIs that are traced now, of both kinds; those of private names without their underscores."""
        kinds = {ActivityKind.RUNTIME: runtime_api_trace_cbid, ActivityKind.DRIVER: driver_api_trace_cbid}
        apis = [
            (cbids, name.rpartition("__")[2], int(value))
            for kind, cbids in kinds.items()
            if kind in self._enabled
            for name, value in [*cbids.__members__.items(), *vars(cbids).items()]
            if name in cbids.__members__ or name.startswith(f"_{cbids.__name__}__")
        ]
        return {name for cbids, name, cbid in apis if cbid not in self._no_api(cbids)} - {
            name for cbids, name, cbid in apis if (cbids, cbid) in self._untraced
        }

    @staticmethod
    def _no_api(cbids: type[IntEnum]) -> tuple[int, ...]:
        return (cbids["INVALID"], cbids["SIZE"], cbids["FORCE_INT"])

    def _trace_api(self, cbids: type[IntEnum], cbid: int, *, with_id: bool) -> None:
        kind = ActivityKind.RUNTIME if cbids is runtime_api_trace_cbid else ActivityKind.DRIVER
        if kind not in self._enabled or (cbids, cbid) in self._untraced:
            return
        self._pending.append(SimpleNamespace(kind=int(kind), correlation_id=self._correlation))
        if with_id and self._ids and ActivityKind.EXTERNAL_CORRELATION in self._enabled:
            self._pending.append(
                SimpleNamespace(
                    kind=int(ActivityKind.EXTERNAL_CORRELATION),
                    external_kind=int(ExternalCorrelationKind.CUSTOM0),
                    correlation_id=self._correlation,
                    external_id=self._ids[-1],
                )
            )

    # The binding

    def activity_register_callbacks(
        self, requested: Callable[[], tuple[int, int]], completed: Callable[[list[Any]], None]
    ) -> None:
        self._call("activity_register_callbacks")
        assert self._completed is None, "callbacks are registered once a process"
        self._buffer_bytes, most = requested()
        assert most == 0
        self._completed = completed

    def activity_enable(self, kind: int) -> None:
        self._call("activity_enable")
        self._enabled.add(kind)
        undone = {ActivityKind.RUNTIME: runtime_api_trace_cbid, ActivityKind.DRIVER: driver_api_trace_cbid}
        self._untraced = {
            (cbids, cbid) for cbids, cbid in self._untraced if undone.get(ActivityKind(kind)) is not cbids
        }

    def activity_disable(self, kind: int) -> None:
        self._call("activity_disable")
        self._enabled.remove(kind)

    def activity_enable_runtime_api(self, cbid: int, enable: int) -> None:
        self._filter(runtime_api_trace_cbid, cbid, enable)

    def activity_enable_driver_api(self, cbid: int, enable: int) -> None:
        self._filter(driver_api_trace_cbid, cbid, enable)

    def _filter(self, cbids: type[IntEnum], cbid: int, enable: int) -> None:
        if cbid in self._no_api(cbids):
            raise cuptiError(1)
        assert enable == 0
        self._untraced.add((cbids, cbid))

    def activity_push_external_correlation_id(self, kind: int, identity: int) -> None:
        assert kind == ExternalCorrelationKind.CUSTOM0
        self._ids.append(identity)

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        return self._ids.pop()

    def activity_flush_all(self, flag: int) -> None:
        self._call("activity_flush_all")
        assert flag == 1
        assert self.is_idle, "flushed before the device was done"
        pending, self._pending = self._pending, []
        if self.empty_flushes and pending:
            self.empty_flushes -= 1
            return
        if self._buffer_bytes < SMALLEST_RECORD_BYTES:
            if self.dropped is not None and self.counts_drops:
                self.dropped += len(pending)
            return
        self._random.shuffle(pending)
        for buffer in (pending[0::2], pending[1::2]):
            self.deliver(buffer)

    def deliver(self, buffer: list[Any]) -> None:
        assert self._completed is not None
        self._completed(buffer)

    def activity_get_num_dropped_records(self, context: int, stream_id: int, dropped: int) -> None:
        self._call("activity_get_num_dropped_records")
        assert (context, stream_id) == (0, 0)
        if self.dropped is not None:
            ctypes.c_size_t.from_address(dropped).value = self.dropped
            self.dropped = 0

    def get_timestamp(self) -> int:
        self._call("get_timestamp")
        return self.now

    @property
    def is_idle(self) -> bool:
        return self.now >= self._free_at

    @property
    def is_disabled(self) -> bool:
        return not self._enabled and not self._ids

    def _call(self, name: str) -> None:
        self.log.append(name)
        if name in self.refuse:
            raise self.refuse[name]


class FakeGpu(QuietDevice):
    """Its flush is a kernel of 60 us, repeated until it covers what is asked."""

    FLUSH_NS = 60_000

    def __init__(self, cupti: FakeCupti) -> None:
        super().__init__()
        self.cupti = cupti
        self.covers: list[int] = []

    def flush(self, cover_ns: int = 0) -> None:
        self.covers.append(cover_ns)
        for _ in range(max(1, -(-cover_ns // self.FLUSH_NS))):
            self.cupti.launch("flush", self.FLUSH_NS)

    def synchronize(self) -> None:
        self.cupti.synchronize()


def only(names: Iterable[str], change: Callable[[Launched], Launched | None]) -> Callable[[Launched], Launched | None]:
    """Return a report that changes the records of kernels of these names, and no other."""
    chosen = set(names)
    return lambda launched: change(launched) if launched.name in chosen else launched


def zeroed(launched: Launched) -> Launched:
    return replace(launched, start=0, end=0)


def hours_early(launched: Launched) -> Launched:
    return replace(launched, start=launched.start - 10**14, end=launched.end - 10**14)
