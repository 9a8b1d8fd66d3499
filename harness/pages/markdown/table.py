"""A pipe table whose header, rule and rows have the same width, because cells are found by their column's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def table(headers: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> str:
    """Return the table, without a line feed at its end.

    Parameters
    ----------
    headers
        Column's name -> its header, in order.
    rows
        Column's name -> cell. Headers and cells are Markdown: text from outside has gone through ``escape``.

    Raises
    ------
    ValueError
        A row lacks a column, has one too many, or a cell breaks its line.
    """
    for index, row in enumerate(rows):
        if row.keys() != headers.keys():
            wrong = sorted(row.keys() ^ headers.keys())
            raise ValueError(f"rows[{index}] must have the table's columns, differs in {', '.join(wrong)}")
    lines = [_line(headers.values()), "|" + "---|" * len(headers)]
    lines += [_line(row[name] for name in headers) for row in rows]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    listed = list(cells)
    for cell in listed:
        if len(cell.splitlines()) > 1:
            raise ValueError(f"a cell must be one line, got {cell!r}")
    return f"| {' | '.join(listed)} |"
