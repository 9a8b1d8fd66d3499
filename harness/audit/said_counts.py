"""``36 of the 100 rows are below 1.0``: how many rows lie on one side, with how they are counted, and their range."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.audit.conventions import Conventions
from harness.audit.finding import Finding, Grade, judged, unchecked
from harness.audit.labels import class_of
from harness.audit.printed import NUMBER, Interval, Printed, printed
from harness.audit.published import Published, Row
from harness.audit.said_lists import intros
from harness.audit.scope import Claim, Said, claim, scopes

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_K = rf"(?P<k>\d+|all|every|each|both|none|no|{'|'.join(_WORDS)})"
_SIDE = r"(?P<side><|>|≤|≥|below|under|above|over|at or above|at least|at or below|at most|slower than|faster than)"
_T = r"(?P<t>\d+(?:\.\d+)?)(?:\s*[x×])?(?![\w.,]*\d|\s*%)"
_NOT_ABOUT = "".join(f"(?<!{word} )" for word in ("but", "than", "least", "most", "about", "over", "only the"))
_WHOLE = r"(?:wholly|entirely|completely)"
_OVER = r"(?:over|in|across|with) (?:their|its) (?:whole|entire|full|complete) (?:\[min, max\]|range|interval)"
_RANGE = rf"(?:\s*[(\[](?P<low>{NUMBER})[x×]?\s*(?:[-–—−,]|to)\s*(?P<high>{NUMBER})[x×]?[)\]])?"
_CHANCE = r"(?: \(chance (?:under )?[\d.]+\))?"

_WORST_FIRST = (Grade.CONTRADICTS, Grade.UNCHECKED)


def _forms(page: Published) -> tuple[re.Pattern[str], ...]:
    ops = "|".join(re.escape(op.lower()) for op in sorted(page.ops, key=len, reverse=True)) or "(?!)"
    classes = {mean.row_class.lower() for mean in page.means if mean.row_class}
    of_class = "|".join(re.escape(name) for name in sorted(classes, key=len, reverse=True)) or "(?!)"
    which = rf"(?:\s+(?P<op>{ops}))?(?:\s+(?P<class>{of_class}))?"
    of = r"(?:\s*(?:of|/)\s*(?:the |all )?(?P<m>\d+))"
    verb = (
        r"(?:\s+(?:that\s+)?(?:is|are|were|(?:lie|stay|fall|sit|remain|land|end|come)s?(?: up| out)?"
        r"|(?:has|have|show|shows|with) an? (?:ratio|speedup)(?: of| that is)?))?"
    )
    return (
        re.compile(
            rf"(?<![\w.]){_NOT_ABOUT}{_K}(?:{of}|\s+of(?: the)?|\s+(?:the\s+)?(?P<m2>\d+)|\s+the)?{which}"
            rf"\s+rows?(?:\s*\(of (?P<m3>\d+)\))?"
            rf"{verb}(?P<whole>\s+{_WHOLE})?\s+{_SIDE}\s+{_T}(?P<over>\s+{_OVER})?{_RANGE}"
            rf"(?:{_CHANCE}, (?P<wholly>\d+) wholly)?"
        ),
        re.compile(
            rf"\bof (?:the )?(?P<m>\d+){which} rows,? {_K}"
            rf"{verb}(?P<whole>\s+{_WHOLE})?\s+{_SIDE}\s+{_T}(?P<over>\s+{_OVER})?{_RANGE}"
        ),
        re.compile(
            rf"(?P<whole>{_WHOLE}\s+)?{_SIDE} {_T}(?P<over>\s+{_OVER})?(?:\s+in|:|\s*\()\s*{_K}{of}{which}(?: rows?)?"
            rf"(?:, wholly above in (?P<wholly>\d+)(?P<gap>[^;]*); below in (?P<other>\d+),"
            rf" wholly below in (?P<other_wholly>\d+)(?:, 1\.0 in (?P<equal>\d+))?)?"
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """So many rows are (wholly) on one side of a threshold."""

    stated: int
    below: bool
    inclusive: bool
    wholly: bool
    threshold: Printed

    @property
    def words(self) -> str:
        side = ("at or " if self.inclusive else "") + ("below" if self.below else "above")
        return f"{'wholly ' if self.wholly else ''}{side} {self.threshold.text}"

    def certain(self, value: Printed) -> bool:
        """Return whether every unrounded value lies on the side, its very end taken as the threshold's own."""
        t = self.threshold.value
        return value.high <= t if self.below else value.low >= t

    def possible(self, value: Printed) -> bool:
        """Return whether some unrounded value lies on the side."""
        t = self.threshold.value
        if self.inclusive:
            return value.low <= t if self.below else value.high >= t
        return value.low < t if self.below else value.high > t

    def as_printed(self, value: Printed) -> bool:
        """Return whether the printed value lies on the side."""
        t = self.threshold.value
        if value.value == t:
            return self.inclusive
        return (value.value < t) == self.below


