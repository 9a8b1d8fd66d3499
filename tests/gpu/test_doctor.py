"""``cake-bench doctor`` on a GPU, in a process of its own: a process has one CUPTI session."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def diagnosis(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("doctor") / "doctor.json"
    # Other tests of this session compute on the GPU beside it, which the driver may show.
    command = [sys.executable, "-m", "harness", "doctor", "--allow-busy", "--format", "json", "--output", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    page = json.loads(path.read_text(encoding="utf-8"))
    for check in page["checks"]:
        print(check["status"], check["name"], check["measured"], check["limit"], sep=" | ")
    return page


def test_no_check_fails(diagnosis: Any) -> None:
    failed = [f"{c['name']}: {c['measured']}; limit {c['limit']}" for c in diagnosis["checks"] if c["status"] == "FAIL"]

    assert failed == []
    assert diagnosis["verdict"] == "ok"


def test_every_check_came_to_a_reading(diagnosis: Any) -> None:
    assert diagnosis["device"] == "cuda"
    assert [check["name"] for check in diagnosis["checks"] if check["reading"] is None] == []


def test_both_regimes_of_both_rows_were_measured_twice_over(diagnosis: Any) -> None:
    floors = [check["reading"] for check in diagnosis["checks"] if check["name"].startswith("A/A")]

    assert [[(one["regime"], len(one["ratios"])) for one in floor["regimes"]] for floor in floors] == 2 * [
        [("boost", 24), ("sustained", 10)]
    ]
