"""Kernels: one revision of ``cake_kernels`` as it is imported, with the bytes of its sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType

import cake_kernels

PACKAGE = "cake_kernels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """One revision of ``cake_kernels``.

    Attributes
    ----------
    package
        Name under which it is imported: its torch operators and its cubins lie under this name.
    revision
        Commit and where that comes from, or ``unknown``.
    folder
        That of the package, resolved.
    sources
        Path below ``folder``, with slashes -> bytes, of every file but what Python compiles, sorted by path.
    """

    package: str
    revision: str
    folder: Path
    sources: Mapping[str, bytes] = field(repr=False)

    @property
    def sha256(self) -> str:
        """SHA-256 of the lines ``<SHA-256 of a file>  <its path>``, as ``sha256sum`` writes them, in hex."""
        lines = (f"{sha256(data).hexdigest()}  {path}\n" for path, data in self.sources.items())
        return sha256("".join(lines).encode()).hexdigest()

    def module(self, name: str) -> ModuleType:
        """Return the package's module ``name``; whatever its import raises passes."""
        return import_module(f"{self.package}.{name}")


def current(revision: str) -> Kernels:
    """Return the kernels that are installed under their own name, of the revision that the caller knows them by."""
    folder = Path(cake_kernels.__path__[0]).resolve()
    return Kernels(package=PACKAGE, revision=revision, folder=folder, sources=read_sources(folder))


def read_sources(folder: Path) -> dict[str, bytes]:
    """Return every file of the package in ``folder``, by its path there; an OSError passes."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: paths[name].read_bytes() for name in sorted(paths) if "__pycache__" not in name.split("/")}
