import json
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]


def test_a_hundred_kills_lose_at_most_the_row_in_progress_each(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.kill_loop", str(tmp_path), "100", "0"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    kills = [json.loads(line) for line in done.stdout.splitlines()]

    assert len(kills) == 100
    assert [k["unreadable"] for k in kills] == [""] * 100
    # A row is announced after it is saved: what was announced is in the file, and nothing that was there is gone.
    assert all(k["after"] >= k["before"] + k["announced"] for k in kills)
    assert all(k["after"] <= k["before"] + k["announced"] + 1 for k in kills)
    # The moments are spread over the rows of a run, not only over its start.
    assert sum(k["killed"] and k["after"] > k["before"] for k in kills) >= 50
