"""Any text -> one line of GitHub-flavoured Markdown that shows it and does nothing else."""

from __future__ import annotations

import re
import unicodedata

_ZERO_WIDTH = "&#8203;"

_ESCAPES = {
    "\\": "&#92;",  # as an entity: a backslash before an escaped pipe reads differently to table and inline parsers
    "|": "\\|",
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "$": "&#36;",  # GitHub looks for formulas before it knows backslash escapes
    "@": f"@{_ZERO_WIDTH}",  # mentions are found in the rendered text: only a character between stops them
    "`": "\\`",
    "*": "\\*",
    "[": "\\[",
    "]": "\\]",
    "#": "\\#",
    "~": "\\~",
}


def escape(text: str) -> str:
    """Return ``text`` as one line that shows it literally, in a paragraph as in a table's cell.

    Row names such as ``gate_up E4 M112576 1-empty asc`` come out unchanged: an underscore inside a word is not
    touched. White space of any kind becomes one space; other control characters, those that only steer the display
    (direction, joining) and lone surrogates become U+FFFD. What GitHub makes of rendered text (``@name``, ``#1``,
    ``GH-1``, ``http://``, ``www.``, ``:smile:``) is broken by a zero-width space.
    """
    line = "".join(_visible(char) for char in " ".join(text.split()))
    line = "".join(_ESCAPES.get(char, char) for char in line)
    line = re.sub(r"\\#(?=\d)", rf"\\#{_ZERO_WIDTH}", line)
    line = re.sub(r"\b(GH-)(?=\d)", rf"\1{_ZERO_WIDTH}", line, flags=re.IGNORECASE)
    line = re.sub(r"(:)(?=//|[\w+-]+:)|\b(www)(?=\.)", rf"\g<0>{_ZERO_WIDTH}", line, flags=re.IGNORECASE)
    return re.sub(r"_+", lambda match: match[0] if _inside_word(match) else "\\_" * len(match[0]), line)


def _inside_word(match: re.Match[str]) -> bool:
    """Return whether letters or digits stand on both sides: there, an underscore is no emphasis."""
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    return before.isalnum() and after.isalnum()


def _visible(char: str) -> str:
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(char) in ("Cc", "Cf", "Cs") else char
