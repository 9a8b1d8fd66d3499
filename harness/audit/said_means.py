"""``geomeans from 0.997 (dX owner) to 1.043 (fwd owner)``, ``dW owner 1.006 (0.991-1.025)``: against the table."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.audit.columns import match
from harness.audit.finding import Finding, judged, unchecked
from harness.audit.printed import NUMBER, Printed, printed
from harness.audit.published import Mean, MeanCell, Published
from harness.audit.scope import Claim, Said, claim

_OF = r"(?:\s*\((?P<{name}>[^()]*(?:\([^()]*\)[^()]*)*)\))?"
_FROM_TO = re.compile(
    rf"geomeans? from (?P<low>\d+\.\d+){_OF.format(name='low_of')}"
    rf" to (?P<high>\d+\.\d+)(?![\w.,]*\d){_OF.format(name='high_of')}"
)
_ONE = re.compile(rf"geomean (?P<low>\d+\.\d+)(?![\w.,]*\d){_OF.format(name='low_of')}(?P<high>)(?P<high_of>)")


def means_said(line: Said, page: Published) -> Iterator[Claim]:
    """Yield the geomeans that a line names as the least and the largest, as the only one, or each with its rows."""
    for form in (_FROM_TO, _ONE):
        for found in form.finditer(line.text):
            yield claim([found.span()], _ends(line, found, page))
    for found in _with_rows(page).finditer(line.text):
        yield claim([found.span()], _each(line, found, page))


def _with_rows(page: Published) -> re.Pattern[str]:
    """Return the form ``dW owner 1.006 (0.991-1.025), 22 of 22 rows``, of the classes that the table has."""
    labels = sorted({re.escape(_label(mean, page)) for mean in page.means}, key=len, reverse=True)
    return re.compile(
        rf"(?<![\w-])(?P<of>{'|'.join(labels) or '(?!)'}) (?P<value>{NUMBER})"
        rf" \((?P<low>{NUMBER})-(?P<high>{NUMBER})\)(?:, (?P<n>\d+) of (?P<m>\d+) rows?)?"
    )


def _each(line: Said, found: re.Match[str], page: Published) -> Iterator[Finding]:
    """Yield whether a class's mean, its lowest and highest row and its count are those of a line of the table."""
    named = line.named(found.start(), found.end(), page)
    cells = [(mean, cell) for mean, cell in _cells(line, found, page) if _label(mean, page) == found["of"]]
    doubted = line.doubted(found.start())
    if not named.column or not cells or doubted:
        what = "it is hedged or negated" if doubted else "no such geomean in a table"
        yield unchecked(check="geomean said", line=line.line.number, what=what, printed=found[0])
        return
    yield judged(
        any(_is(found, mean, cell) for mean, cell in cells),
        check="geomean said",
        line=line.line.number,
        what=f"{found['of']} vs {named.column}",
        printed=found[0],
        recomputed=" or ".join(_text(mean, cell) for mean, cell in cells) + " in the table",
    )


def _is(found: re.Match[str], mean: Mean, cell: MeanCell) -> bool:
    pairs = ((found["value"], cell.value), (found["low"], cell.low), (found["high"], cell.high))
    counts = cell.n if cell.n is not None else mean.count, mean.expected
    stated = (found["n"], found["m"])
    return all(value is None or _same(printed(text), value) for text, value in pairs) and all(
        text is None or count is None or int(text) == count for text, count in zip(stated, counts, strict=True)
    )


def _text(mean: Mean, cell: MeanCell) -> str:
    value, low, high = ("?" if number is None else number.text for number in (cell.value, cell.low, cell.high))
    return f"{value} ({low}-{high}), {cell.n if cell.n is not None else mean.count} of {mean.expected}"


def _cells(line: Said, found: re.Match[str], page: Published) -> list[tuple[Mean, MeanCell]]:
    """Return the table's means against the baseline, and of the GPU and regime, that a claim is about."""
    named = line.named(found.start(), found.end(), page)
    return [
        (mean, cell)
        for mean in page.means
        for cell in mean.cells
        if cell.value is not None
        and match(cell.key, page.columns) == named.column
        and (not named.gpu or mean.gpu in ("", named.gpu))
        and (not named.regime or mean.regime in ("", named.regime))
    ]


def _ends(line: Said, found: re.Match[str], page: Published) -> Iterator[Finding]:
    named = line.named(found.start(), found.end(), page)
    cells = [(mean, cell.value) for mean, cell in _cells(line, found, page) if cell.value is not None]
    doubted = line.doubted(found.start())
    if not named.column or not cells or doubted:
        what = "it is hedged or negated" if doubted else "no such geomean in a table"
        yield unchecked(check="geomean said", line=line.line.number, what=what, printed=found[0])
        return
    single = not found["high"]
    for text, of, pick in ((found["low"], found["low_of"], min), (found["high"], found["high_of"], max)):
        if not text:
            continue
        wanted = [c for c in cells if of and of.split(", busy")[0].strip() == _label(c[0], page)] if of else cells
        end = pick((value for _, value in (cells if not single else wanted or cells)), key=lambda value: value.value)
        there = any(_same(printed(text), value) for _, value in wanted)
        yield judged(
            there and _same(printed(text), end),
            check="geomean said",
            line=line.line.number,
            what=f"{of or pick.__name__} vs {named.column}",
            printed=text,
            recomputed=f"{end.text} in the table",
        )


def _label(mean: Mean, page: Published) -> str:
    several = len({m.suite for m in page.means}) > 1
    return " ".join(part for part in ((mean.suite if several else ""), mean.op, mean.row_class) if part).lower()


def _same(one: Printed, other: Printed) -> bool:
    return one.meets(other)
