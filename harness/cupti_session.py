"""The CUPTI collector: the only place that calls cupti-python. One session a process, open until its end.

Nothing here is imported before it is needed, and no call is made but those of a session: CUPTI serves one user a
process, changes how kernels are launched, and is never finalised, because a second start loses records.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import IntEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from harness.errors import UsageError, first_line
from harness.trace import Correlation, Kind, Record, Timed, Window, attribute

PINNED = {"cupti-python": "13.0.1", "nvidia-cuda-cupti": "13.0.85"}
"""A binding reads records by their layout; those of another libcupti may be misread, and still look like times."""

BUFFER_BYTES = 4 << 20
"""Room for about 14,000 launches: small buffers come back while calls are launched, and stretch their gaps."""

STARTUP_PROBES = 3
"""The first records after a context is made can be missing; three probes that all vanish are no accident."""

WINDOW_SLACK_NS = 1_000_000
"""Device timestamps are converted to the host's clock to within microseconds; a corrupted one is off by hours."""

# Set in a process that one of the vendor's profilers started; CUPTI is then the profiler's.
PROFILER_VARIABLES = ("CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "NV_COMPUTE_PROFILER_PERFWORKS_DIR")

_INSTEAD = "use --timer cuda_event"
_EXPLAINED = {
    15: "the driver does not take this CUPTI: CUPTI 13.0 needs a driver of the 580 branch or newer",
    35: "the process may not trace: the administrator keeps profiling to root",
    39: "another profiler (torch.profiler, nsys, ncu, a monitoring agent) has CUPTI in this process",
}


class Role(IntEnum):
    """What a launch is for. Every launch in a window has a role, so that a kernel without an id is an error."""

    CALL = 1
    FLUSH = 2
    PROBE = 3
    SPIN = 4
    CHECKER = 5
    STARTUP = 6


def external_id(role: Role, index: int = 0) -> int:
    """Return the external id of the ``index``-th launch of ``role`` in a window."""
    return index << 4 | role


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one window brought; ``dropped`` is ``None`` where CUPTI could not say, or a callback of ours failed."""

    records: tuple[Record, ...]
    external: tuple[Correlation, ...]
    window: Window
    dropped: int | None


def why_not(environ: Mapping[str, str]) -> str | None:
    """Return why CUPTI cannot be used in this process, or None. Enables nothing."""
    for name, wanted in PINNED.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            return f"{name} is not installed; install {_pins()}, or {_INSTEAD}"
        if found != wanted:
            return f"{name} must be {wanted}, got {found}; install {_pins()} together, or {_INSTEAD}"
    for variable in PROFILER_VARIABLES:
        if environ.get(variable):
            return f"{variable} is set: a profiler runs this process and has CUPTI; run without it, or {_INSTEAD}"
    try:
        cupti = load()
        cupti.get_timestamp()
    except Exception as error:  # noqa: BLE001 - the binding raises classes of its own, some of them private
        return f"{explain(error)}; {_INSTEAD}"
    return None


def load() -> Any:
    """Import the binding."""
    from cupti import cupti

    return cupti


def explain(error: Exception) -> str:
    """Return what an exception of the binding means, in words that a user can act on."""
    status = getattr(error, "status", None)
    known = _EXPLAINED.get(int(status)) if status is not None else None
    return f"{known} ({first_line(error)})" if known else f"CUPTI says: {first_line(error)}"


def _pins() -> str:
    return " ".join(f"{name}=={wanted}" for name, wanted in PINNED.items())


class CuptiSession:
    """Collects kernels, memsets and copies while it is open.

    Parameters
    ----------
    cupti
        The binding, :func:`load`.
    synchronize
        Waits for the device: a record is complete only when its work is.
    probe
        Launches at least one kernel, which must be seen before the session counts as open; ``None`` asks for no proof.
    buffer_bytes
        Size of a record buffer; below the size of a record, every record is dropped.
    """

    def __init__(
        self,
        cupti: Any,
        *,
        synchronize: Callable[[], None],
        probe: Callable[[], None] | None,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self.startup_probes = 0
        """Probes that it took until one was seen; more than 1 is worth knowing."""
        self.unfiltered: tuple[str, ...] = ()
        """APIs that CUPTI would not stop tracing: they cost time, not truth."""
        self._cupti = cupti
        self._synchronize = synchronize
        self._probe = probe
        self._buffer_bytes = buffer_bytes
        self._opened = ExitStack()
        self._collector = _Collector(cupti)
        self._start_ns = 0

    def __enter__(self) -> CuptiSession:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Enable every kind and see a probe kernel; what was enabled is disabled again if that fails.

        Raises
        ------
        UsageError
            CUPTI refuses, or delivers no records.
        """
        with ExitStack() as stack:
            try:
                self._enable(stack)
                if self._probe is not None:
                    self._prove(self._probe)
            except UsageError:
                raise
            except Exception as error:
                raise UsageError(f"--timer cupti cannot be used here: {explain(error)}; {_INSTEAD}") from error
            self._opened = stack.pop_all()

    def close(self) -> None:
        """Flush, then disable every kind, whatever fails; a second time does nothing."""
        self._opened.close()

    @contextmanager
    def label(self, identity: int) -> Iterator[None]:
        """Let what this thread launches inside carry the external id ``identity``."""
        custom = self._cupti.ExternalCorrelationKind.CUSTOM0
        self._cupti.activity_push_external_correlation_id(custom, identity)
        try:
            yield
        finally:
            self._cupti.activity_pop_external_correlation_id(custom)

    def start(self) -> None:
        """Open a window: what was launched before it is waited for and forgotten, its drops too."""
        self._synchronize()
        self._cupti.activity_flush_all(1)
        self._dropped()
        self._collector.take()
        self._start_ns = self._cupti.get_timestamp()

    def stop(self) -> Trace:
        """Close the window: wait for the device, and return everything that was launched in it."""
        self._synchronize()
        # Forced: an unforced flush keeps buffers back that have an incomplete record.
        self._cupti.activity_flush_all(1)
        end_ns = self._cupti.get_timestamp()
        dropped = self._dropped()
        records, external, whole = self._collector.take()
        window = Window(start_ns=self._start_ns - WINDOW_SLACK_NS, end_ns=end_ns + WINDOW_SLACK_NS)
        return Trace(records=records, external=external, window=window, dropped=dropped if whole else None)

    def _enable(self, stack: ExitStack) -> None:
        cupti = self._cupti
        cupti.activity_register_callbacks(lambda: (self._buffer_bytes, 0), self._collector.completed)
        kinds = cupti.ActivityKind
        # KERNEL would serialise launches. RUNTIME and DRIVER: a correlation is made only for an API that is traced,
        # and libraries launch through either.
        for kind in (
            kinds.CONCURRENT_KERNEL,
            kinds.MEMSET,
            kinds.MEMCPY,
            kinds.EXTERNAL_CORRELATION,
            kinds.RUNTIME,
            kinds.DRIVER,
        ):
            cupti.activity_enable(kind)
            stack.callback(cupti.activity_disable, kind)
        stack.callback(cupti.activity_flush_all, 1)
        self.unfiltered = (
            *self._filter(cupti.runtime_api_trace_cbid, cupti.activity_enable_runtime_api),
            *self._filter(cupti.driver_api_trace_cbid, cupti.activity_enable_driver_api),
        )

    def _filter(self, cbids: Any, enable: Callable[[int, int], object]) -> Iterator[str]:
        """Stop tracing what launches nothing, and yield what would not be stopped. Enabling a kind undoes this."""
        for name, cbid in _apis(cbids):
            if any(word in name for word in ("Launch", "Memset", "Memcpy")):
                continue
            try:
                enable(cbid, 0)
            except self._cupti.cuptiError:
                yield name

    def _prove(self, launch: Callable[[], None]) -> None:
        identity = external_id(Role.STARTUP)
        reason = ""
        for attempt in range(1, STARTUP_PROBES + 1):
            self.start()
            with self.label(identity):
                launch()
            trace = self.stop()
            found = attribute(trace.records, trace.external, [identity], trace.window, dropped=trace.dropped)
            probe = found.calls[identity]
            if isinstance(probe, Timed):
                self.startup_probes = attempt
                return
            reason = probe.reason
        raise UsageError(
            f"--timer cupti cannot be used here: no records: {STARTUP_PROBES} probe kernels ran, and CUPTI delivered"
            f" none that can be believed ({reason}); {_INSTEAD}"
        )

    def _dropped(self) -> int | None:
        """Return how many records were dropped since the last time it was asked."""
        unread = (1 << 8 * ctypes.sizeof(ctypes.c_size_t)) - 1
        count = ctypes.c_size_t(unread)
        try:
            # Context and stream 0 mean the queue of all.
            self._cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(count))
        except self._cupti.cuptiError:
            return None
        return None if count.value == unread else count.value


