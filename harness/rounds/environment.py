"""The environment of an arm: what its process must not see of ours, and the versions that it brings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution, entry_points

from harness.plugins import ARMS_ENTRY_POINT

OURS = ("PYTHONPATH", "PYTHONHOME")
"""Variables by which Python finds modules of the environment that the command runs in."""


def without_ours(variables: Mapping[str, str]) -> dict[str, str]:
    """Return ``variables`` for another interpreter, which is to import what is installed there and nothing else.

    Neither what ours are told by :data:`OURS`, nor the working directory: ``-m`` puts it first, and in a checkout it
    holds another ``harness`` and other ``cake_kernels``.
    """
    return {name: value for name, value in variables.items() if name not in OURS} | {"PYTHONSAFEPATH": "1"}


def versions_of(arm: str) -> dict[str, str]:
    """Return distribution -> version: the one that registers ``arm`` here, and those that it requires, if installed.

    Of an arm of the harness there are none: the machine's versions name its libraries.
    """
    homes = [entry.dist for entry in entry_points(group=ARMS_ENTRY_POINT, name=arm) if entry.dist]
    required = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for home in homes for text in home.requires or ()]
    found = {home.name: home.version for home in homes}
    for name in required:
        try:
            other = distribution(name)
        except PackageNotFoundError:  # of an extra, or for another platform
            continue
        found[other.name] = other.version
    return found
