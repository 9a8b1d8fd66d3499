"""Tables -> the rows and geomeans that a page publishes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from harness.audit.columns import Header, RatioColumn, has_result, mean_header, row_header
from harness.audit.finding import AuditError
from harness.audit.labels import EVERY, OWNER, UNSORTED, archs, class_of, gpu_of, split, words
from harness.audit.markdown import Document, Line, Table, TableRow
from harness.audit.printed import COUNT, Printed, Ratio, has_number, latency, only_range, ratio
from harness.audit.published import Mean, MeanCell, Place, Published, Row, Time, Unread

TOTAL = {"geomean", "geometric mean", "mean", "average", "total", "overall", "all"}
"""What a line of the per-row table is called that is no row but their mean."""
_N_OF_M = re.compile(rf"({COUNT})(?:\s*(?:of|/)\s*({COUNT}))?(?:\s+rows?)?[*†‡§¹²³]*")
_RESULT = re.compile(r"\b(?:below|above|rows?|geomeans?|speedups?|ratios?|regressions?|gains?|faster|slower)\b")
_REGIME = re.compile(r"\bregime \S+")
_UNSORTED = re.compile(r"\b(?:asc|ascending|unsorted|random|lognormal)\b")
_OWNER = re.compile(r"\b(?:bal|balanced|skew|skewed|desc|descending|\w+-empty)\b")


def published(document: Document) -> Published:
    """Return the page's rows and geomeans.

    Raises
    ------
    AuditError
        No table has a column of names and one of ratios, or it has no row.
    """
    tables = list(_tables(document))
    means = tuple(mean for table in tables for mean in _means(table))
    rows: list[Row] = []
    totals: list[Mean] = []
    for placed in tables:
        if (header := row_header(placed.table)).is_rows:
            earlier = {row.identity: index for index, row in enumerate(rows)}
            here: list[int] = []
            ended = 0
            for line in placed.table.rows:
                if _is_total(line, header):
                    totals.append(_total(line, header, placed, here, here[ended:]))
                    ended = len(here)
                    continue
                row = _row(line, header, placed, means, len(rows) + 1)
                index = earlier.get(row.identity)
                if index is None or _ratio_keys(rows[index]) & _ratio_keys(row):
                    here.append(row.number)
                    rows.append(row)
                else:
                    here.append(rows[index].number)
                    rows[index] = _merged(rows[index], row)
    if not rows:
        raise AuditError(
            "no per-row table found: a page must have a table with a column of rows (row, shape, workload) and one of"
            " ratios (speedup, vs, baseline / new); give the page with its rows"
        )
    known = tuple(_resolved(mean, rows) for mean in means)
    return Published(rows=tuple(rows), means=(*known, *totals), unread=tuple(_unread(tables)))


def _resolved(mean: Mean, rows: Sequence[Row]) -> Mean:
    """Return a line with its operation as the rows call it; ``unknown`` is the label that no row has.

    An architecture that no row has is no label of another kind: the line's rows are missing.
    """
    ops = tuple(dict.fromkeys(row.op for row in rows if row.op))
    op, of_class, unknown = mean.op, mean.row_class, ""
    classes = {class_of(row.row_class) for row in rows}
    if op and (found := split(op, ops)):
        op, of_class = found[0], f"{found[1]} {of_class}".strip()
    elif op:
        unknown = op
    elif class_of(of_class) not in classes and (found := split(of_class, ops)):
        op, of_class = found
    gpus = {row.place.gpu for row in rows}
    of_no_row = archs(mean.gpu) and all(map(archs, gpus)) and not any(archs(mean.gpu) & archs(gpu) for gpu in gpus)
    for label, there in (
        ("" if of_no_row else mean.gpu, gpus),
        (mean.regime, {row.place.regime for row in rows}),
        (mean.suite, {row.suite for row in rows} - {""}),
    ):
        if label and there and label not in there:
            unknown = unknown or label
    return replace(mean, op=op, row_class=of_class, unknown=unknown)


def _unread(tables: Sequence[_Placed]) -> Iterator[Unread]:
    """Yield the tables that are neither of rows nor of geomeans, and the columns of those that are, with results."""
    columns: dict[str, int] = {}
    for table in (placed.table for placed in tables):
        rows = row_header(table)
        header = rows if rows.is_rows else mean_header(table)
        if header is None:
            if _holds_results(table):
                titles = ", ".join(title for title in table.header if title)
                yield Unread(line=table.number, what=f"a table that is neither of rows nor of geomeans: {titles}")
            continue
        for index in header.unread:
            columns.setdefault(table.header[index], table.number)
    for title, line in columns.items():
        yield Unread(line=line, what=f"a column that is none of those that are recomputed: {title or 'without a name'}")


def _holds_results(table: Table) -> bool:
    """Return whether a table has a decimal number, a percentage, a count out of a count, or counts under a result."""
    cells = [cell for row in table.rows for cell in row.cells]
    counted = any(_RESULT.search(text.lower()) for text in (*table.header, *cells))
    return any(map(has_result, (*table.header, *cells))) or (counted and any(map(has_number, cells)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A table, the headings above it, and what else stands between it and the last table."""

    table: Table
    headings: tuple[Line, ...]
    since: tuple[Line, ...]

    @property
    def above(self) -> list[str]:
        """What stands above the table, the nearest first."""
        return [line.text for line in (*reversed(self.since), *reversed(self.headings))]

    @property
    def sections(self) -> tuple[int, ...]:
        return tuple(heading.number for heading in self.headings)