def _apis(cbids: Any) -> Iterator[tuple[str, int]]:
    """Yield every API of an enumeration, those too whose names begin with two underscores.

    Python does not make members of such names (``__cudaPushCallConfiguration``, called for every ``<<<>>>``): it leaves
    them as plain integers. The first and last values are no APIs.
    """
    private = f"_{cbids.__name__}__"
    plain = ((name.removeprefix(private), value) for name, value in vars(cbids).items() if name.startswith(private))
    members = ((member.name, int(member)) for member in cbids)
    for name, cbid in itertools.chain(members, plain):
        if name not in ("INVALID", "SIZE", "FORCE_INT"):
            yield name, cbid


class _Collector:
    """Keeps what CUPTI hands over. ``completed`` may run on CUPTI's thread, or inside a launch: it only appends."""

    def __init__(self, cupti: Any) -> None:
        kinds = cupti.ActivityKind
        self._kernel = int(kinds.CONCURRENT_KERNEL)
        self._memory = {int(kinds.MEMSET): Kind.MEMSET, int(kinds.MEMCPY): Kind.MEMCPY}
        self._external = int(kinds.EXTERNAL_CORRELATION)
        self._custom = int(cupti.ExternalCorrelationKind.CUSTOM0)
        self._launched: list[tuple[Kind, int, int, int, int, int, str, int]] = []
        self._correlated: list[tuple[int, int]] = []
        self._failures: list[str] = []

    def completed(self, records: Any) -> None:
        """Copy plain values: a record object lives in a buffer that goes back to CUPTI."""
        try:
            for r in records:
                kind = r.kind
                if kind == self._kernel:
                    entry = (Kind.KERNEL, r.correlation_id, r.start, r.end, r.stream_id, r.graph_node_id, r.name, 0)
                    self._launched.append(entry)
                elif kind == self._external:
                    if r.external_kind == self._custom:
                        self._correlated.append((r.correlation_id, r.external_id))
                elif memory := self._memory.get(kind):
                    entry = (memory, r.correlation_id, r.start, r.end, r.stream_id, r.graph_node_id, "", r.bytes)
                    self._launched.append(entry)
        except Exception as error:  # noqa: BLE001 - an exception would unwind into CUPTI; take() reports it
            self._failures.append(first_line(error))

    def take(self) -> tuple[tuple[Record, ...], tuple[Correlation, ...], bool]:
        """Return what came since the last time, and whether all of it could be read."""
        launched, self._launched = self._launched, []
        correlated, self._correlated = self._correlated, []
        failures, self._failures = self._failures, []
        records = tuple(
            Record(
                kind=kind,
                correlation_id=correlation_id,
                start_ns=start,
                end_ns=end,
                stream=stream,
                graph_node=node,
                name=name or "",
                bytes=size,
            )
            for kind, correlation_id, start, end, stream, node, name, size in launched
        )
        return records, tuple(Correlation(correlation_id=c, external_id=e) for c, e in correlated), not failures
