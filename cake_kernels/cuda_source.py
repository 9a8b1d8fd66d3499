"""CUDA C++ as a compiler gets it: one text and every header that it reaches, read once.

Headers travel to the compiler with the text, so that what a cache key was made from is what is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .errors import CompileError

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A text to compile.

    Attributes
    ----------
    origin
        Its path, or a name for a text that has none; what messages call it. Its last part names the text inside the
        compiler, so that a cubin is the same wherever the package lies.
    text
        CUDA C++.
    headers
        Name, as the ``#include`` writes it -> text.
    """

    origin: str
    text: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last part of ``origin``."""
        return Path(self.origin).name


def read_source(path: Path, include: Iterable[Path] = ()) -> Source:
    """Read ``path`` and every header that it reaches.

    A header is looked for beside the file that includes it, then in the folders ``include`` in their order. One that is
    in none of them is left to the compiler, which refuses it where the preprocessor reaches it.

    Raises
    ------
    CompileError
        A file cannot be read, or two files are included under one name.
    """
    text = _read(path)
    headers: dict[str, str] = {}
    _collect(path, text, tuple(include), headers, {})
    return Source(origin=str(path), text=text, headers=headers)


def _collect(
    includer: Path, text: str, folders: tuple[Path, ...], headers: dict[str, str], found: dict[str, Path]
) -> None:
    for name in _INCLUDE.findall(text):
        path = next((p.resolve() for f in (includer.parent, *folders) if (p := f / name).is_file()), None)
        if path is None or found.get(name) == path:
            continue
        if name in found:
            raise CompileError(
                str(includer),
                f"#include {name!r} is {path} here and {found[name]} elsewhere;"
                " one name must mean one file, so write a longer path",
            )
        found[name] = path
        headers[name] = _read(path)
        _collect(path, headers[name], folders, headers, found)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CompileError(str(path), f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CompileError(str(path), f"it must be UTF-8: {error}") from error
