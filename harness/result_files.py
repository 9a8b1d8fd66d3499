"""JSON files of results: written whole or not at all, read so that nothing passes for what it is not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NoReturn

from harness.errors import RunFileError


def write(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` so that at every moment the file is the old one or the new one, whole.

    Raises
    ------
    RunFileError
        The folder cannot be written to.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(part, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise RunFileError(f"{path} cannot be written: {error.strerror}; choose another folder with --out") from error


def read(path: Path, what: str) -> str:
    """Return the text of ``path``; ``what`` is what errors say it is not: ``run file``.

    Raises
    ------
    RunFileError
        It cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunFileError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RunFileError(f"{path} is no {what}: not UTF-8 at byte {error.start}") from error


def parse(text: str, name: str, what: str) -> object:
    """Return what the JSON ``text`` holds; ``name`` is what errors call it.

    Raises
    ------
    RunFileError
        It is no JSON, holds NaN or an infinity, or an object has a key twice.
    """

    def refuse(constant: str) -> NoReturn:
        raise RunFileError(f"{name} holds {constant}, which is no result; measure again")

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise RunFileError(f"{name}: the key {twice!r} must stand once in an object, got {keys.count(twice)}")
        return fields

    try:
        found: object = json.loads(text, parse_constant=refuse, object_pairs_hook=once)
    except ValueError as error:
        raise RunFileError(f"{name} is no {what}: {error}") from error
    except RecursionError as error:
        raise RunFileError(f"{name} is no {what}: brackets are nested too deeply") from error
    return found
