"""A small reader of GitHub-flavoured pipe tables that honours escapes, for tests of what we write."""

from __future__ import annotations

import html
import re

ASCII_PUNCTUATION = r"!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~"


def tables(page: str) -> list[list[list[str]]]:
    """Return each table of the page as rows of raw cells, the rule left out; checks that its width never changes."""
    found: list[list[list[str]]] = []
    block: list[str] = []
    for line in [*page.split("\n"), ""]:
        if line.startswith("|"):
            block.append(line)
            continue
        if block:
            found.append(_table(block))
            block = []
    return found


def _table(lines: list[str]) -> list[list[str]]:
    header, rule, *rows = (cells(line) for line in lines)
    assert all(re.fullmatch(r":?-+:?", cell) for cell in rule), rule
    widths = {len(row) for row in (header, rule, *rows)}
    assert len(widths) == 1, lines
    return [header, *rows]


def cells(line: str) -> list[str]:
    """Split at the pipes that no backslash escapes; a backslash escapes one character."""
    found, cell, escaped = [], "", False
    for char in line:
        if char == "|" and not escaped:
            found.append(cell.strip())
            cell = ""
            continue
        cell += char
        escaped = char == "\\" and not escaped
    assert not cell.strip(), f"no pipe at the end of {line!r}"
    assert not found[0], f"no pipe at the start of {line!r}"
    return found[1:]


def shown(cell: str) -> str:
    """Return the text that a reader sees of escaped inline Markdown: escapes and entities resolved."""
    plain = re.sub(rf"\\([{ASCII_PUNCTUATION}])", r"\1", cell)
    return html.unescape(plain).replace("\u200b", "")
