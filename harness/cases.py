"""Cases: suites crossed with operations, ad-hoc shapes from the command line, and filters. Pure functions."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence

from pydantic import ValidationError

from harness import distributions
from harness.distributions import Distribution
from harness.errors import ShapesError, UnknownName, UsageError
from harness.model.case import OPS, OUT_DTYPES, Case, matches
from harness.model.run import SuiteCount
from harness.model.shape import Shape
from harness.shapes import Shapes
from harness.strict import is_legible, value_text, violations

ADHOC = "adhoc"
"""Suite and row class of ad-hoc shapes."""

EXAMPLE = "E=8,M=65536,N=4096,K=7168,dist=lognormal:0.35"
_KEYS = ("E", "M", "N", "K", "dist", "ascending", "out", "name")


def suites(shapes: Shapes) -> tuple[str, ...]:
    """Return the names of all suites, in the file's order."""
    return tuple(suite.name for suite in shapes.suites)


def cases(shapes: Shapes, suite: str) -> tuple[Case, ...]:
    """Return the suite's cases: operation by operation in the order of tables, in each the suite's rows in order.

    Raises
    ------
    UnknownName
        There is no such suite.
    """
    rows = shapes.suite(suite).rows
    return tuple(
        Case(suite=suite, op=op, shape=row.shape, out_dtype=row.out_dtype)
        for op in OPS
        for row in rows
        if op in row.ops
    )


def suite_counts(shapes: Shapes, suite: str) -> tuple[SuiteCount, ...]:
    """Return how many rows the suite has in each operation and row class, before any filter."""
    counts = Counter((case.op, case.shape.row_class) for case in cases(shapes, suite))
    return tuple(
        SuiteCount(suite=suite, op=op, row_class=row_class, count=count) for (op, row_class), count in counts.items()
    )


def select(all_cases: Sequence[Case], *, case_globs: Sequence[str] = (), ops: Sequence[str] = ()) -> tuple[Case, ...]:
    """Return the cases that match one of ``case_globs`` and have one of ``ops``; an empty filter lets all pass.

    A glob matches the whole name (``gate_up E4*``) or the whole case_id (``dW gate_up E4*``), upper and lower case
    apart.

    Raises
    ------
    UnknownName
        One of ``ops`` is no operation.
    UsageError
        One of the operations or globs matches nothing, or a row stands twice.
    """
    _refuse_twins(all_cases)
    for op in ops:
        if op not in OPS:
            raise UnknownName("op", op, OPS)
        if all(case.op != op for case in all_cases):
            there = ", ".join(dict.fromkeys(case.op for case in all_cases)) or "none"
            raise UsageError(f"op {op!r} matches no row; the operations there are: {there}")
    chosen = tuple(case for case in all_cases if not ops or case.op in ops)
    for glob in case_globs:
        if not any(matches(case.case_id, glob) for case in chosen):
            raise UsageError(_no_match(glob, chosen, all_cases))
    return tuple(case for case in chosen if not case_globs or any(matches(case.case_id, glob) for glob in case_globs))


def adhoc(text: str, ops: Sequence[str] | None = None) -> tuple[Case, ...]:
    """Return the cases of a shape given as text: ``E=8,M=65536,N=4096,K=7168,dist=lognormal:0.35``.

    Parameters
    ----------
    text
        ``KEY=VALUE`` with commas between. E, M, N, K and ``dist`` are needed (a trace says E and M itself). ``dist``
        is a distribution, its first parameter after a colon; its other parameters are keys of their own (``seed=3``).
        ``ascending`` or ``ascending=true`` (short ``asc``) reverses the sizes, ``out=fp32`` gives an FP32 dW,
        ``name=`` names the row.
    ops
        Operations; by default fwd, dX and dW, or dW alone with ``out=fp32``.

    Raises
    ------
    UnknownName
        One of ``ops`` is no operation.
    ShapesError
        The text breaks a rule; the message holds the key, the rule, the value and an example.
    """
    for op in ops or ():
        if op not in OPS:
            raise UnknownName("op", op, OPS)
    try:
        return _adhoc(text, ops)
    except (ShapesError, UnknownName) as error:
        raise ShapesError(f"shape {text!r}: {error}; example: {EXAMPLE}") from None