def _tables(document: Document) -> Iterator[_Placed]:
    headings: list[Line] = []
    since: list[Line] = []
    for block in document.blocks:
        if isinstance(block, Line):
            headings = [*(h for h in headings if h.level < block.level), block] if block.level else headings
            since.append(block)
            continue
        yield _Placed(table=block, headings=tuple(headings), since=tuple(since))
        since = []


def _means(placed: _Placed) -> Iterator[Mean]:
    table = placed.table
    if row_header(table).is_rows or (header := mean_header(table)) is None:
        return
    for row in table.rows:
        counted = _cell(row, header.count)
        count = _N_OF_M.fullmatch(counted)
        yield Mean(
            line=row.number,
            gpu=_some(_cell(row, header.gpu)),
            regime=_some(_cell(row, header.regime)),
            suite=_some(_cell(row, header.suite)),
            op=_some(_cell(row, header.op)),
            row_class=_some(_cell(row, header.row_class)),
            count=int(count[1]) if count else None,
            expected=int(count[2]) if count and count[2] else None,
            first=header.ratios[0].key,
            cells=tuple(_mean_cells(row, header)),
            sections=placed.sections,
            unreadable=(
                *((counted,) if count is None and has_number(counted) else ()),
                *_cells(row, _odd(row, header)),
            ),
            beside=_beside(row, header),
        )


def _beside(row: TableRow, header: Header) -> str:
    """Return what the columns of no known meaning say of a line."""
    known = {header.gpu, header.op, header.row_class, header.count, header.suite, header.regime, header.remarks}
    known |= {column.index for column in header.ratios} | set(header.unread)
    return " ".join(cell for i, cell in enumerate(row.cells) if i not in known and cell)


def _odd(row: TableRow, header: Header) -> list[RatioColumn]:
    """Return the columns whose cell has a number and no known form."""
    return [
        column
        for column in header.ratios
        if has_number(cell := row.cells[column.index])
        and not (only_range(cell) if column.part == "range" else ratio(cell))
    ]


def _cells(row: TableRow, columns: Sequence[RatioColumn]) -> tuple[str, ...]:
    return tuple(row.cells[column.index] for column in columns)