def counts_said(line: Said, page: Published, rules: Conventions) -> Iterator[Claim]:
    """Yield the counts in a line, each with the row count it is out of and the range it gives."""
    for found, is_plain in _found(line, page):
        if is_plain:
            findings = list(_count(line, found, page, rules))
        else:
            what = "a count that is hedged, negated or qualified, or has more around it than a known form"
            findings = [unchecked(check="count of rows", line=line.line.number, what=what, printed=found[0].strip())]
        gap = found.span("gap") if "gap" in found.groupdict() and found["gap"] else (found.end(), found.end())
        yield claim([(found.start(), gap[0]), (gap[1], found.end())], findings)
    yield from _measured(line, page)


def readings(line: Said, page: Published, rules: Conventions) -> tuple[int, int]:
    """Return how many counts of the line speak for printed rows, and how many for unrounded ratios.

    The first are the printed rows' although rows of 1.000 could have made them others; the second are what unrounded
    ratios can give, and printed ones do not.
    """
    shown = needed = 0
    for found, is_plain in _found(line, page):
        column = line.named(found.start(), found.end(), page).column
        if not is_plain or not column or rules.selection:
            continue
        counts = [sides for rows in _fitting(line, found, page, column) if (sides := _sides(found, rows, column))]
        printed = [sides for sides in counts if all(side.stated == len(side.as_printed) for side in sides)]
        if printed:
            shown += any(side.near for sides in printed for side in sides)
        else:
            needed += any(all(side.low <= side.stated <= side.high for side in sides) for sides in counts)
    return shown, needed


def _found(line: Said, page: Published) -> Iterator[tuple[re.Match[str], bool]]:
    """Yield the counts, and whether each stands alone in its clause."""
    claims: list[re.Match[str]] = []
    for form in _forms(page):
        for found in form.finditer(line.text):
            if not any(found.start() in range(*claim.span()) for claim in claims):
                claims.append(found)
    others = [range(*found.span()) for found in (*claims, *intros(line, page))]
    for found in claims:
        yield found, line.plain(*found.span(), others)


def _stated(found: re.Match[str]) -> str | None:
    """Return the number of rows that a count is out of."""
    said = found.groupdict()
    return said.get("m") or said.get("m2") or said.get("m3")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """Rows that a count may be of: those with a ratio, and how many there are in all."""

    rows: tuple[Row, ...]
    every: int


def _scopes(line: Said, found: re.Match[str], page: Published, column: str) -> list[_Scope]:
    said = found.groupdict()
    named = line.named(found.start(), found.end(), page)
    return [
        _Scope(
            rows=tuple(r for r in rows if _is_of(r, said) and r.counts(column)),
            every=sum(_is_of(r, said) for r in rows),
        )
        for rows in scopes(page, named, line.ops_before(found.start()))
    ]


def _fitting(line: Said, found: re.Match[str], page: Published, column: str) -> list[tuple[Row, ...]]:
    """Return the rows of the scopes that have as many as the count is out of."""
    stated = _stated(found)
    candidates = _scopes(line, found, page, column)
    return [c.rows for c in candidates if stated is None or int(stated) in (len(c.rows), c.every)]


