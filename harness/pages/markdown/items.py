"""A list in Markdown whose items may have a list of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A line, and lines below it; Markdown, one line each."""

    line: str
    below: tuple[str, ...] = ()


def bullets(items: Iterable[Item]) -> str:
    """Return the list, without a line feed at its end; empty without an item."""
    return "\n".join(line for item in items for line in (f"- {item.line}", *(f"  - {one}" for one in item.below)))
