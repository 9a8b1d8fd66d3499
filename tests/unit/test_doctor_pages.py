"""What doctor prints, byte for byte; ``GOLDEN_WRITE=1`` writes the files again."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.doctor import pages
from harness.doctor.cpu_timer import CpuSpins
from harness.doctor.finding import Status
from tests.unit.doctor_readings import DIAGNOSES, SICK, SOUND, sick, sound

GOLDEN = Path(__file__).parents[1] / "golden" / "doctor"


def golden(name: str, page: str) -> str:
    path = GOLDEN / name
    if os.environ.get("GOLDEN_WRITE"):
        path.write_text(page, encoding="utf-8")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DIAGNOSES)
def test_the_text_is_the_golden_file(name: str) -> None:
    page = pages.text(DIAGNOSES[name]())

    assert page == golden(f"{name}.txt", page)


def test_the_json_is_the_golden_file() -> None:
    page = pages.as_json(sick())

    assert page == golden("sick.json", page)


@pytest.mark.parametrize("name", DIAGNOSES)
def test_the_text_is_a_heading_a_line_a_check_and_a_verdict(name: str) -> None:
    diagnosis = DIAGNOSES[name]()

    lines = pages.text(diagnosis).splitlines()

    assert len(lines) == 1 + len(diagnosis.examined) + 1
    for line, one in zip(lines[1:], diagnosis.examined, strict=False):
        assert line.startswith(f"{pages.GLYPHS[one.finding.status]} {one.finding.status}")
        assert f"  {one.name}: " in line
        assert ("what to do: " in line) == (one.finding.status is Status.FAIL)


def test_every_reading_by_hand_is_of_a_check_that_there_is() -> None:
    assert {one.name for one in sound().examined} == set(SOUND)
    assert {one.name for one in sick().examined} == set(SICK) | {"machine", "CUPTI's own time"}


def test_a_sound_gpu_has_no_failure_and_a_sick_one_fails_everywhere_but_in_notes() -> None:
    assert sound().verdict is Status.OK
    assert sound().named(Status.FAIL) == []
    assert sick().verdict is Status.FAIL
    assert sick().named(Status.OK) == []
    assert sick().named(Status.NOTE) == ["GPU settings", "baseline quack"]


def test_the_json_is_strict_and_has_what_every_line_says() -> None:
    def refuse(constant: str) -> Any:
        raise AssertionError(constant)

    page = json.loads(pages.as_json(sick()), parse_constant=refuse)

    assert list(page) == ["schema_version", "started", "device", "verdict", "checks"]
    assert page["verdict"] == "FAIL"
    assert [check["status"] for check in page["checks"]] == [one.finding.status for one in sick().examined]
    assert {tuple(check) for check in page["checks"]} == {("name", "status", "measured", "limit", "advice", "reading")}
    by_name = {check["name"]: check for check in page["checks"]}
    assert by_name["machine"]["reading"] is None
    assert by_name["alone on the GPU"]["reading"] == {"foreign": [4711, 4712], "allowed": False}


def test_a_reading_that_is_no_number_is_never_written() -> None:
    broken = replace(sound().examined[0], reading=CpuSpins(known_ns=(1,), timer_ns=(math.nan,)))  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="not JSON compliant"):
        pages.as_json(replace(sound(), examined=(broken,)))


def test_the_document_names_every_key_of_the_json_and_every_check() -> None:
    document = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    page = json.loads(pages.as_json(sound()))
    names = {name.split(" ")[0] if name.startswith("baseline") else name for name in SOUND}

    assert [key for key in (*page, *page["checks"][0]) if f"`{key}`" not in document] == []
    assert sorted(name for name in names if name not in document) == []
