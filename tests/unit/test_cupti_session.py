import sys
from importlib.metadata import PackageNotFoundError
from types import ModuleType

import pytest

from harness import cupti_session
from harness.cupti_session import PINNED, CuptiSession, Role, Trace, external_id, why_not
from harness.errors import UsageError
from harness.trace import Kind
from tests.fake_cupti import ActivityKind, FakeCupti, NotSupportedError, cuptiError


def session(cupti: FakeCupti) -> CuptiSession:
    return CuptiSession(cupti, synchronize=cupti.synchronize, probe=lambda: cupti.launch("probe", 1000))


def trace_of(opened: CuptiSession, cupti: FakeCupti, **how: object) -> Trace:
    opened.start()
    with opened.label(external_id(Role.CALL)):
        cupti.launch("gemm", 2000, **how)  # type: ignore[arg-type]
    return opened.stop()


def install(monkeypatch: pytest.MonkeyPatch, cupti: FakeCupti | None, versions: dict[str, str]) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(cupti_session, "version", version)
    package = ModuleType("cupti")
    package.cupti = cupti  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupti", package)


def test_roles_and_places_give_ids_that_differ() -> None:
    ids = {external_id(role, place) for role in Role for place in range(1000)}

    assert len(ids) == 1000 * len(Role)
    assert 0 not in ids


def test_everything_installed_and_a_driver_is_no_reason_against_cupti(monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = FakeCupti()
    install(monkeypatch, cupti, PINNED)

    assert why_not({}) is None
    assert cupti.log == ["get_timestamp"]


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        ({}, "cupti-python is not installed; install cupti-python==13.0.1 nvidia-cuda-cupti==13.0.85, or use --timer"),
        ({"cupti-python": "13.0.1"}, "nvidia-cuda-cupti is not installed"),
        ({**PINNED, "cupti-python": "13.4.0"}, "cupti-python must be 13.0.1, got 13.4.0; install"),
        ({**PINNED, "nvidia-cuda-cupti": "13.0.48"}, "nvidia-cuda-cupti must be 13.0.85, got 13.0.48"),
    ],
)
def test_a_missing_or_unpaired_library_is_a_reason_that_names_the_pair(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], reason: str
) -> None:
    install(monkeypatch, FakeCupti(), versions)

    assert reason in (why_not({}) or "")
    assert "use --timer cuda_event" in (why_not({}) or "")


@pytest.mark.parametrize("variable", ["CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID"])
def test_a_profiler_around_the_process_is_a_reason(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    install(monkeypatch, FakeCupti(), PINNED)

    assert f"{variable} is set: a profiler runs this process" in (why_not({variable: "x"}) or "")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NotSupportedError("CUDA driver is not found"), "CUPTI says: CUDA driver is not found; use --timer cuda_event"),
        (cuptiError(15), "the driver does not take this CUPTI"),
    ],
)
def test_no_driver_or_an_old_one_is_a_reason_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    cupti = FakeCupti()
    cupti.refuse = {"get_timestamp": error}
    install(monkeypatch, cupti, PINNED)

    assert reason in (why_not({}) or "")


def test_a_binding_that_does_not_import_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None, PINNED)
    monkeypatch.setitem(sys.modules, "cupti", None)

    assert "import of cupti halted" in (why_not({}) or "")


def test_another_profiler_in_the_process_is_named_and_what_was_enabled_is_disabled() -> None:
    cupti = FakeCupti()
    cupti.refuse = {"get_timestamp": cuptiError(39)}

    with pytest.raises(UsageError, match=r"another profiler \(torch.profiler, .*ERROR \(39\).*use --timer cuda_event"):
        session(cupti).open()
    assert cupti.is_disabled


def test_only_launches_memsets_and_copies_stay_traced_those_with_private_names_too() -> None:
    cupti = FakeCupti()
    with session(cupti) as opened:
        assert cupti.traced() == {"cudaMemsetAsync_v3020", "cudaLaunchKernel_v13000", "cuLaunchKernelEx"}
        assert opened.unfiltered == ()


def test_everything_is_flushed_and_disabled_when_the_body_fails() -> None:
    cupti = FakeCupti()
    with pytest.raises(KeyError), session(cupti) as opened, opened.label(5):
        raise KeyError

    assert cupti.is_disabled
    assert cupti.log[-7:] == ["activity_flush_all", *["activity_disable"] * 6]


def test_closing_twice_disables_once() -> None:
    cupti = FakeCupti()
    opened = session(cupti)
    opened.open()
    opened.close()
    opened.close()

    assert cupti.log.count("activity_disable") == 6


def test_an_empty_first_delivery_is_probed_again_and_counted() -> None:
    cupti = FakeCupti()
    cupti.empty_flushes = 1

    with session(cupti) as opened:
        assert opened.startup_probes == 2


def test_a_session_that_never_delivers_is_an_error_that_says_no_records() -> None:
    # deepseek-ai/DeepGEMM#426: an empty session is neither 0 us nor a division by zero.
    cupti = FakeCupti()
    cupti.empty_flushes = 10

    with pytest.raises(UsageError, match="no records: 3 probe kernels ran, .* delivered none .*--timer cuda_event"):
        session(cupti).open()
    assert cupti.is_disabled


def test_a_window_holds_what_was_launched_in_it_and_forgets_what_was_before() -> None:
    cupti = FakeCupti()
    with session(cupti) as opened:
        cupti.launch("warm-up", 500)
        cupti.dropped = 9
        trace = trace_of(opened, cupti)

    assert [(r.kind, r.name, r.end_ns - r.start_ns) for r in trace.records] == [(Kind.KERNEL, "gemm", 2000)]
    assert [c.external_id for c in trace.external] == [external_id(Role.CALL)]
    assert trace.records[0].correlation_id == trace.external[0].correlation_id
    assert trace.window.start_ns < trace.records[0].start_ns < trace.records[0].end_ns < trace.window.end_ns
    assert trace.dropped == 0


@pytest.mark.parametrize("api", ["runtime", "driver"])
def test_a_launch_through_either_api_gets_its_id(api: str) -> None:
    cupti = FakeCupti()
    with session(cupti) as opened:
        assert len(trace_of(opened, cupti, api=api).external) == 1


def test_memsets_and_copies_are_records() -> None:
    cupti = FakeCupti()
    with session(cupti) as opened:
        for kind, expected in ((ActivityKind.MEMSET, Kind.MEMSET), (ActivityKind.MEMCPY, Kind.MEMCPY)):
            assert [r.kind for r in trace_of(opened, cupti, kind=kind).records] == [expected]


def test_dropped_records_are_read_once_a_window() -> None:
    cupti = FakeCupti()
    with session(cupti) as opened:
        opened.start()
        cupti.dropped = 3

        assert opened.stop().dropped == 3
        assert trace_of(opened, cupti).dropped == 0


def test_a_counter_that_cannot_be_read_or_is_left_untouched_says_nothing() -> None:
    cupti = FakeCupti()
    with session(cupti) as opened:
        cupti.dropped = None
        assert trace_of(opened, cupti).dropped is None

        cupti.dropped = 0
        cupti.refuse = {"activity_get_num_dropped_records": cuptiError(1)}
        assert trace_of(opened, cupti).dropped is None


def test_a_callback_never_raises_and_what_it_could_not_read_leaves_the_count_unknown() -> None:
    cupti = FakeCupti()
    with session(cupti) as opened:
        opened.start()
        cupti.deliver([object()])

        assert opened.stop().dropped is None
        assert trace_of(opened, cupti).dropped == 0
