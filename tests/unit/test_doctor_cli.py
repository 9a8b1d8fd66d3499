"""``cake-bench doctor`` as its users call it, on this machine and on one whose checks are made up."""

import json
from pathlib import Path

import pytest

from harness.cli import doctor, main
from harness.doctor.finding import MEND, Check, Finding, Status
from harness.model.machine import Machine
from tests.bench import machine


def check(name: str, status: Status) -> Check[Machine]:
    return Check(
        name=name,
        advice="mend it",
        read=machine,
        judge=lambda reading: Finding(status=status, measured=f"{reading.product} seen"),
    )


def raises() -> Machine:
    raise RuntimeError("the device is lost")


def interrupted() -> Machine:
    raise KeyboardInterrupt


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[Check[Machine]]:
    """The checks that doctor makes; filled by the test."""
    checks: list[Check[Machine]] = []
    monkeypatch.setattr(doctor, "cpu_checks", lambda: tuple(checks))
    monkeypatch.setattr(doctor, "gpu_checks", lambda hardware, *, allow_busy: (check("cold L2", Status.OK),))
    monkeypatch.setattr(doctor.devices, "names", lambda: ("cpu",))
    return checks


def test_all_that_holds_gives_zero_and_notes_are_no_fault(
    made_up: list[Check[Machine]], capsys: pytest.CaptureFixture[str]
) -> None:
    made_up += [check("first", Status.OK), check("second", Status.NOTE)]

    assert main(["doctor"]) == 0

    out, err = capsys.readouterr()
    assert out.splitlines()[1:] == [
        "· note  cold L2: not here: torch sees no CUDA device",
        "✓ ok    first: Test CPU seen",
        "· note  second: Test CPU seen",
        "✓ ok    verdict: 1 ok, 2 notes, 0 FAIL of 3 checks; what was checked holds",
    ]
    assert err.splitlines() == ["1/2 first", "2/2 second"]


def test_a_check_that_raises_gives_one_and_the_others_run(
    made_up: list[Check[Machine]], capsys: pytest.CaptureFixture[str]
) -> None:
    made_up += [Check(name="first", advice="mend it", read=raises, judge=lambda _: _), check("second", Status.OK)]  # type: ignore[return-value]

    assert main(["doctor"]) == 1

    out, err = capsys.readouterr()
    assert out.splitlines()[2:] == [
        f"✗ FAIL  first: RuntimeError: the device is lost; limit: the check runs to its end; what to do: {MEND}",
        "✓ ok    second: Test CPU seen",
        "✗ FAIL  verdict: 1 ok, 1 note, 1 FAIL of 3 checks; failed: first",
    ]
    assert "Traceback" not in err


def test_control_c_gives_130(made_up: list[Check[Machine]], capsys: pytest.CaptureFixture[str]) -> None:
    made_up.append(Check(name="first", advice="", read=interrupted, judge=lambda _: _))  # type: ignore[return-value]

    assert main(["doctor"]) == 130
    assert capsys.readouterr().out == ""


def test_json_goes_to_a_file_with_the_same_exit_code(
    made_up: list[Check[Machine]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up.append(check("first", Status.FAIL))
    path = tmp_path / "doctor.json"

    assert main(["doctor", "--format", "json", "--output", str(path)]) == 1

    assert capsys.readouterr().out == ""
    page = json.loads(path.read_text(encoding="utf-8"))
    assert (page["device"], page["verdict"]) == ("cpu", "FAIL")
    assert page["checks"][1]["reading"]["product"] == "Test CPU"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "cuda"], "--device cuda cannot be used: torch sees no CUDA device; here: cpu"),
        (["--device", "tpu"], "'tpu' is not one of"),
        (["--format", "pr"], "'pr' is not one of"),
        (["--output", "none/doctor.txt"], "none/doctor.txt cannot be written: there is no folder none"),
        (["extra"], "unexpected extra argument"),
    ],
)
def test_what_is_wrong_on_the_command_line_gives_two_before_any_check_is_made(
    made_up: list[Check[Machine]], capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    made_up.append(check("first", Status.OK))

    assert main(["doctor", *words]) == 2

    out, err = capsys.readouterr()
    assert message in err
    assert "1/1 first" not in err
    assert out == ""


def test_on_a_gpu_machine_the_gpu_is_checked_unless_the_cpu_is_asked_for(
    made_up: list[Check[Machine]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up.append(check("first", Status.OK))
    monkeypatch.setattr(doctor.devices, "names", lambda: ("cuda", "cpu"))

    assert main(["doctor"]) == 0
    on_gpu = capsys.readouterr().out
    assert main(["doctor", "--device", "cpu"]) == 0
    on_cpu = capsys.readouterr().out

    assert on_gpu.splitlines()[1:-1] == ["✓ ok    cold L2: Test CPU seen"]
    assert on_cpu.splitlines()[1:-1] == ["· note  cold L2: not made: --device cpu", "✓ ok    first: Test CPU seen"]


def test_this_machines_cpu_holds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--device", "cpu"]) == 0

    lines = capsys.readouterr().out.splitlines()
    ok = [line.split(":")[0] for line in lines if line.startswith("✓ ok    ")]
    assert ok[:3] == ["✓ ok    machine", "✓ ok    cpu timer", "✓ ok    cold caches"]
    assert any(line.startswith("· note  cold L2: not ") for line in lines)
    assert not any(line.startswith("✗") for line in lines)
