from pathlib import Path

import pytest
import torch

from harness.errors import UsageError
from harness.machine import _last_level_cache, read_machine


def test_the_cpu_says_what_a_result_needs() -> None:
    found = read_machine("cpu")

    assert found.device == "cpu"
    assert found.cache_bytes >= 1 << 18
    assert found.memory_bytes > found.cache_bytes
    assert found.versions["torch"] == torch.__version__
    assert found.peak_flops == found.units * 1024 * 6.5e9
    assert found.board is None


def cache(folder: Path, index: int, level: int, size: str) -> None:
    (folder / f"index{index}").mkdir()
    (folder / f"index{index}" / "level").write_text(f"{level}\n")
    (folder / f"index{index}" / "size").write_text(f"{size}\n")


def test_the_last_level_is_the_deepest_cache(tmp_path: Path) -> None:
    cache(tmp_path, 0, 1, "32K")
    cache(tmp_path, 1, 3, "32768K")
    cache(tmp_path, 2, 2, "1M")

    assert _last_level_cache(tmp_path) == 32 << 20


def test_a_machine_that_hides_its_caches_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lists no caches; the CPU timer must know the last level's size"):
        _last_level_cache(tmp_path)
