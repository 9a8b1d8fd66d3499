"""Markdown -> headings, lines and tables, as plain text with line numbers."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from functools import lru_cache

from harness.audit.finding import AuditError

_RULE = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?")
_FENCE = re.compile(r"(`{3,}|~{3,})")
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
_QUOTE = re.compile(r"^(?:\s*>)+\s?")
_PRIVATE = 0xE000
"""Escaped punctuation waits in Unicode's private area while emphasis is taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of text; ``level`` is that of a heading, 0 of any other line; ``item`` where it begins one of a list."""

    number: int
    text: str
    level: int = 0
    item: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A table's line; as many cells as the header."""

    number: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: its header's line and cells, and its rows."""

    number: int
    header: tuple[str, ...]
    rows: tuple[TableRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A page in order; blank lines are left out, and fenced code stands apart, as it is."""

    blocks: tuple[Line | Table, ...]
    fenced: tuple[Line, ...] = ()

    @property
    def text(self) -> str:
        """All lines outside of tables."""
        return "\n".join(block.text for block in self.blocks if isinstance(block, Line))


def read(text: str) -> Document:
    """Return the page.

    Raises
    ------
    AuditError
        A line of a table has more cells than its header: what is printed would be dropped.
    """
    lines = [_QUOTE.sub("", line, count=1) for line in text.replace("\r\n", "\n").split("\n")]
    blocks: list[Line | Table] = []
    fenced: list[Line] = []
    fence = ""
    at = 0
    while at < len(lines):
        line = lines[at]
        mark = _FENCE.match(line.strip())
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif fence:
            fenced.append(Line(number=at + 1, text=line))
        elif not line.strip():
            pass
        elif "|" in line and at + 1 < len(lines) and _is_rule(lines[at + 1]):
            at = _pipe_table(lines, at, blocks)
            continue
        elif (end := _tab_table(lines, at, blocks)) > at:
            at = end
            continue
        else:
            heading = _HEADING.fullmatch(line.strip())
            content, level = (heading[2], len(heading[1])) if heading else (line, 0)
            item = _ITEM.match(line) is not None
            blocks.append(Line(number=at + 1, text=plain(content), level=level, item=item))
        at += 1
    return Document(blocks=tuple(blocks), fenced=tuple(fenced))


@lru_cache(maxsize=1 << 12)  # of a page's cells many are the same
def plain(text: str) -> str:
    """Return what a reader sees of inline Markdown: no emphasis, code marks, tags, footnote marks, link targets."""
    text = re.sub(r"\\([!-/:-@\[-`{-~])", lambda m: chr(_PRIVATE + ord(m[1])), text)
    text = re.sub(r"<sup>[^<.]{0,3}</sup>|\[\^[^\]]*\]|<!--.*?-->", "", text)
    text = re.sub(r"</?[a-zA-Z][^>]*>", " ", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\*+|`+|~~|(?<![^\W_])_+|_+(?![^\W_])", "", text)
    text = html.unescape(text).replace("\u200b", "")
    text = re.sub(rf"[{chr(_PRIVATE)}-{chr(_PRIVATE + 127)}]", lambda m: chr(ord(m[0]) - _PRIVATE), text)
    return " ".join(text.split())


def _is_rule(line: str) -> bool:
    return "-" in line and _RULE.fullmatch(line.strip()) is not None


def _pipe_table(lines: list[str], at: int, blocks: list[Line | Table]) -> int:
    """Append the table that begins at ``at`` and return where it ends."""
    header = _cells(lines[at])
    end = at + 2
    while end < len(lines) and "|" in lines[end]:
        end += 1
    rows = tuple(_row(number + 1, _cells(lines[number]), len(header)) for number in range(at + 2, end))
    blocks.append(Table(number=at + 1, header=header, rows=rows))
    return end


def _tab_table(lines: list[str], at: int, blocks: list[Line | Table]) -> int:
    """Append the tab-separated table that begins at ``at`` and return where it ends; ``at`` where there is none.

    Browsers put blank lines between rows or not. After one, a line without a digit is the header of the next table.
    """
    width = lines[at].count("\t") + 1
    numbers = [at]
    for number in range(at + 1, len(lines)):
        line = lines[number]
        if line.strip() and (line.count("\t") == 0 or width == 1):
            break
        if line.strip() and not lines[number - 1].strip() and not any(char.isdigit() for char in line):
            break
        if lines[number].strip():
            numbers.append(number)
    if len(numbers) < 2:
        return at
    header, *rows = (tuple(plain(cell) for cell in lines[number].split("\t")) for number in numbers)
    found = (_row(number + 1, cells, width) for number, cells in zip(numbers[1:], rows, strict=True))
    blocks.append(Table(number=at + 1, header=header, rows=tuple(found)))
    return numbers[-1] + 1


def _row(number: int, cells: tuple[str, ...], width: int) -> TableRow:
    if len(cells) > width:
        raise AuditError(
            f"line {number}: a row must have its header's {width} cells at most, got {len(cells)}; mend it"
        )
    return TableRow(number=number, cells=cells + ("",) * (width - len(cells)))


def _cells(line: str) -> tuple[str, ...]:
    """Split at the pipes that no backslash escapes."""
    body = re.sub(r"(?<!\\)\|\s*$", "", re.sub(r"^\s*\|", "", line))
    return tuple(plain(cell) for cell in re.split(r"(?<!\\)\|", body))
