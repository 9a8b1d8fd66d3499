"""The geomean table against the rows: geomeans, lowest, highest, counts; rows without a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.audit.columns import match
from harness.audit.conventions import Conventions
from harness.audit.finding import Finding, Grade, judged, unchecked
from harness.audit.labels import class_of, is_synonym
from harness.audit.printed import Printed, geomean_interval, largest, least, shown
from harness.audit.published import Mean, MeanCell, Published, Row

_WRONG = Grade.CONTRADICTS


def mean_findings(page: Published, rules: Conventions) -> Iterator[Finding]:
    """Yield what holds and what does not in the geomean table, and in lines of means under rows."""
    if not page.means:
        yield unchecked(check="geomean", line=0, what="the page has no geomean table")
        return
    covered: set[int] = set()
    for mean in page.means:
        for cell in mean.unreadable:
            what = f"{mean.what}: a cell that is neither a ratio nor a count"
            yield unchecked(check="geomean", line=mean.line, what=what, printed=cell)
        judgement = _judgement(page, mean, rules)
        covered |= {row.number for row in judgement.rows}
        yield from judgement.findings
    busy = [mean.line for mean in page.means for cell in mean.cells if cell.busy]
    if busy:
        what = f"{len(busy)} geomeans of busy times: rows print no ratio of them"
        yield unchecked(check="busy geomean", line=busy[0], what=what)
    without = [row for row in page.rows if row.number not in covered]
    if without:
        yield Finding(
            grade=Grade.NOTE,
            check="geomean",
            line=0,
            what=f"{len(without)} of {len(page.rows)} rows belong to no line of the geomean table",
            rows=tuple(row.number for row in without),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    """What came out for a line, and the rows that it is of, or may be of."""

    rows: Sequence[Row]
    findings: tuple[Finding, ...]


def _judgement(page: Published, mean: Mean, rules: Conventions) -> _Judgement:
    """Return what a line is by its rows, or why that is not known."""

    def not_checked(rows: Sequence[Row], why: str) -> _Judgement:
        return _Judgement(rows=rows, findings=(unchecked(check="geomean", line=mean.line, what=f"{mean.what}: {why}"),))

    candidates = rows_of(page, mean)
    same = _same_line(page, mean)
    if others := [other for other in same if other.beside != mean.beside]:
        why = f"line {others[0].line} has the same labels, and what tells them apart is not known"
        return not_checked(_wider(page, mean), why)
    if why := _why_not(page, mean, candidates):
        return not_checked([] if candidates else _wider(page, mean), why)
    judgements = [(rows, tuple(_line(page, mean, rows))) for rows in candidates]
    rows, findings = next((j for j in judgements if all(f.grade is not _WRONG for f in j[1])), judgements[0])
    if rules.selection and len(rows) < (mean.count or len(rows) + 1):
        stated = "?" if mean.count is None else mean.count
        return not_checked(rows, f"{len(rows)} of {stated} rows are on the page, which says that they are a selection")
    if any(f.grade is _WRONG for f in findings) and _is_doubtful(page, mean, rows):
        called = f"{mean.row_class} {mean.beside}".strip()
        return not_checked(rows, f"rows are not called {called!r}, and it may mean others than these {len(rows)}")
    if not mean.geometric:
        findings = tuple(_of_some_kind(finding) for finding in findings)
    if same and same[0].line < mean.line:
        what = f"{mean.what}: it stands in line {same[0].line} already"
        findings = (unchecked(check="line once", line=mean.line, what=what), *findings)
    return _Judgement(rows=rows, findings=findings)


def no_line_matches(page: Published) -> bool:
    """Return whether the page has a geomean table, and each of its lines is of labels or baselines that no row has."""
    return bool(page.means) and not any(_matches(page, mean) for mean in page.means)


def _matches(page: Published, mean: Mean) -> bool:
    known = any(match(cell.key, page.columns) for cell in mean.cells)
    return known and not mean.unknown and (not mean.row_class or rows_of(page, mean) != [[]])


def rows_of(page: Published, mean: Mean) -> list[list[Row]]:
    """Return the rows that a line may be the mean of; nothing where their classes are not known.

    Classes come from a column, else from the kinds in the rows' names. A line that has its operation for itself may be
    of all its rows, whatever their names say.
    """
    if mean.among:
        return [[r for r in page.rows if r.number in of and mean.op.lower() in ("", r.op.lower())] for of in mean.among]
    wider = _wider(page, mean)
    row_class = class_of(mean.row_class)
    if not row_class or not wider:
        return [wider]
    named = [row for row in wider if class_of(row.row_class) == row_class]
    if all(row.class_is_printed for row in wider):
        return [named]
    if len({class_of(m.row_class) for m in page.means if _same_place(m, mean)}) == 1:
        return [named, wider] if named else [wider]
    return [named] if all(row.row_class for row in wider) else []


def _why_not(page: Published, mean: Mean, candidates: Sequence[Sequence[Row]]) -> str:
    """Return why a line's rows are not known; empty where they are."""
    if mean.unknown:
        return f"no row is called {mean.unknown!r}"
    if not candidates:
        return "the rows' names do not tell their class"
    classes = {class_of(row.row_class) for row in page.rows}
    row_class = class_of(mean.row_class)
    if not any(candidates) and row_class and row_class not in classes:
        return f"no row is called {mean.row_class!r}"
    return ""


