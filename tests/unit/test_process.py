"""``cake-bench`` as a process: closed pipes, full devices, Ctrl-C at the start; its exit code is never Python's own."""

import contextlib
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from harness import __main__ as program
from harness import cli, runfile
from tests.unit.test_runfile import small_run


@pytest.fixture
def stored(tmp_path: Path) -> str:
    path = tmp_path / "r1.json"
    runfile.save(small_run(), path)
    return str(path)


def cake_bench(*words: str, **streams: object) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([sys.executable, "-m", "harness", *words], check=False, **streams)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("words", [("--help",), ("report", "--help"), ("report", "RUN")])
def test_a_reader_that_has_left_is_no_error(stored: str, words: tuple[str, ...]) -> None:
    # As `cake-bench ... | head -0`: nobody reads the pipe any more.
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as gone:
        gone.wait()
        assert gone.stdin is not None
        done = cake_bench(
            *(stored if word == "RUN" else word for word in words), stdout=gone.stdin, stderr=subprocess.PIPE
        )

    assert (done.returncode, done.stderr) == (0, b"")


def test_an_output_that_is_full_gives_two_and_one_line(stored: str) -> None:
    with open("/dev/full", "wb") as full:
        done = cake_bench("report", stored, stdout=full, stderr=subprocess.PIPE)

    assert done.returncode == 2
    assert done.stderr == b"cake-bench: Error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("words", [("report", "none.json"), ("report",), ("measure",)])
def test_an_error_that_cannot_be_said_still_gives_two(words: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = cake_bench(*words, stdout=full, stderr=full)

    assert done.returncode == 2


def test_a_defect_that_cannot_be_said_still_gives_two(monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*words: object) -> None:
        raise ZeroDivisionError

    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(cli.cake_bench, "invoke", defect)
        monkeypatch.setattr(sys, "stderr", full)

        assert cli.main(["list"]) == 2


@pytest.mark.parametrize("code", [0, 1, "bye"])
def test_code_that_asks_for_the_end_of_the_process_does_not_choose_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: object
) -> None:
    def leaves(*words: object) -> None:
        sys.exit(code)  # type: ignore[arg-type]

    monkeypatch.setattr(cli.cake_bench, "invoke", leaves)

    assert cli.main(["list"]) == 2
    assert "this is a defect of cake-bench" in capsys.readouterr().err


def test_a_control_c_that_an_import_swallows_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imported = cli.importlib.import_module

    def swallows(name: str) -> types.ModuleType:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return imported(name)

    monkeypatch.setattr(cli.importlib, "import_module", swallows)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
    try:
        assert cli.main(["report", "--help"]) == 130
        assert capsys.readouterr().err == "cake-bench: interrupted\n"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_control_c_that_is_ignored_stays_ignored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imported = cli.importlib.import_module
    monkeypatch.setattr(
        cli.importlib, "import_module", lambda name: signal.raise_signal(signal.SIGINT) or imported(name)
    )
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert cli.main(["report", "--help"]) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_control_c_before_the_command_line_is_there_gives_130(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "harness.cli", Interrupted("harness.cli"))

    with pytest.raises(SystemExit) as left:
        program.main()
    assert left.value.code == 130
