"""What a sentence is about: the baseline, GPU and regime named in it, before it, or in the heading above it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from harness.audit.columns import match
from harness.audit.finding import Finding
from harness.audit.labels import short, without_maker
from harness.audit.markdown import Document, Line
from harness.audit.published import Place, Published, Row

_STOP = r"(?<!\bvs)(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s+\S)(?!\s*\d)"
_CLAUSE = re.compile(rf"[;]|{_STOP}")
_SENTENCE = re.compile(_STOP)
_ENDED = re.compile(r"[.!?][)\]\"'”’]*$")
_PLAIN = re.compile(
    r"(?:\W|\d+[.)](?=\s)|\b(?:speedups?|ratios?|rows?|vs|versus|against|over|on|in|for|and|is|are|the|largest|smallest|gains?"
    r"|losses|regressions(?:, reported as is)?)\b|\(chance[^()]*\))*"
)
"""What may stand around a claim, the names of baselines, GPUs, regimes and operations aside."""
_DOUBT = re.compile(
    r"\b(?:not|never|no longer|cannot|without|except|unless|if|whether|would|should|could|might|may|must|will|shall"
    r"|targets?|goals?|aim(?:ed|s)?|wish|want(?:ed|s)?|hope[ds]?|expect(?:ed|s)?|plan(?:ned|s)?|need(?:ed|s)?|was|were"
    r"|used to|earlier|formerly|version|about|roughly|nearly|almost|up to)\b|n't\b"
)
"""What makes a statement another one: a negation, a modal, a wish, the past."""
_OURS = re.compile(r"\bcycles do not confirm \d+ of these")
"""What our reports say between their claims."""
_VERSUS = re.compile(r"\b(?:vs\.?|versus|against|over)\s+(.+?)(?=\s*(?:[:;,(]|\.(?:\s|$)|$| in | on | over ))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A name found in a line, and where."""

    start: int
    end: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What is named last so far: a baseline, a GPU, a regime; empty where none is.

    ``is_carried``: the GPU was named in another sentence, so that a claim may be of all of them.
    """

    column: str = ""
    gpu: str = ""
    regime: str = ""
    is_carried: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What was read in a line, checked or named as not checked: its places, and what came out."""

    spans: tuple[range, ...]
    findings: tuple[Finding, ...]


def claim(spans: Iterable[tuple[int, int]], findings: Iterable[Finding]) -> Claim:
    """Return what was read at ``spans``."""
    return Claim(spans=tuple(range(*span) for span in spans), findings=tuple(findings))


NAME = "\N{CURRENCY SIGN}"
"""What stands in ``Said.masked`` for each letter of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A line (lower case), wrapped ones put together, with what was named before it and what it names.

    ``bare`` is its text with blanks for the names in it, ``masked`` that with ``NAME`` for baselines, GPUs and regimes;
    ``lead`` that of the line, ending in a colon, of whose list it is an item.
    """

    line: Line
    text: str
    bare: str
    masked: str
    lead: str
    before: Named
    columns: tuple[Mention, ...]
    gpus: tuple[Mention, ...]
    regimes: tuple[Mention, ...]
    ops: tuple[Mention, ...]

    def named(self, start: int, end: int, page: Published, *, is_list: bool = False) -> Named:
        """Return what the claim at ``start:end`` is about; of a list, what follows is its rows'."""
        left, right = self._clause(start, end)
        if is_list:
            right = end

        def pick(mentions: tuple[Mention, ...], before: str) -> str:
            inside = [m.name for m in mentions if start <= m.start < end]
            earlier = [m.name for m in mentions if left <= m.start < start]
            later = [m.name for m in mentions if end <= m.start < right]
            in_line = [m.name for m in mentions if m.start < left]
            for found in (inside[:1], earlier[-1:], later[:1], in_line[-1:]):
                if found:
                    return found[0]
            return before

        only = page.columns[0] if len(page.columns) == 1 else ""
        return Named(
            column=pick(self.columns, self.before.column) or only,
            gpu=pick(self.gpus, self.before.gpu),
            regime=pick(self.regimes, self.before.regime),
            is_carried=not any(left <= m.start < right for m in self.gpus),
        )

    def ops_before(self, start: int) -> set[str]:
        """Return the operations that the line names before a claim."""
        return {mention.name for mention in self.ops if mention.start < start}

    def plain(self, start: int, end: int, others: Collection[range] = ()) -> bool:
        """Return whether a claim stands alone in its clause, names aside: neither negated, hedged nor qualified.

        ``others`` are the places of claims beside it.
        """
        left, right = self._clause(start, end)
        left = max([left, *(other.stop for other in others if other.stop <= start)])
        colon = self.text.find(":", end, right)
        right = min([right, *(other.start for other in others if other.start >= end), *([colon] if colon > 0 else [])])
        around = (self.lead, self.bare[left:start], self.bare[end:right])
        return not self.doubted(start) and all(_PLAIN.fullmatch(text) for text in around)

    def doubted(self, start: int) -> bool:
        """Return whether something before a claim, in its sentence, makes it another."""
        left = max((found.end() for found in _SENTENCE.finditer(self.bare) if found.end() <= start), default=0)
        return _DOUBT.search(_OURS.sub("", f"{self.lead} {self.bare[left:start]}")) is not None

    def clauses(self) -> Iterator[range]:
        """Yield where its clauses stand."""
        breaks = [found.start() for found in _CLAUSE.finditer(self.bare)]
        for left, right in pairwise([0, *(end + 1 for end in breaks), len(self.text)]):
            yield range(left, right)

    def _clause(self, start: int, end: int) -> tuple[int, int]:
        breaks = [found.start() for found in _CLAUSE.finditer(self.bare)]
        left = max((b for b in breaks if b < start), default=0)
        right = min((b for b in breaks if b >= end), default=len(self.text))
        return left, right


