"""Compiled programs on disk: one file a key, written whole or not at all, checked when read.

A file that is not what its name says (cut off, damaged, put there by something else) counts as absent and is replaced.
A folder that cannot be written costs a compilation per process, and each result says why; it is never an error.
Nothing is locked: processes that miss at once each compile, and the last rename wins with the same code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import mkstemp

VARIABLE = "CAKE_KERNELS_CACHE"

_MAGIC = b"cake cubin 1\n"
_DIGEST_BYTES = sha256().digest_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What a compiler made: the code, and what it said meanwhile (warnings; nothing, mostly)."""

    code: bytes
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """What the cache gave.

    Attributes
    ----------
    not_on_disk
        Why other processes will not find it, or None.
    """

    compiled: Compiled
    not_on_disk: str | None


def cache_folder(environ: Mapping[str, str], package: str) -> Path | None:
    """Return where cubins of ``package`` lie: one folder a package, so that two revisions never meet in one.

    The first that is set of ``$CAKE_KERNELS_CACHE/<package>``, ``$XDG_CACHE_HOME/<package>`` (an absolute path, as its
    specification asks) and ``$HOME/.cache/<package>``; None where none is.
    """
    if own := environ.get(VARIABLE):
        return Path(own) / package
    if os.path.isabs(xdg := environ.get("XDG_CACHE_HOME", "")):
        return Path(xdg) / package
    if home := environ.get("HOME"):
        return Path(home) / ".cache" / package
    return None


class CubinCache:
    """Cubins by key, in ``folder`` and in this process's memory; without a folder in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._memory: dict[str, Cached] = {}

    def fetch(self, key: str, make: Callable[[], Compiled]) -> Cached:
        """Return what is stored under ``key`` (a hex digest), or make it and store it. What ``make`` raises passes."""
        if key not in self._memory:
            self._memory[key] = self._from_disk(key, make)
        return self._memory[key]

    def _from_disk(self, key: str, make: Callable[[], Compiled]) -> Cached:
        if self.folder is None:
            return Cached(compiled=make(), not_on_disk=f"none of {VARIABLE}, XDG_CACHE_HOME and HOME names a folder")
        path = self.folder / f"{key}.cubin"
        stored: Compiled | None = None
        with suppress(OSError):  # a file that cannot be read is absent; if it cannot be replaced either, _write says so
            if path.is_file():  # a pipe would keep its reader waiting
                stored = _decode(key, path.read_bytes())
        if stored is not None:
            return Cached(compiled=stored, not_on_disk=None)
        made = make()
        try:
            _write(path, _encode(key, made))
        except OSError as error:
            return Cached(compiled=made, not_on_disk=f"{self.folder} cannot be written: {error.strerror or error}")
        return Cached(compiled=made, not_on_disk=None)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # In the same folder: a rename is atomic only within one file system.
    handle, temporary = mkstemp(dir=path.parent, prefix=f".{path.stem}.")
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _encode(key: str, compiled: Compiled) -> bytes:
    body = compiled.log.replace("\0", "").encode() + b"\0" + compiled.code
    return _MAGIC + _digest(key, body) + body


def _decode(key: str, data: bytes) -> Compiled | None:
    start = len(_MAGIC) + _DIGEST_BYTES
    body = data[start:]
    if data[:start] != _MAGIC + _digest(key, body):
        return None
    log, _, code = body.partition(b"\0")
    return Compiled(code=code, log=log.decode())


def _digest(key: str, body: bytes) -> bytes:
    # The key too: a good file under another file's name is foreign.
    return sha256(key.encode() + b"\0" + body).digest()
