"""What a table can be made without, seen from outside: a process in which the heavy packages cannot be imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness import runfile
from tests.unit.test_runfile import small_run

BLOCK = """
import sys
for name in ("torch", "cupti", "cake_kernels", "pynvml"):
    sys.modules[name] = None
from harness.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("form", ["pr", "csv", "json"])
def test_report_needs_neither_torch_nor_a_gpu_and_gives_the_same_bytes(tmp_path: Path, form: str) -> None:
    path = tmp_path / "r1.json"
    runfile.save(small_run(), path)

    outputs = [
        subprocess.run(
            [sys.executable, "-c", BLOCK, "report", "--format", form, str(path)], capture_output=True, check=True
        ).stdout
        for _ in range(2)
    ]

    assert outputs[0] == outputs[1]
    assert b"tiny" in outputs[0]
