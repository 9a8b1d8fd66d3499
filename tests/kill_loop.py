"""Starts a run again and again, kills it with SIGKILL at a random moment, and says what each kill left in the run file.

Its own process, so that children are forked from one that has everything imported and no threads: `python -m
tests.kill_loop FOLDER KILLS SEED`. Prints one JSON object a kill.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

import torch

from harness import runfile
from harness.cli import main
from harness.errors import RunFileError

ASKED_FOR = ("cli.run", "arms.reference", "distributions.balanced", "timers.scripted")
"""Modules of the harness that a run imports by name; here once, or each child would."""

SHAPES = Path(__file__).parent / "data" / "kill" / "shapes.yaml"


def arguments(folder: Path, path: Path) -> list[str]:
    fixed = [
        "run", "--shapes", str(SHAPES), "--suite", "many", "--arm", "reference", "--device", "cpu", "--revision", "r1",
        "--timer", f"scripted:{folder / 'script.json'}",
    ]  # fmt: skip
    where = ["--resume", str(path)] if path.exists() else ["--out", str(folder), "--run-id", path.stem]
    return [*fixed, *where]


def child(folder: Path, path: Path, announced: Path) -> None:
    """Become ``cake-bench run``, its progress lines in ``announced``."""
    log = os.open(announced, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os._exit(main(arguments(folder, path)))


def state(path: Path) -> tuple[int, str]:
    """Return how many rows the file holds and why it cannot be read."""
    try:
        return (len(runfile.load(path).rows), "") if path.exists() else (0, "")
    except RunFileError as error:
        return 0, str(error)


def rows_announced(announced: Path) -> int:
    """Count the rows that the child's progress lines say are done."""
    text = announced.read_text() if announced.exists() else ""
    return sum(line[:1].isdigit() for line in text.splitlines(keepends=True) if line.endswith("\n"))


def one_kill(folder: Path, path: Path, after_rows: int, moment_s: float) -> dict[str, object]:
    """Kill a run ``moment_s`` after it has announced ``after_rows`` rows (or when it ends before that)."""
    before, _ = state(path)
    announced = folder / "announced.txt"
    pid = os.fork()
    if pid == 0:
        child(folder, path, announced)
    while (
        rows_announced(announced) < after_rows
        and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):
        time.sleep(0.001)
    time.sleep(moment_s)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    after, unreadable = state(path)
    lines = rows_announced(announced)
    announced.unlink(missing_ok=True)
    return {
        "before": before,
        "announced": lines,
        "after": after,
        "unreadable": unreadable,
        "killed": os.WIFSIGNALED(status),
    }


def run(folder: Path, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    for module in ASKED_FOR:
        import_module(f"harness.{module}")
    chance = random.Random(seed)
    (folder / "script.json").write_text('{"reference": [5000, 5100, 4900]}')
    number = 0
    for _ in range(kills):
        path = folder / f"run{number}.json"
        # From the start of the process on, or within about two rows' time of a row's end.
        after_rows = chance.choice([0, 1, 2, 3, 5, 8])
        result = one_kill(folder, path, after_rows, chance.uniform(0.0, 0.02 if after_rows else 0.3))
        print(json.dumps(result), flush=True)
        if not result["killed"] or result["after"] == 200:
            number += 1


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
