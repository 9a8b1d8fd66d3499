"""The CUDA device's waits, without a GPU: lines that persist in the L2 are reset, and there may be no room for any."""

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
    CUlimit = SimpleNamespace(CU_LIMIT_PERSISTING_L2_CACHE_SIZE="set aside")

    def __init__(self, log: list[str], status: object = SUCCESS, set_aside: int = 0) -> None:
        self._log = log
        self._status = status
        self.set_aside = set_aside

    def cuCtxResetPersistingL2Cache(self) -> tuple[object]:
        self._log.append("reset")
        return (self._status,)

    def cuCtxGetLimit(self, limit: str) -> tuple[object, int]:
        assert limit == "set aside"
        return SUCCESS, self.set_aside

    def cuCtxSetLimit(self, limit: str, value: int) -> tuple[object]:
        assert limit == "set aside"
        self.set_aside = value
        return (SUCCESS,)


def device(monkeypatch: pytest.MonkeyPatch, log: list[str], status: object = SUCCESS, set_aside: int = 0) -> Cuda:
    driver = FakeDriver(log, status, set_aside)
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


def test_a_wait_after_a_part_of_the_l2_was_set_aside_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # So a block of back-to-back calls, which is reset once, had no line to reset before each of them.
    with pytest.raises(MeasurementError, match="a flush does not reach, got 4096 bytes"):
        device(monkeypatch, [], set_aside=4096).synchronize()


def test_a_device_is_opened_with_none_of_the_l2_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = device(monkeypatch, [], set_aside=4096)

    devices._give_up_set_aside_l2()

    cuda.synchronize()


def test_nothing_of_ours_asks_for_lines_that_persist() -> None:
    asks = re.compile(r"access_?policy|persisting_?l2_?cache_?size|access_property|evict_last", re.IGNORECASE)
    sources = [p for folder in ("cake_kernels", "harness") for p in (TOP / folder).rglob("*") if p.is_file()]
    texts = {path: path.read_bytes().decode("utf-8", "replace") for path in sources if path.suffix != ".pyc"}

    # devices.py, where it is forbidden.
    assert [str(path.relative_to(TOP)) for path, text in texts.items() if asks.search(text)] == ["harness/devices.py"]
    assert len(texts) > 100
