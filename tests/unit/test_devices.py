"""The CUDA device's waits, without a GPU: every wait resets the persisting lines of the L2."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from harness import devices
from harness.devices import Cuda
from harness.errors import MeasurementError

TOP = Path(__file__).parents[2]
SUCCESS, LOST = SimpleNamespace(name="CUDA_SUCCESS"), SimpleNamespace(name="CUDA_ERROR_CONTEXT_IS_DESTROYED")


class FakeDriver:
    """What ``cuda.bindings.driver`` is asked for."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=SUCCESS)

    def __init__(self, log: list[str], status: object = SUCCESS) -> None:
        self._log = log
        self._status = status

    def cuCtxResetPersistingL2Cache(self) -> tuple[object]:
        self._log.append("reset")
        return (self._status,)


def device(monkeypatch: pytest.MonkeyPatch, log: list[str], status: object = SUCCESS) -> Cuda:
    driver = FakeDriver(log, status)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("wait"))
    monkeypatch.setattr(devices, "import_module", lambda name: {"cuda.bindings.driver": driver}[name])
    return object.__new__(Cuda)


def test_every_wait_for_the_device_resets_the_persisting_lines_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    cuda = device(monkeypatch, log)

    cuda.synchronize()
    cuda.synchronize()

    assert log == ["wait", "reset"] * 2


def test_a_reset_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MeasurementError, match="persisting lines of the L2 failed: CUDA_ERROR_CONTEXT_IS_DESTROYED"):
        device(monkeypatch, [], LOST).synchronize()


def test_nothing_of_ours_asks_for_lines_that_persist() -> None:
    # A block of back-to-back calls is reset once: docs/measuring.md says that this is enough because of this.
    asks = re.compile(r"access_?policy|persisting_?l2_?cache_?size|access_property|evict_last", re.IGNORECASE)
    sources = [p for folder in ("cake_kernels", "harness") for p in (TOP / folder).rglob("*") if p.is_file()]
    texts = {path: path.read_bytes().decode("utf-8", "replace") for path in sources if path.suffix != ".pyc"}

    assert [str(path.relative_to(TOP)) for path, text in texts.items() if asks.search(text)] == []
    assert len(texts) > 100
