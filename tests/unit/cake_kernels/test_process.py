"""``python -m cake_kernels`` as a process: closed pipes, full devices; its exit code is never Python's own."""

import subprocess
import sys
from collections.abc import Iterator
from typing import BinaryIO

import pytest

FULL = b"error: the output cannot be written: No space left on device\n"
HELP = [("--help",), ("build", "--help")]


@pytest.fixture
def left() -> Iterator[BinaryIO]:
    """A pipe whose reader has left, as `... | head -0` makes one."""
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as gone:
        gone.wait()
        assert gone.stdin is not None
        yield gone.stdin  # type: ignore[misc]


def cake_kernels(*words: str, **streams: object) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([sys.executable, "-m", "cake_kernels", *words], check=False, **streams)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("words", [("list",), *HELP])
def test_a_reader_that_has_left_is_no_error(left: BinaryIO, words: tuple[str, ...]) -> None:
    done = cake_kernels(*words, stdout=left, stderr=subprocess.PIPE)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", [("list",), *HELP])
def test_an_output_that_is_full_gives_two_and_one_line(words: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = cake_kernels(*words, stdout=full, stderr=subprocess.PIPE)

    assert (done.returncode, done.stderr) == (2, FULL)


@pytest.mark.parametrize("words", [("measure",), ("build",), ("list",), ("build", "--arch", "sm_1", "--out", "out")])
def test_an_error_that_cannot_be_said_still_gives_two(words: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = cake_kernels(*words, stdout=full, stderr=full)

    assert done.returncode == 2


def test_an_output_that_is_closed_takes_nothing_and_is_no_error() -> None:
    done = subprocess.run(["sh", "-c", 'exec "$0" -m cake_kernels list >&-', sys.executable], check=False)

    assert done.returncode == 0
