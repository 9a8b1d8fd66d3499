"""Progress on stderr: a bar with the remaining time at a terminal, a plain line a row elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from harness.model.run import Row


def how_to_go_on(path: Path) -> str:
    """Return the sentence for whoever wants the rest of an unfinished file."""
    return f"go on with the same command, --resume {path} for --out and --run-id"


class RowProgress:
    """Says which row is being measured and what became of each."""

    def __init__(self, total: int, console: Console, clock: Callable[[], int]) -> None:
        self._total = total
        self._console = console
        self._clock = clock
        self._done = 0
        self._start = clock()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, title: str) -> None:
        """Name the row that is being measured."""
        self._bar.update(self._task, description=title.replace("[", r"\["))

    def end(self, title: str, rows: Sequence[Row]) -> None:
        """Count the case; away from a terminal, or where an arm failed, print what became of its rows."""
        self._done += 1
        self._bar.advance(self._task)
        failed = {f"{n} {o.reason}": None for row in rows for n, o in row.arms.items() if o.status == "failed"}
        if self._console.is_terminal and not failed:
            return
        elapsed_s = (self._clock() - self._start) / 1e9
        left_s = elapsed_s / self._done * (self._total - self._done)
        said = "; ".join(row_outcome(row) if len(rows) == 1 else f"{row.regime} {row_outcome(row)}" for row in rows)
        head = f"{self._done}/{self._total} {title}: {said}; {elapsed_s:.0f} s, ETA {left_s:.0f} s"
        lines = [head, *(f"  failed: {line}" for line in failed)]
        self._console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def row_outcome(row: Row) -> str:
    """Return what became of a row in a few words."""
    if row.skipped:
        return f"skipped ({row.skipped})"
    counts = {s: sum(o.status == s for o in row.arms.values()) for s in ("measured", "failed", "unsupported")}
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count)
