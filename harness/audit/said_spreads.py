"""``Spread over the 100 rows: median 3.85 %, p90 6.93 %``: (max - min) / median of what each row prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from harness.audit.conventions import FEWEST_GROUPS, SPREAD_GROUPS, Conventions
from harness.audit.finding import Finding, Grade, judged, unchecked
from harness.audit.printed import Interval, Printed, Ratio, printed
from harness.audit.published import Published, Row
from harness.audit.scope import Claim, Said, claim, scopes
from harness.stats.median import median
from harness.stats.percentile import percentile

_PAIR = re.compile(
    r"(?<!\w)median(?: of)?\s+(?P<median>\d+(?:\.\d+)?)\s*%"
    r"(?:,?\s*(?:and\s+)?(?:the\s+)?(?:p(?P<p>\d+)|(?P<nth>\d+)(?:st|nd|rd|th)[- ]percentile)(?: of|:)?"
    r"\s+(?P<tail>\d+(?:\.\d+)?)\s*%)?"
    r"(?: over (?P<n>\d+) rows?)?"
)
_ALONE = re.compile(r"median spread (?P<median>\d+(?:\.\d+)?)\s*%(?P<p>)(?P<nth>)(?P<tail>)(?P<n>)")
_OVER = re.compile(r"\bspread (?:over|of) (?:the |all |all the )?(?P<n>\d+) rows")


def spreads_said(line: Said, page: Published, rules: Conventions) -> Iterator[Claim]:
    """Yield the spreads in a line that speaks of one."""
    if "spread" not in line.text:
        return
    for found in () if rules.selection else _OVER.finditer(line.text):
        named = line.named(found.start(), found.end(), page)
        sizes = {len(rows) for rows in scopes(page, named)}
        sizes |= {sum(row.counts(named.column) for row in rows) for rows in scopes(page, named) if named.column}
        finding = judged(
            int(found["n"]) in sizes,
            check="count of rows",
            line=line.line.number,
            what="rows of the spread",
            printed=found["n"],
            recomputed=" or ".join(map(str, sorted(sizes))),
        )
        yield claim([found.span()], [finding])
    for form in (_PAIR, _ALONE):
        for found in form.finditer(line.text):
            yield claim([found.span()], _spread(line, found, page, rules))


def _spread(line: Said, found: re.Match[str], page: Published, rules: Conventions) -> Iterator[Finding]:
    named = line.named(found.start(), found.end(), page)
    number = line.line.number
    why = "" if named.column else "it names no baseline"
    why = why or ("it is hedged or negated" if line.doubted(found.start()) else "")
    why = why or ("the page's rows are a selection" if rules.selection else "")
    why = why or ("no percentile is above 99" if _p(found) > 99 else "")
    why = why or ("cells of its rows cannot be read" if any(named.column in r.unread for r in page.rows) else "")
    if why:
        yield unchecked(check="spread", line=number, what=why, printed=found[0])
        return
    answers = []
    for rows in scopes(page, named):
        entering = [row for row in rows if row.counts(named.column)]
        reason = _cannot(entering, named.column, rules)
        if reason:
            answers.append(
                [unchecked(check="spread", line=number, what=f"vs {named.column}: {reason}", printed=found[0])]
            )
            continue
        ratios = [row.ratios[named.column] for row in entering if _enters(row, rules)]
        answers.append(list(_judge(number, found, ratios, named.column)))
    yield from next((a for a in answers if all(f.grade != "contradicts" for f in a)), answers[0])


def _cannot(rows: Sequence[Row], key: str, rules: Conventions) -> str:
    """Return why the rows do not give the spread; empty where they do."""
    if not rules.first_six:
        return "" if all(row.ratios[key].low and row.ratios[key].high for row in rows) else "rows print no range"
    if rules.pooled:
        return "it is of each machine's first six ratios, the rows' ranges are over all"
    groups = [row.groups or rules.groups for row in rows]
    if None in groups:
        return "it is of a row's first six ratios, and the page does not say how many groups a row has"
    if any(n is not None and n > SPREAD_GROUPS for n in groups):
        return "it is of a row's first six ratios, and rows have more"
    return ""


def _enters(row: Row, rules: Conventions) -> bool:
    return not rules.first_six or (row.groups or rules.groups or 0) >= FEWEST_GROUPS


def _judge(number: int, found: re.Match[str], ratios: Sequence[Ratio], key: str) -> Iterator[Finding]:
    if found["n"]:
        yield judged(
            int(found["n"]) == len(ratios),
            check="count of rows",
            line=number,
            what=f"rows of the spread vs {key}",
            printed=found["n"],
            recomputed=str(len(ratios)),
        )
    spreads = [_interval(ratio) for ratio in ratios]
    lows, highs = [float(s.low) for s in spreads], [float(s.high) for s in spreads]
    yield _one("spread, median", number, found["median"], (median(lows), median(highs)) if spreads else None, key)
    if found["tail"]:
        p = _p(found)
        ends = (percentile(lows, p), percentile(highs, p)) if spreads else None
        finding = _one(f"spread, p{p}", number, found["tail"], ends, key, f", sorted[floor({p / 100:g} n)]")
        if found["nth"] and finding.grade is Grade.CONTRADICTS and _between(found["tail"], lows, highs, p):
            what = f"{finding.what}: {finding.recomputed}; another method of percentiles gives it"
            finding = unchecked(check=finding.check, line=number, what=what, printed=finding.printed)
        yield finding


def _between(text: str, lows: Sequence[float], highs: Sequence[float], p: int) -> bool:
    """Return whether a percentile lies between the neighbours of ours: methods that interpolate give such a one."""
    at = p * len(lows) // 100
    low, high = sorted(lows)[max(at - 1, 0) :][:1], sorted(highs)[: at + 2][-1:]
    stated = printed(text)
    return bool(low) and float(stated.high) >= 100 * low[0] and float(stated.low) <= 100 * high[0]


def _p(found: re.Match[str]) -> int:
    return int(found["p"] or found["nth"] or 0)


def _interval(ratio: Ratio) -> Interval:
    """Return where (max - min) / median of the unrounded values lies."""
    low, high = ratio.low or ratio.value, ratio.high or ratio.value
    middle: Printed = ratio.value
    return Interval(low=max(high.low - low.high, Fraction(0)) / middle.high, high=(high.high - low.low) / middle.low)


def _one(check: str, number: int, text: str, ends: tuple[float, float] | None, key: str, method: str = "") -> Finding:
    stated = printed(text)
    agrees = (
        ends is not None and float(stated.low) <= 100 * ends[1] + 1e-6 and float(stated.high) >= 100 * ends[0] - 1e-6
    )
    return judged(
        agrees,
        check=check,
        line=number,
        what=f"rows vs {key}{method}",
        printed=f"{text} %",
        recomputed="no row with a spread" if ends is None else f"{100 * ends[0]:.2f} to {100 * ends[1]:.2f} %",
    )
