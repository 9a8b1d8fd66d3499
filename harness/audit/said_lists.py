"""``the lowest are A 0.976 and B 0.986``: whether these rows have these ratios, in this order, and none is further."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from harness.audit.conventions import Conventions
from harness.audit.finding import Finding, judged, unchecked
from harness.audit.labels import short
from harness.audit.printed import NUMBER, Printed, printed
from harness.audit.published import Published, Row
from harness.audit.scope import NAME, Claim, Named, Said, claim, scopes

_LOW = ("lowest", "smallest", "worst", "slowest", "least", "below", "under")
_LOSSES = r"losses|loss|regressions?|slowdowns?|drops?"
_VERSUS = r"(?:vs\.?|versus|against|over|on|in|for|of|relative to|compared (?:to|with))"
_INTRO = (
    r"(?P<kind>lowest|highest|largest|smallest|biggest|greatest|best|worst|slowest|fastest|least)(?:\s+(?P<op>{ops}))?"
    rf"(?:\s+(?P<what>gains?|rows?|ratios?|speedups?|one|ones|improvements?|{_LOSSES}))?"
    rf"(?:[\s,(]+(?:{_VERSUS}\s*)?{NAME}+[\s,)]*)*(?:\s*(?:is|are|:|at)\s*:?\s*)"
)
_AFTER_COUNT = r"rows? (?:is|are) (?P<side>below|above) 1\.0 \(chance [^)]*\), \d+ wholly \(chance [^)]*\): "
_NUM = r"\d+\.\d+"
_ENDS = rf"(?:\s*[\[(](?P<low>{NUMBER})\s*(?:,|[-–—])\s*(?P<high>{NUMBER})[\])])?"
_WITH = rf"[\s:=(]*(?:(?:at|with)\s+)?(?P<value>{_NUM})[x×]?\)?{_ENDS}"
_ALONE = r"(?![\w.,]*\d|\s*(?:%|percent|[nuµμm]?s\b|[mg]hz\b|w\b))"
"""Behind a ratio stands neither more of a number nor a unit."""
_FREE = re.compile(rf"(?P<name>[^;]*?\S){_WITH}{_ALONE}")
_BARE = re.compile(rf"(?P<value>{_NUM})[x×]?{_ALONE}(?:\s*\((?P<name>[^()]*[a-z][^()]*)\))?")
_NEXT = re.compile(r"\s*(?:,\s*and\s+|,\s*|;\s+|\s+and\s+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One entry: the row's name (empty for the ratio alone), the ratio, its range."""

    name: str
    value: Printed
    low: Printed | None
    high: Printed | None


def intros(line: Said, page: Published) -> list[re.Match[str]]:
    """Return where a line begins a list: ``the lowest are``."""
    ops = "|".join(re.escape(op.lower()) for op in sorted(page.ops, key=len, reverse=True)) or "(?!)"
    return list(re.finditer(rf"(?<![\w-]){_INTRO.replace('{ops}', ops)}|{_AFTER_COUNT}", line.masked))


def lists_said(line: Said, page: Published, rules: Conventions) -> Iterator[Claim]:
    """Yield the lists of lowest and highest rows in a line."""
    found_intros = intros(line, page)
    if not found_intros:
        return
    names = _names(page)
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or "(?!)"
    entry = re.compile(rf"(?P<name>{known}){_WITH}{_ALONE}")
    for found in found_intros:
        items, end = _items(line.text, found.end(), entry, names)
        column = _about(line, found, page).column
        why = "it is hedged or negated" if line.doubted(found.start()) else ""
        why = why or ("the page's rows are a selection" if rules.selection else "")
        why = why or ("cells of its rows cannot be read" if any(column in row.unread for row in page.rows) else "")
        if items and why:
            intro = line.text[found.start() : found.end()].strip()
            yield claim(
                [(found.start(), end)], [unchecked(check="list", line=line.line.number, what=why, printed=intro)]
            )
        elif items:
            yield claim([(found.start(), end)], _list(line, found, items, page, names))


def _about(line: Said, found: re.Match[str], page: Published) -> Named:
    """Return what a list is about: a GPU in one of its items is that row's alone."""
    named = line.named(found.start(), found.end(), page)
    gpu = line.named(found.start(), found.end(), page, is_list=True)
    return replace(named, gpu=gpu.gpu, is_carried=gpu.is_carried)


def _names(page: Published) -> dict[str, list[Row]]:
    """Return what sentences may call a row: operation and name in either order, or the name alone."""
    found: dict[str, list[Row]] = {}
    for row in page.rows:
        name, op = row.name.lower(), row.op.lower()
        gpu = row.place.gpu.lower()
        for called in {*(f"{g} {op} {name}".strip() for g in ("", gpu, short(gpu))), f"{name} {op}".strip(), name} - {
            ""
        }:
            found.setdefault(called, []).append(row)
    return found


