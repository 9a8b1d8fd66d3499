"""The newest versions of the baselines' libraries that we know of; the one place that says so. It ages: see AS_OF."""

from __future__ import annotations

import re

AS_OF = "2026-11-29"
"""The day on which :data:`NEWEST` was made."""

NEWEST = {
    "torch": "2.15.0",
    "nvidia-cublas": "13.10.0.20",
    "nvidia-cudnn-frontend": "1.32.0",
    "nvidia-cudnn-cu13": "9.28.1.4",
    "quack-kernels": "0.6.5",
    "nvidia-cutlass-dsl": "4.8.1",
}


def release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, ``2.13.0+cu130`` -> (2, 13, 0): enough to compare releases."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in leading.group().split(".")) if leading else ()


def is_old(name: str, version: str) -> bool:
    """Return whether a newer version than ``version`` is known."""
    return name in NEWEST and release(version) < release(NEWEST[name])