def _is_total(row: TableRow, header: Header) -> bool:
    """Return whether a line is called a mean of rows and may be one.

    It is a row where it has an operation, every latency, and the number of its groups or the letter of an arm.
    """
    timed = bool(header.latencies) and all(latency(row.cells[column.index]) for column in header.latencies)
    letters = [row.cells[column.index] for column in header.keys]
    measured = re.fullmatch(COUNT, _cell(row, header.n)) or any(re.fullmatch(r"\w", letter) for letter in letters)
    if timed and measured and _cell(row, header.op):
        return False
    return any(row.cells[index].lower().strip(" :") in TOTAL for index in header.name)


def _total(row: TableRow, header: Header, placed: _Placed, table: Sequence[int], since: Sequence[int]) -> Mean:
    """Return the mean that a line of a per-row table is: of the table's rows, or of those since the last such line."""
    title = next(cell for index in header.name if (cell := row.cells[index].lower().strip(" :")) in TOTAL)
    return Mean(
        line=row.number,
        gpu="",
        regime="",
        suite="",
        op=_some(_cell(row, header.op).strip("-–—")),
        row_class="",
        count=None,
        expected=None,
        first=header.ratios[0].key,
        cells=tuple(_mean_cells(row, header)),
        sections=placed.sections,
        among=(frozenset(table), frozenset(since)),
        geometric=title.startswith("geo"),
        unreadable=_cells(row, _odd(row, header)),
    )


def _mean_cells(row: TableRow, header: Header) -> Iterator[MeanCell]:
    for key in dict.fromkeys(column.key for column in header.ratios):
        value: Ratio | None = None
        ends: dict[str, Printed] = {}
        for column in (c for c in header.ratios if c.key == key):
            cell = row.cells[column.index]
            found, both = ratio(cell), only_range(cell)
            if column.part == "range" and both:
                ends |= {"low": both[0], "high": both[1]}
            elif found and column.part in ("lowest", "highest"):
                ends["low" if column.part == "lowest" else "high"] = found.value
            elif found:
                value = found
        if value is None and not ends:
            continue
        rest = value.rest if value else ""
        n = re.search(r"(?:^|, )(?:n\s*=?\s*)?(\d+) of \d+", re.sub(r"busy.*", "", rest))
        busy = re.search(r"busy\s+[\d.]+", rest)
        yield MeanCell(
            key=key,
            value=value.value if value else None,
            low=ends.get("low") or (value.low if value else None),
            high=ends.get("high") or (value.high if value else None),
            n=int(n[1]) if n else None,
            busy=busy[0] if busy else "",
        )


def _row(row: TableRow, header: Header, placed: _Placed, means: Sequence[Mean], number: int) -> Row:
    above = placed.above
    name = " ".join(part for index in header.name if (part := _part(header.titles[index], row.cells[index])))
    stated = _cell(row, header.row_class)
    groups = _cell(row, header.n)
    remarks = _cell(row, header.remarks).lower()
    ops = {words(mean.op): mean.op for mean in means if mean.op}
    op = _cell(row, header.op) or next((ops[words(h)] for h in above if words(h) in ops), "")
    gpu_cell = _cell(row, header.gpu)
    gpu = gpu_of(gpu_cell, above, list(dict.fromkeys(mean.gpu for mean in means if mean.gpu)))
    odd = _odd(row, header)
    times = [row.cells[column.index] for column in header.latencies]
    wrong = [cell for cell in times if has_number(cell) and latency(cell) is None]
    wrong += [groups] if has_number(groups) and not re.fullmatch(COUNT, groups) else []
    return Row(
        number=number,
        line=row.number,
        place=Place(gpu=gpu, regime=_regime(_cell(row, header.regime), gpu, placed, means)),
        suite=_cell(row, header.suite),
        op=op,
        name=name,
        row_class=stated or row_class(name),
        class_is_printed=bool(stated),
        groups=int(groups) if re.fullmatch(COUNT, groups) else None,
        host_bound="host-bound" in remarks,
        control="control" in [remark.strip() for remark in remarks.split(";")],
        ratios=_ratios(row, header),
        keys={c.key: row.cells[c.index].strip() for c in header.keys if row.cells[c.index].strip(" -–—")},
        times=tuple(
            Time(column=column, latency=found)
            for column in header.latencies
            if (found := latency(row.cells[column.index])) is not None
        ),
        sections=placed.sections,
        unreadable=(*wrong, *_cells(row, odd)),
        unread=frozenset(column.key for column in odd),
        blank=frozenset(c.key for c in header.ratios if c.part == "value" and not row.cells[c.index]),
        gpu_cell=gpu_cell,
    )