def _items(text: str, at: int, entry: re.Pattern[str], names: dict[str, list[Row]]) -> tuple[list[_Item], int]:
    """Return the entries from ``at`` on and their end, up to what is none: a name that is built as no row's name is."""
    end = at
    shapes = {_shape(name) for name in names}
    items: list[_Item] = []
    while True:
        found = entry.match(text, at)
        if found is None and (free := _FREE.match(text, at)) and _shape(free["name"]) in shapes:
            found = free
        if found is None and (bare := _BARE.match(text, at)) and (not bare["name"] or _shape(bare["name"]) in shapes):
            items.append(_Item(name=(bare["name"] or "").strip(), value=printed(bare["value"]), low=None, high=None))
            found = bare
        elif found is not None:
            low, high = found["low"], found["high"]
            items.append(
                _Item(
                    name=found["name"].strip(),
                    value=printed(found["value"]),
                    low=printed(low) if low else None,
                    high=printed(high) if high else None,
                )
            )
        end = end if found is None else found.end()
        if found is None or (gap := _NEXT.match(text, end)) is None:
            return items, end
        at = gap.end()


def _shape(name: str) -> str:
    return re.sub(r"\d+", "0", name.strip())


def _list(
    line: Said, found: re.Match[str], items: Sequence[_Item], page: Published, names: dict[str, list[Row]]
) -> Iterator[Finding]:
    named = _about(line, found, page)
    kind = "lowest" if found["what"] and re.fullmatch(_LOSSES, found["what"]) else found["kind"] or found["side"]
    intro = line.text[found.start() : found.end()].strip()
    if not named.column:
        yield unchecked(check="list", line=line.line.number, what="it names no baseline", printed=intro)
        return
    per_scope = []
    for rows in scopes(page, named, line.ops_before(found.start())):
        inside = [r for r in rows if r.counts(named.column) and (not found["op"] or r.op.lower() == found["op"])]
        per_scope.append(list(_of_scope(line, kind, items, inside, named.column, names)))
    yield from next((fs for fs in per_scope if all(f.grade == "agrees" for f in fs)), per_scope[0])


def _of_scope(
    line: Said, kind: str, items: Sequence[_Item], rows: Sequence[Row], key: str, names: dict[str, list[Row]]
) -> Iterator[Finding]:
    lowest = kind in _LOW
    numbers = {row.number for row in rows}
    listed: list[int] = []
    for item in items:
        if not item.name:
            continue
        called = [row for row in names.get(item.name, []) if row.number in numbers]
        fitting = [row for row in called if _is(item, row, key) and row.number not in listed]
        listed += [row.number for row in fitting[:1]]
        yield judged(
            bool(fitting),
            check="row in a list",
            line=line.line.number,
            what=f"{item.name} vs {key}",
            printed=item.value.text
            if item.low is None or item.high is None
            else f"{item.value.text} [{item.low.text}, {item.high.text}]",
            recomputed=", ".join(str(row.ratios[key]) for row in called[:3]) or "no row is called so",
            rows=[row.number for row in called],
        )
    ordered = all(not _further(b.value, a.value, lowest=lowest) for a, b in pairwise(items))
    side = "lowest" if lowest else "highest"
    yield judged(
        ordered,
        check="order of a list",
        line=line.line.number,
        what=f"{side} first, vs {key}",
        printed=", ".join(item.value.text for item in items),
        recomputed=", ".join(i.value.text for i in sorted(items, key=lambda i: i.value.value, reverse=not lowest)),
    )
    last = items[-1].value
    beyond = [row for row in rows if row.number not in listed and _further(row.ratios[key].value, last, lowest=lowest)]
    if not items[-1].name and len(items) == 1:
        ends = sorted((row.ratios[key].value for row in rows), key=lambda v: v.value, reverse=not lowest)
        yield judged(
            bool(ends) and last.meets(ends[0]),
            check=side,
            line=line.line.number,
            what=f"rows vs {key}",
            printed=last.text,
            recomputed=ends[0].text if ends else "no row with a ratio",
        )
        return
    yield judged(
        not beyond,
        check="list is complete",
        line=line.line.number,
        what=f"no other row vs {key} is {'lower' if lowest else 'higher'} than the last of the list",
        printed=last.text,
        recomputed=", ".join(f"{row.full_name} {row.ratios[key].value.text}" for row in beyond[:5]) or "none",
        rows=[row.number for row in beyond],
    )


def _is(item: _Item, row: Row, key: str) -> bool:
    ratio = row.ratios[key]
    pairs = ((item.value, ratio.value), (item.low, ratio.low), (item.high, ratio.high))
    return all(one.meets(other) for one, other in pairs if one is not None and other is not None)


def _further(one: Printed, other: Printed, *, lowest: bool) -> bool:
    """Return whether ``one`` is certainly lower (higher) than ``other``."""
    return one.high <= other.low if lowest else one.low >= other.high