def _adhoc(text: str, ops: Sequence[str] | None) -> tuple[Case, ...]:
    values = _key_values(text)
    for key in ("N", "K", "dist"):
        if key not in values:
            raise ShapesError(f"{key} is missing")
    # A trace says E and M itself; whether one is missing is for the distribution to say.
    E, M = (_integer(key, values[key]) if key in values else None for key in ("E", "M"))
    N, K = (_integer(key, values[key]) for key in ("N", "K"))
    rule = _distribution(values["dist"], {key: value for key, value in values.items() if key not in _KEYS})
    ascending = _one_of("ascending", values.get("ascending", "false"), ("true", "false")) == "true"
    out_dtype = _one_of("out", values.get("out", "bf16"), OUT_DTYPES)
    if not is_legible(values.get("name", "")):
        raise ShapesError(f"name must be one that can be seen, without control characters, got {values['name']!r}")
    drawn = distributions.draw(rule, E=E, M=M, ascending=ascending)
    shape = Shape(
        name=values.get("name") or _adhoc_name(drawn.group_sizes, N, K, rule, ascending=ascending),
        row_class=ADHOC,
        N=N,
        K=K,
        group_sizes=drawn.group_sizes,
        distribution=drawn.words,
        source="ad-hoc shape",
    )
    chosen = ops or (("dW",) if out_dtype == "fp32" else ("fwd", "dX", "dW"))
    return tuple(Case(suite=ADHOC, op=op, shape=shape, out_dtype=out_dtype) for op in OPS if op in chosen)


def _key_values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        key = "ascending" if key == "asc" else key
        if key == "ascending" and not equals:
            value = "true"
        elif not key or not value:
            raise ShapesError(f"each part must be KEY=VALUE, got {part!r}")
        if key in values:
            raise ShapesError(f"{key} must stand once, got {values[key]!r} and {value!r}")
        values[key] = value
    return values


def _distribution(text: str, parameters: dict[str, str]) -> Distribution:
    name, colon, first = text.partition(":")
    sizes = distributions.load(name)
    fields = list(sizes.model_fields)
    for key in parameters:
        if key not in fields:
            raise ShapesError(f"unknown key {key!r}; known with dist={name}: {', '.join((*_KEYS, *fields))}")
    if colon and not fields:
        raise ShapesError(f"dist={name} takes no value after a colon, got {first!r}")
    if colon and fields[0] in parameters:
        raise ShapesError(f"{fields[0]} must stand once, got {first!r} in dist and {parameters[fields[0]]!r}")
    given = {fields[0]: first, **parameters} if colon else parameters
    typed = {key: _typed(value, sizes.model_fields[key].annotation) for key, value in given.items()}
    try:
        return sizes.model_validate(typed)
    except ValidationError as error:
        raise ShapesError(f"dist={name}: {violations(error)[0].text}") from None


def _typed(text: str, annotation: object) -> object:
    """Return ``text`` as the number that a parameter wants; if it is none, as it is, for the parameter to refuse."""
    if annotation is int and re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if annotation is float and re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", text):
        return float(text)
    return text


def _integer(key: str, text: str) -> int:
    least = 0 if key == "M" else 1
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
        raise ShapesError(f"{key} must be an integer >= {least}, got {value_text(text)}")
    return int(text)


def _one_of(key: str, text: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise ShapesError(f"{key} must be {' or '.join(known)}, got {text!r}")
    return text


def _adhoc_name(group_sizes: tuple[int, ...], N: int, K: int, rule: Distribution, *, ascending: bool) -> str:
    """Return what tells the shape from others: a parameter at its default is left out, but for the first."""
    fields = list(type(rule).model_fields.items())
    others = [
        f"{key}{distributions.number_text(getattr(rule, key))}"
        for key, field in fields[1:]
        if getattr(rule, key) != field.default
    ]
    dims = f"E{len(group_sizes)} M{sum(group_sizes)} N{N} K{K}"
    return " ".join((dims, rule.short(), *(("asc",) if ascending else ()), *others))


def _refuse_twins(all_cases: Sequence[Case]) -> None:
    for (suite, case_id), count in Counter((case.suite, case.case_id) for case in all_cases).items():
        if count > 1:
            advice = "tell ad-hoc shapes apart with name=" if suite == ADHOC else "name each suite once"
            raise UsageError(f"the row {case_id!r} of {suite!r} must stand once, got {count}; {advice}")


def _no_match(glob: str, chosen: Sequence[Case], all_cases: Sequence[Case]) -> str:
    elsewhere = dict.fromkeys(case.op for case in all_cases if matches(case.case_id, glob))
    if elsewhere:
        return f"case {glob!r} matches no row of the chosen operations, only of: {', '.join(elsewhere)}"
    names = list(dict.fromkeys(name for case in chosen for name in (case.name, case.case_id)))
    close = difflib.get_close_matches(glob, names, n=3, cutoff=0.0)
    return f"case {glob!r} matches none of {len(chosen)} rows; close: {', '.join(map(repr, close)) or 'none'}"
