"""The cache on disk: what is stored, what is refused, what happens where nothing can be written."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from cake_kernels import cubin_cache
from cake_kernels.cubin_cache import Cached, Compiled, CubinCache, cache_folder

KEY = "a" * 64
OTHER_KEY = "b" * 64
MADE = Compiled(code=b"\x7fELF\0code", log="warning: ü")


def make(compiled: Compiled = MADE) -> tuple[Callable[[], Compiled], list[str]]:
    """A stand-in for the compiler and the list that it lengthens at each call."""
    calls: list[str] = []

    def compiler() -> Compiled:
        calls.append("called")
        return compiled

    return compiler, calls


def test_a_second_process_finds_what_the_first_compiled(tmp_path: Path) -> None:
    CubinCache(tmp_path / "new" / "folder").fetch(KEY, lambda: MADE)
    compiler, calls = make()

    found = CubinCache(tmp_path / "new" / "folder").fetch(KEY, compiler)

    assert (found.compiled, found.not_on_disk, calls) == (MADE, None, [])


def test_one_process_reads_the_disk_once(tmp_path: Path) -> None:
    cache = CubinCache(tmp_path)
    cache.fetch(KEY, lambda: MADE)
    (tmp_path / f"{KEY}.cubin").unlink()
    compiler, calls = make()

    assert cache.fetch(KEY, compiler).compiled == MADE
    assert calls == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:20],
        lambda data: data + b"\0",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"X" + data[1:],
        lambda data: b"\x7fELF" + bytes(500),
    ],
    ids=["empty", "one byte short", "head alone", "one byte long", "one bit wrong", "other magic", "a bare cubin"],
)
def test_a_damaged_or_foreign_file_is_compiled_again_and_replaced(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"{KEY}.cubin"
    CubinCache(tmp_path).fetch(KEY, lambda: MADE)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    compiler, calls = make()

    found = CubinCache(tmp_path).fetch(KEY, compiler)

    assert (found.compiled, found.not_on_disk, len(calls)) == (MADE, None, 1)
    assert path.read_bytes() == good


def test_a_good_file_under_another_key_is_foreign(tmp_path: Path) -> None:
    CubinCache(tmp_path).fetch(KEY, lambda: MADE)
    (tmp_path / f"{KEY}.cubin").rename(tmp_path / f"{OTHER_KEY}.cubin")
    other = Compiled(code=b"other", log="")

    assert CubinCache(tmp_path).fetch(OTHER_KEY, lambda: other).compiled == other


def test_a_folder_in_the_place_of_the_file_costs_the_disk_and_not_the_result(tmp_path: Path) -> None:
    (tmp_path / f"{KEY}.cubin").mkdir()

    found = CubinCache(tmp_path).fetch(KEY, lambda: MADE)

    assert found.compiled == MADE
    assert found.not_on_disk == f"{tmp_path} cannot be written: Is a directory"
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.cubin"]


def test_a_pipe_in_the_place_of_the_file_keeps_nobody_waiting_and_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / f"{KEY}.cubin"
    os.mkfifo(path)
    found: list[Cached] = []
    reader = Thread(target=lambda: found.append(CubinCache(tmp_path).fetch(KEY, lambda: MADE)), daemon=True)

    reader.start()
    reader.join(30)

    assert not reader.is_alive()
    assert (found[0].compiled, found[0].not_on_disk, path.is_file()) == (MADE, None, True)


def test_a_file_in_the_place_of_the_folder_gives_the_reason(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    found = CubinCache(blocked / "cake").fetch(KEY, lambda: MADE)

    assert found.compiled == MADE
    assert found.not_on_disk == f"{blocked / 'cake'} cannot be written: Not a directory"


def test_a_read_only_folder_compiles_once_a_process_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(cubin_cache, "mkstemp", refuse)
    compiler, calls = make()
    cache = CubinCache(tmp_path)

    found = [cache.fetch(KEY, compiler) for _ in range(3)]

    assert {(f.compiled.code, f.not_on_disk) for f in found} == {
        (MADE.code, f"{tmp_path} cannot be written: Read-only file system")
    }
    assert len(calls) == 1


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cubin_cache.os, "replace", refuse)

    found = CubinCache(tmp_path).fetch(KEY, lambda: MADE)

    assert found.not_on_disk == f"{tmp_path} cannot be written: No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_the_reason_names_the_variables() -> None:
    found = CubinCache(None).fetch(KEY, lambda: MADE)

    assert found.compiled == MADE
    assert found.not_on_disk == "none of CAKE_KERNELS_CACHE, XDG_CACHE_HOME and HOME names a folder"


def test_what_the_compiler_raises_is_stored_nowhere(tmp_path: Path) -> None:
    def fail() -> Compiled:
        raise ZeroDivisionError

    cache = CubinCache(tmp_path)
    with pytest.raises(ZeroDivisionError):
        cache.fetch(KEY, fail)

    assert list(tmp_path.iterdir()) == []
    assert cache.fetch(KEY, lambda: MADE).compiled == MADE


RACER = """
import sys
from pathlib import Path
from cake_kernels.cubin_cache import Compiled, CubinCache

folder, key = Path(sys.argv[1]), sys.argv[2]

def compiler():
    print("compiling", flush=True)
    sys.stdin.readline()  # goes on when both have missed
    return Compiled(code=bytes(1 << 20), log="")

found = CubinCache(folder).fetch(key, compiler)
print(len(found.compiled.code), found.not_on_disk)
"""


def test_processes_that_miss_at_once_all_succeed_and_leave_one_file(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), KEY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "compiling\n"

    ends = [racer.communicate("go\n") for racer in racers]

    assert [(out, racer.returncode) for (out, _), racer in zip(ends, racers, strict=True)] == 4 * [
        ("1048576 None\n", 0)
    ]
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.cubin"]
    compiler, calls = make()
    assert CubinCache(tmp_path).fetch(KEY, compiler).compiled.code == bytes(1 << 20)
    assert calls == []


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"CAKE_KERNELS_CACHE": "/own", "XDG_CACHE_HOME": "/xdg", "HOME": "/home/a"}, Path("/own/cake_kernels")),
        ({"CAKE_KERNELS_CACHE": "", "XDG_CACHE_HOME": "/xdg", "HOME": "/home/a"}, Path("/xdg/cake_kernels")),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/a"}, Path("/home/a/.cache/cake_kernels")),
        ({"HOME": "/home/a"}, Path("/home/a/.cache/cake_kernels")),
        ({}, None),
    ],
)
def test_the_folder_is_the_first_that_the_environment_names(environ: dict[str, str], folder: Path | None) -> None:
    assert cache_folder(environ, "cake_kernels") == folder


def test_two_packages_have_two_folders() -> None:
    environ = {"CAKE_KERNELS_CACHE": "/own"}

    assert cache_folder(environ, "cake_kernels") != cache_folder(environ, "previous_cake_kernels")
