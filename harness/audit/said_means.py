"""``geomeans from 0.997 (dX owner) to 1.043 (fwd owner)``: against the geomean table."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.audit.columns import match
from harness.audit.finding import Finding, judged, unchecked
from harness.audit.printed import Printed, printed
from harness.audit.scope import Said
from harness.audit.tables import Mean, Published

_OF = r"(?:\s*\((?P<{name}>[^()]*(?:\([^()]*\)[^()]*)*)\))?"
_FROM_TO = re.compile(
    rf"geomeans? from (?P<low>\d+\.\d+){_OF.format(name='low_of')}"
    rf" to (?P<high>\d+\.\d+)(?![\w.,]*\d){_OF.format(name='high_of')}"
)
_ONE = re.compile(rf"geomean (?P<low>\d+\.\d+)(?![\w.,]*\d){_OF.format(name='low_of')}(?P<high>)(?P<high_of>)")


def means_said(line: Said, page: Published) -> Iterator[Finding]:
    """Yield the geomeans that a line names as the least and the largest, or as the only one."""
    for form in (_FROM_TO, _ONE):
        for found in form.finditer(line.text):
            yield from _ends(line, found, page)


def _ends(line: Said, found: re.Match[str], page: Published) -> Iterator[Finding]:
    named = line.named(found.start(), found.end(), page)
    cells = [
        (mean, cell.value)
        for mean in page.means
        for cell in mean.cells
        if cell.value is not None
        and match(cell.key, page.columns) == named.column
        and (not named.gpu or mean.gpu in ("", named.gpu))
        and (not named.regime or mean.regime in ("", named.regime))
    ]
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