def _merged(one: Row, other: Row) -> Row:
    """Return a row whose baselines stand in two tables, with the number and line of the first."""
    return replace(
        one,
        ratios=one.ratios | other.ratios,
        keys=one.keys | other.keys,
        times=(*one.times, *other.times),
        unreadable=(*one.unreadable, *other.unreadable),
        unread=one.unread | other.unread,
        blank=one.blank | other.blank,
    )


def _ratio_keys(row: Row) -> set[str]:
    return {*row.ratios, *row.unread}


def _ratios(row: TableRow, header: Header) -> dict[str, Ratio]:
    """Return the row's ratios by baseline, ends from columns of their own put in."""
    found: dict[str, Ratio] = {}
    for column in header.ratios:
        if column.part == "value" and (value := ratio(row.cells[column.index])) is not None:
            found[column.key] = value
    for column in header.ratios:
        value, cell = found.get(column.key), row.cells[column.index]
        if value is None or column.part == "value":
            continue
        both, end = only_range(cell), ratio(cell)
        if column.part == "range" and both:
            found[column.key] = Ratio(value=value.value, low=both[0], high=both[1])
        elif end and column.part == "lowest":
            found[column.key] = Ratio(value=value.value, low=end.value, high=value.high)
        elif end and column.part == "highest":
            found[column.key] = Ratio(value=value.value, low=value.low, high=end.value)
    return found


def row_class(name: str) -> str:
    """Return the class that a published name's kind belongs to: ``unsorted``, ``owner``, or empty where it has none."""
    lowered = name.lower()
    if _UNSORTED.search(lowered):
        return UNSORTED
    return OWNER if _OWNER.search(lowered) else ""


def _regime(cell: str, gpu: str, placed: _Placed, means: Sequence[Mean]) -> str:
    """Return a row's regime: of its cell, of what stands above it, or the only one that its GPU's geomeans have.

    Without geomeans what stands above tells tables apart.
    """
    if cell or not means:
        return cell or next(iter(placed.above), "")
    regimes = {mean.regime for mean in means if not gpu or mean.gpu in ("", gpu)}
    if len(regimes) == 1:
        return regimes.pop()
    said = [
        *(text for text in placed.above if text in regimes),
        *(_said_regime(heading.text, regimes) for heading in reversed(placed.headings)),
    ]
    since = {_said_regime(part, regimes) for line in placed.since for part in _REGIME.findall(line.text.lower())}
    return next(filter(None, said), since.pop() if len(since) == 1 else "")


def _said_regime(text: str, regimes: Collection[str]) -> str:
    """Return the only regime that a heading names, or that a line of a machine gives as ``regime boost``."""
    found = [
        regime
        for regime in regimes
        if regime and re.search(rf"(?<![\w-]){re.escape(regime.lower())}(?![\w-]|:\d)", text.lower())
    ]
    return found[0] if len(found) == 1 else ""


def _part(title: str, cell: str) -> str:
    """Return a cell as a part of a row's name: ``4`` under ``E`` is ``E4``."""
    return f"{title.upper()}{cell}" if title.lower() in ("e", "m") and cell.isdigit() else cell


def _cell(row: TableRow, index: int | None) -> str:
    return "" if index is None else row.cells[index]


def _some(cell: str) -> str:
    return "" if cell.lower() in EVERY else cell
