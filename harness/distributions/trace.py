"""Sizes from a file of real routing: the rows that each expert received, as .npy or .csv."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from tokenize import TokenError
from typing import Self

import numpy as np

from harness.distributions import Distribution
from harness.errors import ShapesError, first_line
from harness.model.shape import MAX_E
from harness.strict import Name, value_text

# What numpy raises for a header that is no header, or that claims more than there is.
_BAD_NPY = (ValueError, TypeError, SyntaxError, TokenError, OverflowError, MemoryError)


class Sizes(Distribution):
    """Recorded sizes; the file fixes E and M.

    Attributes
    ----------
    path
        A ``.npy`` with one dimension of integers, or a ``.csv`` of integers in one row or one column without a
        heading. Relative to the YAML file that names it; on the command line, to the current folder.
    """

    path: Name

    def group_sizes(self, *, E: int, M: int) -> tuple[int, ...]:
        """Return the file's sizes, in its order."""
        del E, M
        return self._read()

    def dims(self) -> tuple[int, int]:
        """Return the count and the sum of the file's sizes."""
        sizes = self._read()
        return len(sizes), sum(sizes)

    def beside(self, folder: Path) -> Self:
        """Return the trace with its path taken from ``folder``; an absolute path stays."""
        return self.model_copy(update={"path": str(folder / self.path)})

    def words(self) -> str:
        """Return the file's name and the first 12 hex digits of the SHA-256 of its sizes, joined by commas."""
        digest = hashlib.sha256(",".join(map(str, self._read())).encode()).hexdigest()
        return f"trace(file={Path(self.path).name}, sha256={digest[:12]})"

    def short(self) -> str:
        """Return ``trace:`` and the file's name, without its folder."""
        return f"trace:{Path(self.path).name}"

    def _read(self) -> tuple[int, ...]:
        path = Path(self.path)
        readers = {".npy": _read_npy, ".csv": _read_csv}
        if path.suffix not in readers:
            raise ShapesError(f"path must end in .npy or .csv, got {self.path!r}")
        try:
            sizes = readers[path.suffix](path)
        except OSError as error:
            raise ShapesError(f"path {self.path!r} cannot be read: {error.strerror or error}") from None
        if not sizes:
            raise ShapesError(f"{path.name} must hold the size of at least one expert, got none")
        for expert, size in enumerate(sizes):
            if size < 0:
                raise ShapesError(f"{path.name}: the size of expert {expert} must be >= 0, got {size}")
        return sizes


def _read_npy(path: Path) -> tuple[int, ...]:
    try:
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except _BAD_NPY as error:
        raise ShapesError(f"{path.name} must be a .npy file of integers: {first_line(error)}") from None
    if array.size > MAX_E:
        raise ShapesError(f"{path.name} must hold at most {MAX_E} sizes, one per expert; got {array.size}")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        got = f"{array.dtype} {list(array.shape)}"
        raise ShapesError(f"{path.name} must have one dimension of integers, one per expert; got {got}")
    return tuple(int(size) for size in array)


def _read_csv(path: Path) -> tuple[int, ...]:
    try:
        # Spreadsheets put a byte-order mark in front.
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ShapesError(f"{path.name} must be UTF-8 text") from None
    rows = [line.split(",") for line in lines if line.strip()]
    if len(rows) > 1 and any(len(row) > 1 for row in rows):
        raise ShapesError(f"{path.name} must be one row or one column of sizes, got {len(rows)} rows; keep one layer")
    cells = [cell.strip() for row in rows for cell in row]
    for cell in cells:
        if not re.fullmatch(r"-?[0-9]{1,18}", cell):
            raise ShapesError(f"{path.name} must hold integers only, without a heading; got {value_text(cell)}")
    return tuple(int(cell) for cell in cells)
