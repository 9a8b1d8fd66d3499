"""``36 of the 100 rows are below 1.0``: how many rows lie on one side, with how they are counted, and their range."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.audit.conventions import Conventions
from harness.audit.finding import Finding, judged, unchecked
from harness.audit.printed import NUMBER, Interval, Printed, printed
from harness.audit.said_lists import intros
from harness.audit.scope import Said, scopes
from harness.audit.tables import Published, Row

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_K = rf"(?P<k>\d+|all|every|each|both|none|no|{'|'.join(_WORDS)})"
_SIDE = r"(?P<side><|>|≤|≥|below|under|above|over|at or above|at least|at or below|at most|slower than|faster than)"
_T = r"(?P<t>\d+(?:\.\d+)?)(?:\s*[x×])?(?![\w.,]*\d|\s*%)"
_NOT_ABOUT = "".join(f"(?<!{word} )" for word in ("but", "than", "least", "most", "about", "over", "only the"))
_WHOLE = r"(?:wholly|entirely|completely)"
_OVER = r"(?:over|in|across|with) (?:their|its) (?:whole|entire|full|complete) (?:\[min, max\]|range|interval)"
_RANGE = rf"(?:\s*[(\[](?P<low>{NUMBER})[x×]?\s*(?:[-–—−,]|to)\s*(?P<high>{NUMBER})[x×]?[)\]])?"
_CHANCE = r"(?: \(chance (?:under )?[\d.]+\))?"


def _forms(page: Published) -> tuple[re.Pattern[str], ...]:
    ops = "|".join(re.escape(op.lower()) for op in sorted(page.ops, key=len, reverse=True)) or "(?!)"
    classes = {mean.row_class.lower() for mean in page.means if mean.row_class}
    of_class = "|".join(re.escape(name) for name in sorted(classes, key=len, reverse=True)) or "(?!)"
    which = rf"(?:\s+(?P<op>{ops}))?(?:\s+(?P<class>{of_class}))?"
    of = r"(?:\s*(?:of|/)\s*(?:the |all )?(?P<m>\d+))"
    verb = r"(?:\s+(?:that\s+)?(?:is|are|lie|lies|stay|stays|fall|falls|were))?"
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
            rf"(?:, wholly above in (?P<wholly>\d+).*?; below in (?P<other>\d+), wholly below in (?P<other_wholly>\d+)"
            rf"(?:, 1\.0 in (?P<equal>\d+))?)?"
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


def counts_said(line: Said, page: Published, rules: Conventions) -> Iterator[Finding]:
    """Yield the counts in a line, each with the row count it is out of and the range it gives."""
    claims: list[re.Match[str]] = []
    for form in _forms(page):
        for found in form.finditer(line.text):
            if not any(found.start() in range(*claim.span()) for claim in claims):
                claims.append(found)
    others = [range(*claim.span()) for claim in (*claims, *intros(line, page))]
    for found in claims:
        if line.plain(*found.span(), others):
            yield from _count(line, found, page, rules)
        else:
            what = "a count that is hedged, negated or qualified, or has more around it than a known form"
            yield unchecked(check="count of rows", line=line.line.number, what=what, printed=found[0].strip())
    yield from _measured(line, page)


def _count(line: Said, found: re.Match[str], page: Published, rules: Conventions) -> Iterator[Finding]:
    said = found.groupdict()
    named = line.named(found.start(), found.end(), page)
    if not named.column:
        yield unchecked(check="count of rows", line=line.line.number, what="it names no baseline", printed=found[0])
        return
    stated_m = said.get("m") or said.get("m2") or said.get("m3")
    candidates = [
        (
            [r for r in rows if _is_of(r, said) and r.counts(named.column)],
            sum(_is_of(r, said) for r in rows),
        )
        for rows in scopes(page, named, line.ops_before(found.start()))
    ]
    fitting = [c for c in candidates if stated_m is None or int(stated_m) in (len(c[0]), c[1])]
    if any(named.column in row.unread for row in page.rows):
        what = f"cells of the rows vs {named.column} cannot be read"
        yield unchecked(check="count of rows", line=line.line.number, what=what, printed=found[0])
        return
    if rules.selection and (stated_m is None or not fitting):
        what = f"{len(page.rows)} of {stated_m or '?'} rows are on the page, which says that they are a selection"
        yield unchecked(check="count of rows", line=line.line.number, what=what, printed=found[0])
        return
    what = f"rows vs {named.column}" if not said.get("op") else f"{said['op']} rows vs {named.column}"
    if stated_m is not None:
        yield judged(
            bool(fitting),
            check="count of rows",
            line=line.line.number,
            what=f"{what} in all",
            printed=stated_m,
            recomputed=" or ".join(dict.fromkeys(str(n) for rows, every in candidates for n in (len(rows), every))),
        )
    per_scope = [
        [_side(line, claim, rows, named.column, rules, what) for claim in _claims(said, len(rows))]
        + list(_range_of(line, said, rows, named.column, rules, what))
        for rows, _ in (fitting or candidates)
    ]
    clean = next((found for found in per_scope if all(f.grade == "agrees" for f in found)), per_scope[0])
    yield from clean


def _is_of(row: Row, said: dict[str, str | None]) -> bool:
    op, of_class = said.get("op"), said.get("class")
    return (op is None or row.op.lower() == op) and (of_class is None or row.row_class.lower() == of_class)


def _claims(said: dict[str, str | None], n: int) -> Iterator[_Claim]:
    side = said["side"] or ""
    below = side in ("<", "≤", "below", "under", "at or below", "at most", "slower than")
    threshold = printed(said["t"] or "1")
    wholly = bool(said.get("whole") or said.get("over"))
    inclusive = side.startswith(("at ", "≤", "≥"))

    def claim(stated: int, *, below: bool, wholly: bool) -> _Claim:
        return _Claim(stated=stated, below=below, inclusive=inclusive, wholly=wholly, threshold=threshold)

    yield claim(_number(said["k"] or "", n), below=below, wholly=wholly)
    if (whole := said.get("wholly")) is not None:
        yield claim(int(whole), below=below, wholly=True)
    if (other := said.get("other")) is not None:
        yield claim(int(other), below=not below, wholly=False)
    if (other := said.get("other_wholly")) is not None:
        yield claim(int(other), below=not below, wholly=True)


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


def _side(line: Said, claim: _Claim, rows: Sequence[Row], key: str, rules: Conventions, what: str) -> Finding:
    """Return whether so many rows are on the side: of the printed rows, or where the page says so of unrounded ones."""
    ends = [(row, end) for row in rows if (end := _end(claim, row, key)) is not None]
    if len(ends) < len(rows):
        return unchecked(
            check="count of rows", line=line.line.number, what=f"{what} {claim.words}: rows print no range"
        )
    as_printed = [row.number for row, end in ends if claim.as_printed(end)]
    low = sum(claim.certain(end) for _, end in ends)
    high = sum(claim.possible(end) for _, end in ends)
    near = [row.number for row, end in ends if claim.possible(end) and not claim.certain(end)]
    if rules.unrounded_counts:
        agrees = low <= claim.stated <= high
        recomputed = f"{low}" if low == high else f"{low} to {high} (rows whose rounding decides: {_listed(near)})"
    else:
        agrees = claim.stated == len(as_printed)
        recomputed = f"{len(as_printed)}"
        if not agrees and low <= claim.stated <= high:
            recomputed += (
                f" as printed; {claim.stated} if it counts unrounded ratios, which the page does not say"
                f" (rows whose rounding decides: {_listed(near)})"
            )
    return judged(
        agrees,
        check="count of rows",
        line=line.line.number,
        what=f"{what} {claim.words}",
        printed=str(claim.stated),
        recomputed=recomputed,
        rows=as_printed,
    )


def _range_of(
    line: Said, said: dict[str, str | None], rows: Sequence[Row], key: str, rules: Conventions, what: str
) -> Iterator[Finding]:
    """Yield whether ``(0.967-0.999)`` are the lowest and highest of the rows counted."""
    low, high = said.get("low"), said.get("high")
    if low is None or high is None:
        return
    claim = next(_claims(said, len(rows)))
    values = [row.ratios[key].value for row in rows]
    inside = [v for v in values if (claim.possible(v) if rules.unrounded_counts else claim.as_printed(v))]
    sure = [v for v in values if claim.certain(v)] if rules.unrounded_counts else inside
    for check, stated, pick in (("lowest", printed(low), min), ("highest", printed(high), max)):
        ends = [pick(group, key=lambda v: v.value) for group in (sure, inside) if group]
        fits = any(stated.meets(Interval(low=end.low, high=end.high)) for end in ends)
        yield judged(
            fits,
            check=check,
            line=line.line.number,
            what=f"{what} {claim.words}",
            printed=stated.text,
            recomputed=" or ".join(dict.fromkeys(end.text for end in ends)) or "no such row",
        )


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown} and {len(numbers) - 10} more" if len(numbers) > 10 else shown or "none"


_MEASURED = re.compile(r"^\W*measured: (\d+) rows? \(([^)]*)\)")


def _measured(line: Said, page: Published) -> Iterator[Finding]:
    """Yield whether ``Measured: 100 rows (32 fwd, 32 dX, 36 dW)`` counts the rows that are there, each once."""
    found = _MEASURED.match(line.text)
    if found is None:
        return
    cases = {(row.suite, row.op.lower(), row.name) for row in page.rows}
    claims = [("rows", int(found[1]), len(cases))]
    for n, op in re.findall(r"(\d+) ([^,]+)", found[2]):
        claims.append((f"{op} rows", int(n), sum(case[1] == op for case in cases)))
    for what, stated, present in claims:
        yield judged(
            stated == present,
            check="count of rows",
            line=line.line.number,
            what=f"measured {what}",
            printed=str(stated),
            recomputed=str(present),
        )
