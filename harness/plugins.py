"""One folder, one kind of plug-in: names are listed from files without importing; a plug-in is a file.

A folder's plug-ins are the stems of its modules. Other distributions add arms through the entry point
group ``cake_bench.arms``. A missing optional library is the plug-in's own ``why_not`` reason; an import
that fails is a :class:`~harness.errors.PluginError` with the plug-in's name, never a skip.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from harness.errors import FOREIGN, PluginError, UnknownName, first_line

ARMS_ENTRY_POINT = "cake_bench.arms"


def names(folder: str) -> tuple[str, ...]:
    """Return the plug-ins of ``harness/<folder>`` (``arms``, ``timers``, ...) in alphabetical order, importing none."""
    here = Path(__file__).parent / folder
    return tuple(sorted(p.stem for p in here.glob("*.py") if not p.stem.startswith("_")))


def load(folder: str, name: str) -> ModuleType:
    """Import ``harness/<folder>/<name>.py``.

    Raises
    ------
    UnknownName
        There is no such file; the message lists those there are.
    PluginError
        The file is there and its import fails.
    """
    if name not in names(folder):
        raise UnknownName(folder.removesuffix("s"), name, names(folder))
    return _import(f"harness.{folder}.{name}", f"{folder.removesuffix('s')} {name!r}")


def external_names(group: str) -> tuple[str, ...]:
    """Return the names that installed distributions register under the entry point ``group``, each once."""
    return tuple(sorted({e.name for e in entry_points(group=group)}))


def owners(group: str, name: str) -> tuple[str, ...]:
    """Return the distributions that register ``name`` under the entry point ``group``, one for each time."""
    return tuple(sorted(e.dist.name if e.dist else e.value for e in entry_points(group=group, name=name)))


def load_external(group: str, name: str) -> object:
    """Return the object behind the entry point ``name`` of ``group``.

    Raises
    ------
    PluginError
        Its import fails, or two distributions register the name.
    """
    found = tuple(entry_points(group=group, name=name))
    if len(found) != 1:
        origins = ", ".join(owners(group, name)) or "none"
        raise PluginError(f"entry point {group}:{name} must have one owner, got {len(found)}: {origins}")
    with _named(f"entry point {group}:{name} ({found[0].value})"):
        return found[0].load()


def _import(module: str, title: str) -> ModuleType:
    with _named(title):
        return importlib.import_module(module)


@contextmanager
def _named(title: str) -> Iterator[None]:
    """Turn whatever the plug-in's own code raises into an error that names it."""
    try:
        yield
    except FOREIGN as error:
        raise PluginError(f"{title} fails to import: {type(error).__name__}: {first_line(error)}") from error