def _is_doubtful(page: Published, mean: Mean, rows: Sequence[Row]) -> bool:
    """Return whether a line's rows are called by another word than it has, and counts do not show that they are meant.

    They do where most of such lines have as many rows as they say.
    """
    called = {row.row_class.lower() for row in rows}
    row_class = class_of(mean.row_class)
    same_word = row_class in map(class_of, called) and (
        not is_synonym(mean.row_class) or mean.row_class.lower() in called
    )
    if (same_word or not row_class) and not mean.beside:
        return False
    alike = [m for m in page.means if class_of(m.row_class) == row_class and not m.among and not m.unknown]
    fitting = [m for m in alike if m.count in [len(of) for of in rows_of(page, m)]]
    return len(alike) > 2 * len(fitting)


def _same_line(page: Published, mean: Mean) -> list[Mean]:
    """Return the other lines with this one's labels and one of its baselines, under the same heading."""
    if mean.among:
        return []
    keys = {cell.key for cell in mean.cells}
    return [
        other
        for other in page.means
        if other.line != mean.line
        and not other.among
        and _same_place(other, mean)
        and class_of(other.row_class) == class_of(mean.row_class)
        and _headed(page, other) == _headed(page, mean)
        and keys & {cell.key for cell in other.cells}
    ]


def _line(page: Published, mean: Mean, rows: Sequence[Row]) -> Iterator[Finding]:
    if not rows:
        yield _absent(mean)
        return
    yield from _count(page, mean, rows)
    for cell in mean.cells:
        yield from _cell(page, mean, cell, rows)


def _of_some_kind(finding: Finding) -> Finding:
    """Return the finding of a line called ``mean`` or ``total``: where it is no geomean it may be another mean."""
    if finding.grade is not Grade.CONTRADICTS:
        return finding
    what = f"{finding.what}: not the geomean, and the line does not say which mean it is"
    return unchecked(check=finding.check, line=finding.line, what=what, printed=finding.printed)


def _same_place(one: Mean, other: Mean) -> bool:
    return (one.gpu, one.regime, one.suite, one.op) == (other.gpu, other.regime, other.suite, other.op)


def _headed(page: Published, mean: Mean) -> int | None:
    """Return the innermost of a line's headings that has rows."""
    return next((s for s in reversed(mean.sections) if any(s in row.sections for row in page.rows)), None)


def _wider(page: Published, mean: Mean) -> list[Row]:
    """Return the rows of the line's GPU, regime, suite and operation, of any class."""
    headed = _headed(page, mean)
    return [
        row
        for row in page.rows
        if (mean.gpu == row.place.gpu or (not mean.gpu and (headed is None or headed in row.sections)))
        and mean.regime in ("", row.place.regime)
        and (not mean.suite or not row.suite or mean.suite == row.suite)
        and (not mean.op or mean.op.lower() == row.op.lower())
    ]


def _absent(mean: Mean) -> Finding:
    return judged(
        False,
        check="count",
        line=mean.line,
        what=mean.what,
        printed="a geomean" if mean.count is None else str(mean.count),
        recomputed="no such row on the page",
    )


def _count(page: Published, mean: Mean, rows: Sequence[Row]) -> Iterator[Finding]:
    if mean.count is None:
        return
    first = match(mean.first, page.columns)
    counted = sum(row.counts(first) for row in rows) if first else 0
    if first and any(first in row.unread for row in rows) and mean.count != len(rows):
        yield unchecked(check="count", line=mean.line, what=f"{mean.what}: cells of its rows cannot be read")
        return
    yield judged(
        mean.count in (counted, len(rows)) and mean.count <= (mean.expected or mean.count),
        check="count",
        line=mean.line,
        what=mean.what,
        printed=f"{mean.count}" + (f" of {mean.expected}" if mean.expected is not None else ""),
        recomputed=f"{counted}" if counted == len(rows) else f"{counted} with a ratio, {len(rows)} in all",
        rows=[row.number for row in rows],
    )
    for key in (match(cell.key, page.columns) for cell in mean.cells if cell.n is None):
        silent = [row for row in rows if key and key not in row.ratios and key not in row.unread]
        if key and silent and mean.count != sum(row.counts(key) for row in rows):
            what = f"{mean.what} vs {key}: {len(silent)} of its rows have no ratio, and its cell does not say so"
            yield unchecked(check="count", line=mean.line, what=what)


def _cell(page: Published, mean: Mean, cell: MeanCell, rows: Sequence[Row]) -> Iterator[Finding]:
    key = match(cell.key, page.columns)
    what = f"{mean.what} vs {cell.key}"
    if key is None:
        yield unchecked(
            check="geomean",
            line=mean.line,
            what=f"{what}: no column of the rows is called so; known: {', '.join(page.columns) or 'none'}",
            printed=cell.value.text if cell.value else "",
        )
        return
    if odd := [row.number for row in rows if key in row.unread]:
        yield unchecked(check="geomean", line=mean.line, what=f"{what}: cells of {len(odd)} of its rows cannot be read")
        return
    entering = [row for row in rows if row.counts(key)]
    values = [row.ratios[key].value for row in entering]
    numbers = [row.number for row in entering]
    if cell.n is not None:
        yield judged(
            cell.n == len(values),
            check="count",
            line=mean.line,
            what=what,
            printed=f"{cell.n}",
            recomputed=f"{len(values)}",
            rows=numbers,
        )
    for check, stated, interval in (
        ("geomean", cell.value, geomean_interval),
        ("lowest", cell.low, least),
        ("highest", cell.high, largest),
    ):
        if stated is not None:
            found = interval(values) if values else None
            yield judged(
                found is not None and stated.meets(found),
                check=check,
                line=mean.line,
                what=what,
                printed=stated.text,
                recomputed=_said(check, values) if found is None or check != "geomean" else shown(found),
                rows=numbers,
            )


def _said(check: str, values: Sequence[Printed]) -> str:
    if not values:
        return "no row with a ratio"
    pick = min if check == "lowest" else max
    return pick(values, key=lambda value: value.value).text
