"""What a table's header means: which column is the row's name, its operation, a latency, a ratio and against what."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.audit.markdown import Table
from harness.audit.printed import has_number, only_range, ratio

Part = Literal["value", "lowest", "highest", "range"]

_NAME = {"row", "workload", "shape", "case", "name", "problem"}
_NAME_TOO = {"mode", "kind", "routing", "distribution", "projection", "dtype", "e", "m", "k"}
"""Columns that belong to a row's name where one of the others is there; so does N, but n is the number of groups."""
_GPU = {"gpu", "device", "architecture", "arch", "card"}
_OP = {"operation", "operations", "op", "ops"}
_CLASS = {"class", "row class", "rows", "kind of rows"}
_COUNT = {"count", "n", "#", "rows", "row count", "number of rows", "n rows"}
_LATENCY = re.compile(r"[(\[, ](?:ms|us|µs|μs|ns|s)[)\]]?$|\blatency\b|\btime\b")
_RATIO = re.compile(r"\bspeedup\b|\bvs\b|\bversus\b|\bratio\b|\bover\b| / |×")
_OTHER = re.compile(r"\bspread\b|\ba/a\b|\bbusy\b|\benergy\b|\berror\b|\bgap\b|\bfloor\b|\bcycles\b|\bclock\b|flop/s")
_UNIT = re.compile(r"[(\[, ](ms|us|µs|μs|ns|s)[)\]]?(?:$|\W)")
_PART = re.compile(r"(lowest|min(?:imum)?|highest|max(?:imum)?|range|\[min, max\]|min[-–]max|lowest[-–]highest)\b\s*")
_VERSUS = re.compile(r".*\b(?:vs|versus|over|against|relative to|compared (?:to|with))\b\.?\s+")
_SLOWDOWN = re.compile(r"\bslowdown\b|\bslower\b")
_LEADING = re.compile(r"^(?:(?:geometric mean|geomean|mean|median|speedup|ratio|of)\b\s*)+")
_TRAILING = re.compile(r"\s*(?:[(\[][^)\]]*[)\]]|×|,?\s*↑.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioColumn:
    """A column of ratios: its place, its baseline, and whether it holds ratios or one of their ends."""

    index: int
    key: str
    part: Part


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyColumn:
    """A column of times: its place, the arm, the letter in its header (or empty), the unit, whether it is new."""

    index: int
    arm: str
    key: str
    unit: str
    new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The columns of one table by meaning; None for those it has not. ``keys`` hold letters of arms, by baseline."""

    name: tuple[int, ...]
    gpu: int | None
    op: int | None
    row_class: int | None
    count: int | None
    suite: int | None
    regime: int | None
    n: int | None
    remarks: int | None
    ratios: tuple[RatioColumn, ...]
    latencies: tuple[LatencyColumn, ...]
    keys: tuple[RatioColumn, ...]
    titles: tuple[str, ...]

    @property
    def is_rows(self) -> bool:
        """Whether the table has a line a row."""
        return bool(self.name) and bool(self.ratios)


def row_header(table: Table) -> Header:
    """Return the header of a table that may be one of rows."""
    titles = [title.lower() for title in table.header]
    name = _name(table.header)
    fixed = _fixed(table, titles, name)
    taken = {*fixed.values(), *name}
    free = [i for i in range(len(titles)) if i not in taken and not _OTHER.search(titles[i])]
    times = [i for i in free if _LATENCY.search(titles[i]) and not titles[i].startswith("speedup")]
    ratios = _ratio_columns(titles, [i for i in free if i not in times and _RATIO.search(titles[i])])
    keys = tuple(
        RatioColumn(index=i, key=r.key, part="value")
        for i in free
        for r in ratios
        if i not in times and (r.key == titles[i] or r.key.startswith(f"{titles[i]} / ")) and i != r.index
    )
    return Header(
        name=name,
        **fixed,
        ratios=ratios,
        latencies=tuple(_latency(titles[i], i) for i in times),
        keys=keys,
        titles=table.header,
    )


def mean_header(table: Table) -> Header | None:
    """Return the header of a geomean table; None where the table is another: it has rows, arms, or no ratio."""
    titles = [title.lower() for title in table.header]
    if _name(table.header) or any(re.match(r"arm\b", title) for title in titles):
        return None
    fixed = _fixed(table, titles, ())
    if fixed["op"] is None and fixed["row_class"] is None:
        return None
    free = [i for i in range(len(titles)) if i not in fixed.values() and not _OTHER.search(titles[i])]
    cells = {i: [row.cells[i] for row in table.rows if has_number(row.cells[i])] for i in free}
    holding = [
        i for i in free if _RATIO.search(titles[i]) or (cells[i] and all(ratio(c) or only_range(c) for c in cells[i]))
    ]
    ratios = _ratio_columns(titles, [i for i in holding if not _LATENCY.search(titles[i])])
    return (
        Header(name=(), **fixed, ratios=ratios, latencies=(), keys=(), titles=table.header)
        if any(cells[r.index] for r in ratios)
        else None
    )


def match(wanted: str, known: Collection[str]) -> str | None:
    """Return which of ``known`` is called ``wanted``: the same, else the only one with more words, or with fewer."""
    if wanted in known:
        return wanted
    words = _words(wanted)
    near = [key for key in known if words and (words <= _words(key) or _words(key) <= words)]
    return near[0] if len(near) == 1 else None


def nearest(wanted: str, known: Sequence[str], like: str) -> str | None:
    """Return ``match``; of several whose words hold ``wanted``, the one that shares most with ``like``."""
    if found := match(wanted, known):
        return found
    holding = [key for key in known if _words(wanted) and _words(wanted) <= _words(key)]
    shared = {key: len(_words(key) & _words(like)) for key in holding}
    best = [key for key in holding if shared[key] == max(shared.values())]
    return best[0] if len(best) == 1 else None


def _words(key: str) -> set[str]:
    return set(re.split(r"[\s_/(),]+", key)) - {""}


def _fixed(table: Table, titles: list[str], name: tuple[int, ...]) -> dict[str, int | None]:
    """Return the columns with a meaning of their own; ``rows`` counts where its cells are numbers, else is a class."""
    counts = [
        i
        for i, title in enumerate(titles)
        if title in _COUNT and i not in name and (title != "rows" or _numeric(table, i))
    ]
    classes = [i for i, title in enumerate(titles) if title in _CLASS and i not in name and i not in counts]
    per_row = bool(name)
    return {
        "gpu": next((i for i, t in enumerate(titles) if i not in name and _parts(t) & _GPU), None),
        "op": _first(titles, _OP),
        "row_class": classes[0] if classes else None,
        "count": None if per_row else next(iter(counts), None),
        "suite": _first(titles, {"suite"}),
        "regime": _first(titles, {"regime"}),
        "n": next((i for i, t in enumerate(titles) if t in ("n", "groups") and i not in name), None)
        if per_row
        else None,
        "remarks": _first(titles, {"remarks", "remark"}),
    }


def _numeric(table: Table, index: int) -> bool:
    cells = [row.cells[index] for row in table.rows]
    return bool(cells) and all(re.match(r"\d+(?:\s*(?:of|/)\s*\d+)?$", cell) for cell in cells if cell)


def _first(titles: list[str], wanted: set[str]) -> int | None:
    return next((i for i, title in enumerate(titles) if title in wanted), None)


def _name(header: Sequence[str]) -> tuple[int, ...]:
    """Return the columns whose cells together name a row; none where only such are there that never do alone."""
    titles = [title.lower() for title in header]
    if not any(_parts(title) & _NAME for title in titles):
        return ()
    return tuple(i for i, title in enumerate(titles) if _parts(title) & (_NAME | _NAME_TOO) or header[i] == "N")


def _parts(title: str) -> set[str]:
    return {part.strip() for part in title.split("/")}


def _ratio_columns(titles: list[str], indices: list[int]) -> tuple[RatioColumn, ...]:
    """Return the columns; those that share a baseline and say of which arm they are go by both."""
    found: list[RatioColumn] = []
    shared = Counter(_key(titles[i]) for i in indices if not _PART.match(titles[i]))
    for index in indices:
        title, part = titles[index], "value"
        if lead := _PART.match(title):
            title = title[lead.end() :]
            part = {"l": "lowest", "h": "highest", "r": "range", "[": "range"}.get(lead[1][0], lead[1])
            part = {"min": "lowest", "minimum": "lowest", "max": "highest", "maximum": "highest"}.get(part, part)
            part = "range" if re.search(r"[-–]", lead[1]) else part
        key = _whole(title) if shared[_key(title)] > 1 or _SLOWDOWN.search(title) else _key(title)
        key = key or (found[-1].key if found else titles[index])
        found.append(RatioColumn(index=index, key=key, part=_PARTS[part]))
    return tuple(found)


_PARTS: dict[str, Part] = {"value": "value", "lowest": "lowest", "highest": "highest", "range": "range"}


def _key(title: str) -> str:
    """Return the baseline that a header names: what follows ``vs``, without arrows, units and what it is a mean of."""
    key = _cut(title)
    return _LEADING.sub("", _VERSUS.sub("", key), count=1).strip() if key else ""


def _whole(title: str) -> str:
    """Return what a header says on both sides of ``vs``."""
    return _LEADING.sub("", _cut(title), count=1).strip()


def _cut(title: str) -> str:
    key = title
    while (cut := _TRAILING.sub("", key).strip(" ,")) != key:
        key = cut
    return key


def baseline_of(key: str) -> str:
    """Return the baseline in a ratio's key: before the stroke, or after ``vs``."""
    return _VERSUS.sub("", key).partition(" / ")[0]


def new_of(key: str) -> str | None:
    """Return the new arm in a ratio's key, without the word new; None where it names none."""
    found = _VERSUS.match(key)
    named = key[: found.end()] if found else key.partition(" / ")[2]
    words = re.sub(r"\b(?:vs|versus|over|against|new)\b\.?", "", named)
    return " ".join(words.split()) if named else None


def is_slowdown(key: str) -> bool:
    """Return whether a ratio grows where new is slower."""
    return _SLOWDOWN.search(key) is not None


def _latency(title: str, index: int) -> LatencyColumn:
    unit = _UNIT.search(title)
    arm = re.sub(r"\b(?:median|latency|time|gpu)\b", "", _UNIT.sub("", title[: unit.start()] if unit else title))
    words = arm.replace(",", " ").split()
    new = "new" in words
    words = [word for word in words if word != "new"]
    key = words.pop() if len(words) > 1 and len(words[-1]) == 1 else ""
    return LatencyColumn(index=index, arm=" ".join(words), key=key, unit=unit[1] if unit else "", new=new)
