"""``shapes.yaml`` -> suites of shapes. Strict: whatever is wrong reads ``shapes.yaml:LINE: ...``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from harness import distributions, located_yaml
from harness.distributions import Distribution
from harness.errors import ShapesError, UnknownName
from harness.located_yaml import Document
from harness.model.case import OPS, Case
from harness.model.shape import Shape
from harness.strict import At, Label, Name, NotNegative, Positive, Strict, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRow:
    """A shape, the operations that are measured on it, and their output type."""

    shape: Shape
    ops: tuple[str, ...]
    out_dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A named list of rows.

    Attributes
    ----------
    about
        What the suite is for, in a sentence.
    rows
        In the order of tables.
    """

    name: str
    about: str
    rows: tuple[SuiteRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """All suites of a file, in its order."""

    suites: tuple[Suite, ...]

    def suite(self, name: str) -> Suite:
        """Return the suite ``name``.

        Raises
        ------
        UnknownName
            The message lists the known ones.
        """
        for suite in self.suites:
            if suite.name == name:
                return suite
        raise UnknownName("suite", name, tuple(suite.name for suite in self.suites))


def load(path: Path) -> Shapes:
    """Read a shapes file; the traces that it names lie relative to it.

    Raises
    ------
    ShapesError
        ``FILE:LINE: ...`` with the first thing that is wrong.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ShapesError(f"{path}: the file cannot be read: {error.strerror or error}") from None
    document = located_yaml.load(data, path.name)
    return _Expansion(document, path.parent).shapes()


# The schema. Lists in YAML become tuples; everything inside stays strict.
_AtLeastOne = Field(strict=False, min_length=1)
_Ops = Annotated[tuple[Literal["fwd", "dX", "dW", "ckpt", "ckpt ES"], ...], _AtLeastOne]
_RowClass = Literal["owner", "unsorted", "model", "smoke"]


class _Dims(Strict):
    N: Positive
    K: Positive


class _Projections(Strict):
    source: Text
    sizes: Annotated[dict[Name, _Dims], Field(min_length=1)]


class _Kind(Strict):
    distribution: Name
    parameters: dict[str, Any] = Field(default_factory=dict)
    ascending: bool = False
    label: Label | None = None
    source: Text


class _Row(Strict):
    model: Name | None = None
    E: Annotated[tuple[Positive, ...], _AtLeastOne] | None = None
    M: Annotated[tuple[NotNegative, ...], _AtLeastOne] | None = None
    kinds: Annotated[tuple[Name, ...], _AtLeastOne]
    seeds: Annotated[tuple[NotNegative, ...], _AtLeastOne] | None = None
    out_dtype: Literal["bf16", "fp32"] = "bf16"
    # These stand for the suite's own.
    projections: Name | None = None
    ops: _Ops | None = None
    row_class: _RowClass | None = None
    source: Text | None = None


class _Suite(Strict):
    about: Text
    source: Text
    projections: Name | None = None
    ops: _Ops | None = None
    row_class: _RowClass | None = None
    rows: Annotated[tuple[_Row, ...], _AtLeastOne]


class _File(Strict):
    projections: dict[Name, _Projections]
    kinds: dict[Name, _Kind]
    suites: dict[Name, _Suite]


class _Expansion:
    """Multiplies a file's rows out into shapes. Holds the document, so that every error has its line."""

    def __init__(self, document: Document, folder: Path) -> None:
        self.document = document
        self.file = document.validate(_File, document.value)
        self.rules = {name: self._rule(name, kind, folder) for name, kind in self.file.kinds.items()}

    def shapes(self) -> Shapes:
        if "adhoc" in self.file.suites:
            raise self.document.error(("suites", "adhoc"), "'adhoc' names ad-hoc shapes; call the suite otherwise")
        return Shapes(suites=tuple(self._suite(name, suite) for name, suite in self.file.suites.items()))

    def _rule(self, name: str, kind: _Kind, folder: Path) -> Distribution:
        at = ("kinds", name)
        try:
            sizes = distributions.load(kind.distribution)
        except UnknownName as error:
            raise self.document.error((*at, "distribution"), f"{error}") from None
        return self.document.validate(sizes, kind.parameters, (*at, "parameters")).beside(folder)

    def _suite(self, name: str, suite: _Suite) -> Suite:
        rows: list[SuiteRow] = []
        places: dict[str, At] = {}
        for at, row in self._rows(name, suite):
            for case in (Case(suite=name, op=op, shape=row.shape, out_dtype=row.out_dtype) for op in row.ops):
                if case.case_id in places:
                    line = self.document.value_lines[places[case.case_id]]
                    text = f"the row {case.case_id!r} stands twice in the suite {name!r}; first in line {line}"
                    raise self.document.error(at, text)
                places[case.case_id] = at
            rows.append(row)
        return Suite(name=name, about=suite.about, rows=tuple(rows))

    def _rows(self, name: str, suite: _Suite) -> Iterator[tuple[At, SuiteRow]]:
        """Yield every row with its place: all rows of the first projection, then of the next, as tables have them."""
        sets = [self._projections(("suites", name, "rows", index), suite, row) for index, row in enumerate(suite.rows)]
        for projection in dict.fromkeys(projection for one in sets for projection in one.sizes):
            for index, (row, projections) in enumerate(zip(suite.rows, sets, strict=True)):
                if projection in projections.sizes:
                    at = ("suites", name, "rows", index)
                    for shape in self._product(at, suite, row, projection, projections):
                        yield at, self._suite_row(at, suite, row, shape)

    def _projections(self, at: At, suite: _Suite, row: _Row) -> _Projections:
        key = row.projections or suite.projections
        if key is None:
            raise self.document.error(at, "projections is missing, here or in the suite")
        if key not in self.file.projections:
            at = (*at, "projections") if row.projections else (*at[:2], "projections")
            raise self.document.error(at, f"{UnknownName('projections', key, tuple(self.file.projections))}")
        return self.file.projections[key]

    def _product(self, at: At, suite: _Suite, row: _Row, projection: str, projections: _Projections) -> Iterator[Shape]:
        dims = projections.sizes[projection]
        sources = dict.fromkeys((row.source or suite.source, projections.source))
        for E in row.E or (None,):
            for M in row.M or (None,):
                for kind_index, kind in enumerate(row.kinds):
                    for seed in row.seeds or (None,):
                        place = (*at, "kinds", kind_index)
                        drawn = self._draw(place, kind, E, M, seed)
                        yield Shape(
                            name=_name(row.model, projection, drawn.group_sizes, self._label(kind), seed),
                            row_class=self._row_class(at, suite, row),
                            N=dims.N,
                            K=dims.K,
                            group_sizes=drawn.group_sizes,
                            distribution=drawn.words,
                            source="; N, K: ".join(sources),
                        )

    def _draw(self, at: At, kind: str, E: int | None, M: int | None, seed: int | None) -> distributions.Drawn:
        if kind not in self.file.kinds:
            raise self.document.error(at, f"{UnknownName('kind', kind, tuple(self.file.kinds))}")
        rule = self.rules[kind]
        if seed is not None:
            if "seed" not in type(rule).model_fields:
                raise self.document.error((*at[:-2], "seeds"), f"seeds needs a kind with a seed; {kind!r} has none")
            rule = rule.model_copy(update={"seed": seed})
        try:
            return distributions.draw(rule, E=E, M=M, ascending=self.file.kinds[kind].ascending)
        except ShapesError as error:
            raise self.document.error(at, f"kind {kind!r}: {error}") from None

    def _label(self, kind: str) -> str:
        label = self.file.kinds[kind].label
        return kind if label is None else label

    def _row_class(self, at: At, suite: _Suite, row: _Row) -> str:
        row_class = row.row_class or suite.row_class
        if row_class is None:
            raise self.document.error(at, "row_class is missing, here or in the suite")
        return row_class

    def _suite_row(self, at: At, suite: _Suite, row: _Row, shape: Shape) -> SuiteRow:
        ops = row.ops or suite.ops
        if ops is None:
            raise self.document.error(at, "ops is missing, here or in the suite")
        if row.out_dtype == "fp32" and ops != ("dW",):
            text = f"out_dtype fp32 needs ops [dW], got [{', '.join(ops)}]"
            raise self.document.error((*at, "out_dtype"), text)
        if len(set(ops)) != len(ops):
            at = (*at, "ops") if row.ops else (*at[:2], "ops")
            raise self.document.error(at, f"ops must name each operation once, got [{', '.join(ops)}]")
        return SuiteRow(shape=shape, ops=tuple(op for op in OPS if op in ops), out_dtype=row.out_dtype)


def _name(model: str | None, projection: str, group_sizes: tuple[int, ...], label: str, seed: int | None) -> str:
    parts = (model, projection, f"E{len(group_sizes)}", f"M{sum(group_sizes)}", label)
    return " ".join(part for part in (*parts, None if seed is None else f"s{seed}") if part)
