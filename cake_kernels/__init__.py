"""GPU kernels for Mixture-of-Experts.

::

    from cake_kernels import grouped_gemm
    y = grouped_gemm.forward(x, w, offs)

``grouped_gemm`` is imported on first use, so that :mod:`.registry` lists programs without torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from . import grouped_gemm

__all__ = ["__version__", "grouped_gemm"]


def _version() -> str:
    # The distribution is named after the package. A revision that is imported under another name beside the installed
    # one therefore says "unknown" rather than the other's version; so does a checkout that was never installed.
    try:
        return version(__name__.replace("_", "-"))
    except PackageNotFoundError:
        return "unknown"


__version__: str = _version()
"""Version of the installed distribution; ``unknown`` where this package is not installed under its own name."""


def __getattr__(name: str) -> ModuleType:
    if name == "grouped_gemm":
        return import_module(".grouped_gemm", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
