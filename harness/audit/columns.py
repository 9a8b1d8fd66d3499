"""What a table's header means: which column is the row's name, its operation, a latency, a ratio and against what."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.audit.labels import EVERY, is_class
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
_BOTH = (
    r"(?:range|interval|(?:(?P<open>[\[(])\s*)?(?:min(?:imum)?|lowest|low)\s*(?:[-–—,;/…]|\.\.+|to|and)\s*"
    r"(?:max(?:imum)?|highest|high)(?(open)\s*[\])]))"
)
_END = rf"(?P<part>{_BOTH}|[(\[]?(?:range|interval|lowest|min(?:imum)?|highest|max(?:imum)?)[)\]]?)"
_LEADS = re.compile(rf"{_END}(?!\w)\.?\s*(?:(?:of|speedup)\b\s*)*(?P<rest>.*)")
_TRAILS = re.compile(rf"(?P<rest>.*?\S)[\s,:]+{_END}")
"""``[min, max] vs X``, ``min-max vs X``, ``vs X [min, max]``, ``vs X range``, ``lowest vs X``, ``vs X (min)``."""
_VERSUS = re.compile(r".*\b(?:vs|versus|over|against|relative to|compared (?:to|with))\b\.?\s+")
_DECIMAL = re.compile(r"\d\.\d|\d\s*%|\d\s*(?:of|/)\s*\d|\d\s*[x×](?!\w)")
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
    unread: tuple[int, ...] = ()
    """Columns of decimals that mean nothing here: nothing recomputes them."""

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
    held = [i for i in free if i not in times and (_RATIO.search(titles[i]) or _is_bare(titles[i]))]
    ratios = _ratio_columns(table, titles, held, times)
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
        unread=_unread(table, taken - {fixed["remarks"]}, {*times, *(column.index for column in (*ratios, *keys))}),
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
    times = [i for i in free if _LATENCY.search(titles[i])]
    ratios = _ratio_columns(table, titles, [i for i in holding if i not in times], times)
    if not any(cells[r.index] for r in ratios):
        return None
    unread = _unread(table, set(fixed.values()), {r.index for r in ratios})
    return Header(name=(), **fixed, ratios=ratios, latencies=(), keys=(), titles=table.header, unread=unread)


def has_result(cell: str) -> bool:
    """Return whether a cell holds what may be a result: a decimal number, a percentage, so many of so many."""
    return _DECIMAL.search(cell) is not None


def _unread(table: Table, taken: Collection[int | None], read: Collection[int]) -> tuple[int, ...]:
    return tuple(
        i
        for i in range(len(table.header))
        if i not in taken and i not in read and any(has_result(row.cells[i]) for row in table.rows)
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
    """Return the columns with a meaning of their own; ``rows`` counts where its cells are numbers, else is a class.

    Whatever its header, a column whose cells are all row classes is that of classes.
    """
    counts = [
        i
        for i, title in enumerate(titles)
        if title in _COUNT and i not in name and (title != "rows" or _numeric(table, i))
    ]
    classes = [i for i, title in enumerate(titles) if title in _CLASS and i not in name and i not in counts]
    classes = classes or [i for i in range(len(titles)) if i not in (*name, *counts) and _all_classes(table, i)]
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


def _all_classes(table: Table, index: int) -> bool:
    cells = [row.cells[index] for row in table.rows if row.cells[index]]
    return bool(cells) and all(map(is_class, cells)) and not all(cell.lower() in EVERY for cell in cells)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Title:
    """A ratio's header: its column, what its cells are, and what is left of it, empty where it names no baseline."""

    index: int
    part: Part
    rest: str


def _ratio_columns(
    table: Table, titles: Sequence[str], indices: Sequence[int], times: Collection[int]
) -> tuple[RatioColumn, ...]:
    """Return the columns; those that share a baseline and say of which arm they are go by both."""
    found = [_title(table, titles, index) for index in indices]
    values = [title for title in found if title.part == "value"]
    shared = Counter(_key(title.rest) for title in values)

    def key(title: _Title) -> str:
        several = shared[_key(title.rest)] > 1 or _SLOWDOWN.search(title.rest)
        return (_whole(title.rest) if several else _key(title.rest)) or titles[title.index]

    of = {title.index: key(title) for title in found if title.rest}
    of |= _owners([title for title in found if not title.rest], {title.index: key(title) for title in values}, times)
    return tuple(
        RatioColumn(index=title.index, key=of[title.index], part=title.part) for title in found if title.index in of
    )


def _title(table: Table, titles: Sequence[str], index: int) -> _Title:
    """Return a header's parts; where it says both ends, its cells say whether they hold the value too."""
    title = titles[index]
    cells = [row.cells[index] for row in table.rows if has_number(row.cells[index])]
    ranges = bool(cells) and all(only_range(cell) and not ratio(cell) for cell in cells)
    found = _LEADS.fullmatch(title) or _TRAILS.fullmatch(title)
    if found is None:
        return _Title(index=index, part="range" if ranges else "value", rest=title)
    part = _part(found["part"])
    whole = [read for cell in cells if (read := ratio(cell)) and (part == "range" or read.low)]
    if whole and not ranges:
        return _Title(index=index, part="value", rest=found["rest"] or title)
    return _Title(index=index, part=part, rest="" if _LEADING.fullmatch(f"{found['rest']} ") else found["rest"])


def _part(text: str) -> Part:
    if re.fullmatch(rf"{_BOTH}|[(\[]?(?:range|interval)[)\]]?", text):
        return "range"
    return "lowest" if text.strip("([").startswith(("lowest", "min")) else "highest"


def _is_bare(title: str) -> bool:
    """Return whether a header says only which end it is: the column belongs to a ratio beside it."""
    return re.fullmatch(_END, title) is not None


def _owners(bare: Sequence[_Title], values: Mapping[int, str], times: Collection[int]) -> dict[int, str]:
    """Return the baselines of columns that name none: each that of the ratio before it, else in the ratios' order."""
    near: dict[int, str] = {}
    for title in bare:
        before = title.index - 1
        if before in values:
            near[title.index] = values[before]
        elif before in near and all(other.part != title.part for other in bare if other.index == before):
            near[title.index] = near[before]
    elsewhere = [title for title in bare if title.index - 1 in times or title.index < min(values, default=0)]
    if len(near) == len(bare) or elsewhere:
        return near
    for part in ("lowest", "highest", "range"):
        of_part = [title for title in bare if title.part == part]
        if len(of_part) not in (0, len(values)):
            return near
    order = list(values.values())
    places = Counter[str]()
    of: dict[int, str] = {}
    for title in bare:
        of[title.index] = order[places[title.part]]
        places[title.part] += 1
    return of


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