def _count(line: Said, found: re.Match[str], page: Published, rules: Conventions) -> Iterator[Finding]:
    said = found.groupdict()
    column = line.named(found.start(), found.end(), page).column
    if not column:
        yield unchecked(check="count of rows", line=line.line.number, what="it names no baseline", printed=found[0])
        return
    stated_m = _stated(found)
    candidates = _scopes(line, found, page, column)
    fitting = _fitting(line, found, page, column)
    if any(column in row.unread for row in page.rows):
        what = f"cells of the rows vs {column} cannot be read"
        yield unchecked(check="count of rows", line=line.line.number, what=what, printed=found[0])
        return
    if rules.selection and (stated_m is None or not fitting):
        what = f"{len(page.rows)} of {stated_m or '?'} rows are on the page, which says that they are a selection"
        yield unchecked(check="count of rows", line=line.line.number, what=what, printed=found[0])
        return
    what = f"rows vs {column}" if not said.get("op") else f"{said['op']} rows vs {column}"
    if stated_m is not None:
        counts = dict.fromkeys(str(n) for scope in candidates for n in (len(scope.rows), scope.every))
        yield judged(
            bool(fitting),
            check="count of rows",
            line=line.line.number,
            what=f"{what} in all",
            printed=stated_m,
            recomputed=" or ".join(counts),
        )
    per_scope = [
        list(_of_scope(line, found, rows, column, rules, what))
        for rows in fitting or [scope.rows for scope in candidates]
    ]
    yield from min(per_scope, key=lambda findings: [sum(f.grade is g for f in findings) for g in _WORST_FIRST])


def _of_scope(
    line: Said, found: re.Match[str], rows: Sequence[Row], column: str, rules: Conventions, what: str
) -> Iterator[Finding]:
    sides = _sides(found, rows, column)
    if sides is None:
        words = next(_claims(found.groupdict(), len(rows))).words
        yield unchecked(check="count of rows", line=line.line.number, what=f"{what} {words}: rows print no range")
        return
    findings = [_judged(line, side, rules, what) for side in sides]
    yield from findings
    unrounded = rules.unrounded_counts or any(finding.grade is Grade.UNCHECKED for finding in findings)
    yield from _range_of(line, found.groupdict(), rows, column, what, unrounded=unrounded)


def _is_of(row: Row, said: dict[str, str | None]) -> bool:
    op, of_class = said.get("op"), said.get("class")
    return (op is None or row.op.lower() == op) and (of_class is None or class_of(row.row_class) == class_of(of_class))


def _claims(said: dict[str, str | None], n: int) -> Iterator[_Claim]:
    side = said["side"] or ""
    below = side in ("<", "≤", "below", "under", "at or below", "at most", "slower than")
    threshold = printed(said["t"] or "1")
    wholly = bool(said.get("whole") or said.get("over"))
    inclusive = side.startswith(("at ", "≤", "≥"))

    def counted(stated: int, *, below: bool, wholly: bool) -> _Claim:
        return _Claim(stated=stated, below=below, inclusive=inclusive, wholly=wholly, threshold=threshold)

    yield counted(_number(said["k"] or "", n), below=below, wholly=wholly)
    if (whole := said.get("wholly")) is not None:
        yield counted(int(whole), below=below, wholly=True)
    if (other := said.get("other")) is not None:
        yield counted(int(other), below=not below, wholly=False)
    if (other := said.get("other_wholly")) is not None:
        yield counted(int(other), below=not below, wholly=True)


def _number(word: str, n: int) -> int:
    if word in ("all", "every", "each", "both"):
        return n
    if word in ("none", "no"):
        return 0
    return _WORDS.index(word) if word in _WORDS else int(word)


def _end(claim: _Claim, row: Row, key: str) -> Printed | None:
    ratio = row.ratios[key]
    if not claim.wholly:
        return ratio.value
    return ratio.high if claim.below else ratio.low


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """What a count is by the rows: the printed ones, and the least and the most that unrounded ratios can give.

    ``near`` are the rows whose rounding decides.
    """

    words: str
    stated: int
    as_printed: tuple[int, ...]
    low: int
    high: int
    near: tuple[int, ...]


