"""Optional libraries: which version is installed, found without importing it."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version


def missing(distribution: str, at_least: str) -> str | None:
    """Return why ``distribution`` cannot be used (not installed, or older than ``at_least``), or None."""
    try:
        found = version(distribution)
    except PackageNotFoundError:
        return f"{distribution} is not installed; pip install '{distribution}>={at_least}'"
    if _numbers(found) < _numbers(at_least):
        return f"needs {distribution} >= {at_least}, found {found}"
    return None


def _numbers(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, ``1.32.0rc1`` -> (1, 32, 0): enough to compare releases."""
    leading = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in leading.group().split(".")) if leading else ()