def said(document: Document, page: Published) -> Iterator[Said]:
    """Yield the lines in order, headings too, each with its context.

    What a heading names holds below it, down to the next heading of its level; what a line names holds for the lines
    after it, down to the next heading.
    """
    find = _finders(page)
    headings: list[tuple[int, Named]] = []
    now = Named()
    lead = ""
    for block in _unwrapped(document):
        text = block.text.lower()
        found = {what: tuple(finder(text)) for what, finder in find.items()}
        names = {what: mentions[-1].name for what, mentions in found.items() if mentions}
        last = Named(column=names.get("column", ""), gpu=names.get("gpu", ""), regime=names.get("regime", ""))
        if block.level:
            headings = [(level, named) for level, named in headings if level < block.level]
            outer = headings[-1][1] if headings else Named()
            now = _with(outer, last)
            headings.append((block.level, now))
            lead = ""
        ops = tuple(_mentions(text, {op.lower(): op for op in page.ops}))
        bare = _blanked(text, (*ops, *(mention for mentions in found.values() for mention in mentions)))
        lead = lead if block.item else ""
        yield Said(
            line=block,
            text=text,
            bare=bare,
            masked=_blanked(text, [mention for mentions in found.values() for mention in mentions], by=NAME),
            lead=lead,
            before=now,
            columns=found["column"],
            gpus=found["gpu"],
            regimes=found["regime"],
            ops=ops,
        )
        if block.level:
            continue
        if not block.item and text.endswith(":"):
            lead = bare
        now = _with(now, last)


def _unwrapped(document: Document) -> Iterator[Line]:
    """Yield headings and lines; one that does not end its sentence takes in the next, and keeps its number."""
    open_line: Line | None = None
    last = 0
    for block in document.blocks:
        text = block if isinstance(block, Line) and not block.level else None
        if open_line and text and not text.item and text.number == last + 1 and not _ENDED.search(open_line.text):
            open_line = replace(open_line, text=f"{open_line.text} {text.text}")
        else:
            if open_line:
                yield open_line
            open_line = text
            if isinstance(block, Line) and block.level:
                yield block
        last = block.number
    if open_line:
        yield open_line


def _blanked(text: str, mentions: Collection[Mention], *, by: str = " ") -> str:
    for mention in mentions:
        text = text[: mention.start] + by * (mention.end - mention.start) + text[mention.end :]
    return text


def scopes(page: Published, named: Named, ops: Collection[str] = ()) -> list[list[Row]]:
    """Return the sets of rows that a claim may be of: those of the place it names; without one all, or each place.

    Of a GPU that another sentence names it may be, and of all. ``ops`` are operations named before it: it may be of
    theirs alone.
    """
    gpus = [named.gpu, ""] if named.gpu and named.is_carried else [named.gpu]
    found = [rows for gpu in gpus for rows in _with_places(page, gpu, named.regime)]
    return found + [[row for row in of_place if row.op in ops] for of_place in found if ops]


def _with_places(page: Published, gpu: str, regime: str) -> list[list[Row]]:
    rows = [row for row in page.rows if gpu in ("", row.place.gpu) and regime in ("", row.place.regime)]
    places: dict[Place, list[Row]] = {}
    for row in rows:
        places.setdefault(row.place, []).append(row)
    return [rows, *places.values()] if len(places) > 1 else [rows]


def _with(outer: Named, inner: Named) -> Named:
    return replace(
        outer,
        column=inner.column or outer.column,
        gpu=inner.gpu or outer.gpu,
        regime=inner.regime or outer.regime,
    )


def _finders(page: Published) -> Mapping[str, Callable[[str], Iterator[Mention]]]:
    columns = {key: key for key in page.columns}
    columns |= {cell.key: key for mean in page.means for cell in mean.cells if (key := match(cell.key, page.columns))}
    gpus = {gpu.lower(): gpu for gpu in page.gpus if gpu}
    for called in (short, without_maker):
        names = [called(gpu.lower()) for gpu in page.gpus]
        gpus |= {name: gpu for name, gpu in zip(names, page.gpus, strict=True) if name and names.count(name) == 1}
    archs = [arch for gpu in page.gpus for arch in re.findall(r"sm_\w+", gpu.lower())]
    gpus |= {a: g for g in page.gpus for a in re.findall(r"sm_\w+", g.lower()) if archs.count(a) == 1}
    regimes = {f"in {regime.lower()}": regime for regime in page.regimes if regime}

    def of_columns(text: str) -> Iterator[Mention]:
        found = list(_mentions(text, columns))
        for phrase in _VERSUS.finditer(text):
            if any(m.start < phrase.end() and phrase.start() < m.end for m in found):
                continue
            if key := match(phrase[1], page.columns):
                found.append(Mention(start=phrase.start(), end=phrase.end(), name=key))
        yield from sorted(found, key=lambda mention: mention.start)

    return {
        "column": of_columns,
        "gpu": lambda text: _mentions(text, gpus),
        "regime": lambda text: _mentions(text, regimes),
    }


def _mentions(text: str, names: Mapping[str, str]) -> Iterator[Mention]:
    """Yield where a name stands as words of its own; the longest wins."""
    if not names:
        return
    longest = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    for found in re.finditer(rf"(?<![\w-])(?:{longest})(?![\w-]|:\d)", text):
        yield Mention(start=found.start(), end=found.end(), name=names[found[0]])
