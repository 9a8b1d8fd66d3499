"""What a page publishes, as it was read: rows, geomeans, and what of its tables nothing recomputes."""

from __future__ import annotations

from dataclasses import dataclass

from harness.audit.columns import LatencyColumn
from harness.audit.printed import Latency, Printed, Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where rows belong together: a GPU, a regime; empty where the page does not tell them apart."""

    gpu: str = ""
    regime: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """One arm's latency in a row, and its column."""

    column: LatencyColumn
    latency: Latency


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row; ``number`` counts them from 1 over the file. Unreadable cells are kept as they are, by header.

    Attributes
    ----------
    row_class
        As a column says, else as the name's kind says: ``unsorted`` for asc and random, ``owner``; else empty.
    ratios, keys
        By baseline: the ratio, and the letter of the arm it is against.
    sections
        Lines of the headings above the table, the outermost first.
    unreadable, unread
        Cells of no known form, and the baselines whose ratio is among them: what is over them cannot be recomputed.
    blank
        Baselines whose cell is empty: it does not even say that there is no ratio.
    gpu_cell
        What its own column says of its GPU.
    """

    number: int
    line: int
    place: Place
    suite: str
    op: str
    name: str
    row_class: str
    class_is_printed: bool
    groups: int | None
    host_bound: bool
    control: bool
    ratios: dict[str, Ratio]
    keys: dict[str, str]
    times: tuple[Time, ...]
    sections: tuple[int, ...]
    unreadable: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()
    blank: frozenset[str] = frozenset()
    gpu_cell: str = ""

    @property
    def full_name(self) -> str:
        """Operation and name, as sentences call a row."""
        return f"{self.op} {self.name}".strip()

    @property
    def identity(self) -> tuple[str, ...]:
        """What no two rows of a page share."""
        return (self.place.gpu, self.place.regime, self.suite, self.op.lower(), self.name.lower())

    def counts(self, key: str) -> bool:
        """Return whether the row's ratio enters geomeans and counts of this baseline."""
        return key in self.ratios and not self.host_bound and not (self.control and key.startswith("previous"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanCell:
    """A geomean against one baseline; ``value`` is None where only an end stands. ``n`` is the cell's own count."""

    key: str
    value: Printed | None
    low: Printed | None
    high: Printed | None
    n: int | None
    busy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A line of the geomean table; an empty operation or class stands for all. ``count`` rows of ``expected``.

    ``count`` is that of the column ``first``. Without a GPU it is of the rows under the innermost of its headings
    (``sections``) that has rows. A line of the per-row table is of one of the sets of row numbers in ``among``; where
    it does not say that it is geometric, ``geometric`` is False. ``unreadable`` are cells of no known form, ``beside``
    what columns of no known meaning say. ``unknown`` is its label that no row of the page has; empty where all are
    known.
    """

    line: int
    gpu: str
    regime: str
    suite: str
    op: str
    row_class: str
    count: int | None
    expected: int | None
    first: str
    cells: tuple[MeanCell, ...]
    sections: tuple[int, ...]
    among: tuple[frozenset[int], ...] = ()
    geometric: bool = True
    unreadable: tuple[str, ...] = ()
    beside: str = ""
    unknown: str = ""

    @property
    def what(self) -> str:
        """The line in words."""
        parts = (self.gpu, self.regime, self.suite, self.op, self.row_class)
        return " ".join(part for part in parts if part) or "all rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A table, or a column of one, whose numbers nothing recomputes."""

    line: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A page's rows and geomeans, and the names in them: GPUs, regimes, operations, baselines."""

    rows: tuple[Row, ...]
    means: tuple[Mean, ...]
    unread: tuple[Unread, ...] = ()

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs of the rows."""
        return tuple(dict.fromkeys(row.place.gpu for row in self.rows))

    @property
    def regimes(self) -> tuple[str, ...]:
        """The regimes of the rows."""
        return tuple(dict.fromkeys(row.place.regime for row in self.rows))

    @property
    def ops(self) -> tuple[str, ...]:
        """The operations of the rows."""
        return tuple(dict.fromkeys(row.op for row in self.rows if row.op))

    @property
    def columns(self) -> tuple[str, ...]:
        """The baselines of the rows."""
        return tuple(dict.fromkeys(key for row in self.rows for key in (*row.ratios, *sorted(row.unread))))
