"""GPU kernels for Mixture-of-Experts.

::

    from cake_kernels import grouped_mm
    y = grouped_mm(x, w, offs)                  # differentiable; see docs/grouped_mm.md

``grouped_mm`` is what a layer calls, ``grouped_gemm`` the three products below it, ``moe`` a layer made of them. Each
is imported on first use, so that :mod:`.registry` lists programs without torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import grouped_gemm, moe
    from .facade import grouped_mm

__all__ = ["__version__", "grouped_gemm", "grouped_mm", "moe"]


def _version() -> str:
    # The distribution is named after the package. A revision that is imported under another name beside the installed
    # one therefore says "unknown" rather than the other's version; so does a checkout that was never installed.
    try:
        return version(__name__.replace("_", "-"))
    except PackageNotFoundError:
        return "unknown"


__version__: str = _version()
"""Version of the installed distribution; ``unknown`` where this package is not installed under its own name."""


def __getattr__(name: str) -> object:
    if name in ("grouped_gemm", "moe"):
        return import_module(f".{name}", __name__)
    if name == "grouped_mm":
        return getattr(import_module(".facade", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
