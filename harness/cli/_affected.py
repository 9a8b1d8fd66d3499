"""Which rows run another program of ours than a previous revision does; the rest, where there is one, are controls."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from harness.arms._cake import problem
from harness.errors import FOREIGN, NothingMeasured, first_line
from harness.kernels import Kernels
from harness.model.case import Case

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)

_CHOOSES = "grouped_gemm/__init__.py"
_CHOOSES_IN_STEPS = "facade/__init__.py"
_PROGRAM = "grouped_gemm/programs/{}.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The rows that our kernels do on either side, in the run's order; a row that neither side does is in none.

    Attributes
    ----------
    previous
        The other side.
    affected
        Its program differs in one of the variants, or one side has none.
    controls
        Both sides run the same program in every variant, so that their ratio shows what is not the program's.
    """

    previous: Kernels
    affected: tuple[Case, ...]
    controls: tuple[Case, ...]


def compare(
    cases: Sequence[Case], variants: Collection[str], arch: str, current: Kernels, previous: Kernels
) -> Compared:
    """Return what became of each of ``cases`` between the two sides, in ``variants`` on ``arch``."""
    affected, controls = [], []
    for case in cases:
        now, before = (
            [_program(kernels, case, variant, arch) for variant in variants] for kernels in (current, previous)
        )
        if now != before:
            affected.append(case)
        elif any(now):
            controls.append(case)
    return Compared(previous=previous, affected=tuple(affected), controls=tuple(controls))


def keep_affected(cases: Sequence[Case], compared: Compared) -> tuple[Case, ...]:
    """Return the affected rows, and of each operation the control with the fewest FLOPs, in the order of ``cases``.

    Raises
    ------
    NothingMeasured
        No row is affected.
    """
    if not compared.affected:
        neither = len(cases) - len(compared.controls)
        raise NothingMeasured(
            f"--only-affected: no row is affected by what changed since revision {compared.previous.revision}: of"
            f" {len(cases)} rows {len(compared.controls)} run the same program on both sides, {neither} have none on"
            " either; without --only-affected all of them are measured"
        )
    fewest: dict[str, Case] = {}
    for case in sorted(compared.controls, key=lambda case: case.flops):
        fewest.setdefault(case.op, case)
    kept = {*compared.affected, *fewest.values()}
    return tuple(case for case in cases if case in kept)


def _program(kernels: Kernels, case: Case, variant: str, arch: str) -> str | None:
    """Return the fingerprint of what would run, or None where there is no program: the arm says why in the row.

    That is a program, of a step those of its three products. What cannot be told (an old revision does not say what it
    compiles) counts as another program.
    """
    try:
        registry = kernels.module("registry")
        programs = [registry.find(problem(registry, product, arch), variant) for product in case.products]
    except FOREIGN:
        return None
    call = _CHOOSES_IN_STEPS if case.is_step else _CHOOSES
    try:
        return " ".join(fingerprint(program, kernels.folder, kernels.sources, call=call) for program in programs)
    except FOREIGN as error:
        return f"{kernels.package}: {first_line(error)}"


def fingerprint(program: Any, folder: Path, sources: Mapping[str, bytes], *, call: str = _CHOOSES) -> str:
    """Return the SHA-256 of what decides a program's result and speed, in hex; pure.

    In it are

    - each kernel that it may launch, a ``Build`` of its ``builds()``: name, path of the source, macros, symbol, shared
      memory;
    - every CUDA file that these sources reach by ``#include``, and they themselves, byte for byte;
    - every Python file that ``call`` (the file of the public call, which chooses) and the program's own file (which
      launches) reach by relative imports, and they themselves, without comments and docstrings.

    Not in it is what both sides share in one process: compiler, torch, driver. An ``#include`` is any file of the
    package whose path ends so, and an import counts wherever it stands, so that in doubt a program differs.

    Parameters
    ----------
    program
        A ``Program`` of that revision's registry.
    folder
        Of the package; sources of builds lie below it.
    sources
        Path below ``folder`` -> bytes.
    call
        Path below ``folder``; ``facade/__init__.py`` for a step, which calls ``grouped_mm``.
    """
    builds = [
        (b.name, b.source.resolve().relative_to(folder).as_posix(), sorted(b.defines.items()), b.symbol, b.smem_bytes)
        for b in program.builds()
    ]
    start = {call, _PROGRAM.format(program.stem), *(source for _, source, *_ in builds)}
    files = [(path, _content(path, sources[path])) for path in sorted(_reached(start, sources))]
    return sha256(json.dumps([builds, files]).encode()).hexdigest()


def _reached(start: Iterable[str], sources: Mapping[str, bytes]) -> set[str]:
    found: set[str] = set()
    left = list(start)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imports(path, sources) if path.endswith(".py") else _includes(path, sources)
    return found


def _includes(path: str, sources: Mapping[str, bytes]) -> list[str]:
    names = [name.decode() for name in _INCLUDE.findall(sources[path])]
    return [other for other in sources for name in names if f"/{other}".endswith(f"/{name}")]


def _imports(path: str, sources: Mapping[str, bytes]) -> list[str]:
    every = ([place for place in places if place in sources] for places in _places(path, sources[path]))
    return [found[0] for found in every if found]


@cache
def _places(path: str, data: bytes) -> tuple[tuple[str, ...], ...]:
    """Return where each name that a file imports relatively may lie: it is a module, else stands in the one named."""
    found = []
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = PurePosixPath(path).parents[node.level - 1].joinpath(*(node.module or "").split("."))
            modules = ((base / alias.name, base) for alias in node.names)
            found += [tuple(f"{m}{end}" for m in two for end in (".py", "/__init__.py")) for two in modules]
    return tuple(found)


def _content(path: str, data: bytes) -> str:
    return _code(data) if path.endswith(".py") else sha256(data).hexdigest()


@cache
def _code(data: bytes) -> str:
    """Hash what Python executes: the syntax tree without the strings that stand alone, among them docstrings."""
    return sha256(ast.dump(_WithoutText().visit(ast.parse(data))).encode()).hexdigest()


class _WithoutText(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node