def _sides(found: re.Match[str], rows: Sequence[Row], key: str) -> list[_Side] | None:
    """Return what each number of a claim is by the rows; None where they print no range and it is of ranges."""
    sides = []
    for stated in _claims(found.groupdict(), len(rows)):
        ends = [(row, end) for row in rows if (end := _end(stated, row, key)) is not None]
        if len(ends) < len(rows):
            return None
        sides.append(
            _Side(
                words=stated.words,
                stated=stated.stated,
                as_printed=tuple(row.number for row, end in ends if stated.as_printed(end)),
                low=sum(stated.certain(end) for _, end in ends),
                high=sum(stated.possible(end) for _, end in ends),
                near=tuple(row.number for row, end in ends if stated.possible(end) and not stated.certain(end)),
            )
        )
    return sides


def _judged(line: Said, side: _Side, rules: Conventions, what: str) -> Finding:
    """Return whether so many rows are on the side: of the printed rows, or where the page says so of unrounded ones."""
    can_be = side.low <= side.stated <= side.high
    decides = f"rows whose rounding decides: {_listed(side.near)}"
    if rules.unrounded_counts:
        agrees = can_be
        recomputed = f"{side.low}" if side.low == side.high else f"{side.low} to {side.high} ({decides})"
    else:
        agrees = side.stated == len(side.as_printed)
        recomputed = f"{len(side.as_printed)}"
        if not agrees and can_be:
            recomputed += (
                f" as printed; {side.stated} if it counts unrounded ratios, which the page does not say ({decides})"
            )
        if not agrees and can_be and not rules.printed_counts:
            what = f"{what} {side.words}: {recomputed}"
            return unchecked(check="count of rows", line=line.line.number, what=what, printed=str(side.stated))
    return judged(
        agrees,
        check="count of rows",
        line=line.line.number,
        what=f"{what} {side.words}",
        printed=str(side.stated),
        recomputed=recomputed,
        rows=side.as_printed,
    )


def _range_of(
    line: Said, said: dict[str, str | None], rows: Sequence[Row], key: str, what: str, *, unrounded: bool
) -> Iterator[Finding]:
    """Yield whether ``(0.967-0.999)`` are the lowest and highest of the rows counted."""
    low, high = said.get("low"), said.get("high")
    if low is None or high is None:
        return
    counted = next(_claims(said, len(rows)))
    values = [row.ratios[key].value for row in rows]
    inside = [v for v in values if (counted.possible(v) if unrounded else counted.as_printed(v))]
    sure = [v for v in values if counted.certain(v)] if unrounded else inside
    for check, stated, pick in (("lowest", printed(low), min), ("highest", printed(high), max)):
        ends = [pick(group, key=lambda v: v.value) for group in (sure, inside) if group]
        fits = any(stated.meets(Interval(low=end.low, high=end.high)) for end in ends)
        yield judged(
            fits,
            check=check,
            line=line.line.number,
            what=f"{what} {counted.words}",
            printed=stated.text,
            recomputed=" or ".join(dict.fromkeys(end.text for end in ends)) or "no such row",
        )


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown} and {len(numbers) - 10} more" if len(numbers) > 10 else shown or "none"


_MEASURED = re.compile(r"^\W*measured: (\d+) rows? \(([^)]*)\)")


def _measured(line: Said, page: Published) -> Iterator[Claim]:
    """Yield whether ``Measured: 100 rows (32 fwd, 32 dX, 36 dW)`` counts the rows that are there, each once."""
    found = _MEASURED.match(line.text)
    if found is None:
        return
    cases = {(row.suite, row.op.lower(), row.name) for row in page.rows}
    claims = [("rows", int(found[1]), len(cases))]
    for n, op in re.findall(r"(\d+) ([^,]+)", found[2]):
        claims.append((f"{op} rows", int(n), sum(case[1] == op for case in cases)))
    totals = sum(bool(mean.among) for mean in page.means)
    if any(present < stated <= present + totals for _, stated, present in claims):
        what = "some of its rows may be called as a mean of rows is"
        yield claim([found.span()], [unchecked(check="count of rows", line=line.line.number, what=what)])
        return
    findings = [
        judged(
            stated == present,
            check="count of rows",
            line=line.line.number,
            what=f"measured {what}",
            printed=str(stated),
            recomputed=str(present),
        )
        for what, stated, present in claims
    ]
    yield claim([found.span()], findings)
