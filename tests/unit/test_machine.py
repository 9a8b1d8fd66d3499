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


def cache(cpus: Path, cpu: int, index: int, level: int, size: str, shared: str) -> None:
    folder = cpus / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    (folder / "level").write_text(f"{level}\n")
    (folder / "size").write_text(f"{size}\n")
    (folder / "shared_cpu_list").write_text(f"{shared}\n")


def test_the_last_level_is_the_deepest_cache_and_shared_ones_count_once(tmp_path: Path) -> None:
    for cpu in (0, 1):
        cache(tmp_path, cpu, 0, 1, "32K", str(cpu))
        cache(tmp_path, cpu, 1, 2, "1M", str(cpu))
        cache(tmp_path, cpu, 2, 3, "32768K", "0-1")

    assert _last_level_cache(tmp_path) == 32 << 20


def test_every_group_of_cores_brings_its_last_level(tmp_path: Path) -> None:
    cache(tmp_path, 0, 0, 3, "32M", "0")
    cache(tmp_path, 1, 0, 3, "16M", "1")

    assert _last_level_cache(tmp_path) == 48 << 20


def test_a_machine_that_hides_its_caches_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lists no caches; the CPU timer must know the last level's size"):
        _last_level_cache(tmp_path)
