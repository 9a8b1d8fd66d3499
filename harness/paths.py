"""Where ``shapes.yaml`` and ``templates/`` lie: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

from harness.errors import UsageError

_PACKAGE = Path(__file__).parent


def data(name: str) -> Path:
    """Return the path of ``name`` (``shapes.yaml``, ``templates``).

    A wheel carries it at ``harness/data/<name>``; a checkout (also an editable install) has it at the top.

    Raises
    ------
    UsageError
        It is in neither place.
    """
    for path in (_PACKAGE / "data" / name, _PACKAGE.parent / name):
        if path.exists():
            return path
    raise UsageError(
        f"{name} is missing from the installation of cake-kernels; install it again, or run from a checkout"
    )
