import sys
from types import ModuleType

import pytest

from harness.drop_proof import LAUNCHES, DropProof, prove, starve
from tests.fake_cupti import FakeCupti, FakeGpu


def starved(monkeypatch: pytest.MonkeyPatch, cupti: FakeCupti) -> DropProof:
    package = ModuleType("cupti")
    package.cupti = cupti  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupti", package)
    return starve(FakeGpu(cupti))


def test_a_counter_that_counts_what_a_starved_collector_lost_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = FakeCupti()
    proof = starved(monkeypatch, cupti)

    # Of every launch: the kernel, the API call and its correlation.
    assert proof == DropProof(seen=0, dropped=3 * LAUNCHES)
    assert proof.proved
    assert cupti.is_disabled


def test_a_counter_that_stays_at_zero_or_cannot_be_read_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    dead, mute = FakeCupti(), FakeCupti()
    dead.counts_drops = False
    mute.dropped = None

    assert not starved(monkeypatch, dead).proved
    assert not starved(monkeypatch, mute).proved


def test_records_that_all_came_prove_nothing() -> None:
    assert not DropProof(seen=LAUNCHES, dropped=3).proved


def test_a_process_that_fails_is_an_answer_with_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    proof = prove()

    assert not proof.proved
    assert proof.failure.startswith("exit 1: harness.errors.UsageError: --device cuda cannot be used")
