"""A tiny ``cake_kernels`` that computes on a CPU, written into a folder: what tests load as another revision."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.kernels import Kernels, read_sources

FILES: dict[str, str | None] = {
    "__init__.py": "",
    "registry.py": """
from dataclasses import dataclass
from importlib import import_module

STEMS = {"fwd": "fwd_tiny", "dgrad": "dgrad_tiny"}


@dataclass(frozen=True, kw_only=True)
class Problem:
    op: str
    out_dtype: str
    arch: str
    M: int
    N: int
    K: int
    E: int


def why_not(problem, variant):
    return None if problem.op in STEMS else f"no program for {problem.op}"


def find(problem, variant):
    return import_module(f"{__package__}.grouped_gemm.programs.{STEMS[problem.op]}").PROGRAM
""",
    "launch.py": '"""Launches."""\n\nGRID = 132\n',
    "grouped_gemm/__init__.py": """
from itertools import pairwise

from .. import registry


def forward(x, w, offs, *, out, deterministic=True):
    for rows, weight in zip(_rows(offs), w):
        out[rows] = (x[rows].double() @ weight.double().t()).to(out.dtype)
    return out


def dgrad(g, w, offs, *, out, deterministic=True):
    for rows, weight in zip(_rows(offs), w):
        out[rows] = (g[rows].double() @ weight.double()).to(out.dtype)
    return out


def wgrad(g, x, offs, *, out, out_dtype, deterministic=True):
    for expert, rows in enumerate(_rows(offs)):
        out[expert] = (g[rows].double().t() @ x[rows].double()).to(out.dtype)
    return out


def _rows(offs):
    return [slice(start, end) for start, end in pairwise([0, *offs.tolist()])]
""",
    "grouped_gemm/programs/__init__.py": "",
    "cuda/ptx/add.cuh": "// adds\n",
    "cuda/unused.cuh": "",
    "NOTES.md": "",
}

PROGRAM = """
from pathlib import Path
from types import SimpleNamespace


def _prepare():
    from ...launch import GRID

    return GRID


def builds():
    source = Path(__file__).parents[2] / "cuda" / "OP.cu"
    return (SimpleNamespace(name="OP_128", source=source, defines={"TILE_M": 128}, symbol="OP_tiny", smem_bytes=1024),)


PROGRAM = SimpleNamespace(stem="OP_tiny", builds=builds)
"""

FILES |= {f"grouped_gemm/programs/{op}_tiny.py": PROGRAM.replace("OP", op) for op in ("fwd", "dgrad")}
FILES |= {f"cuda/{op}.cu": f'#include "ptx/add.cuh"\nvoid {op}_tiny() {{}}\n' for op in ("fwd", "dgrad")}


def write(folder: Path, changes: Mapping[str, str | None] | None = None, *, package: str = "cake_kernels") -> Path:
    """Write the package with ``changes`` (path -> text, None for no such file) into ``folder``, and return that."""
    for name, text in {**FILES, **(changes or {})}.items():
        path = folder / package / name
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder


def kernels(folder: Path, package: str) -> Kernels:
    """Return the package that was written into ``folder``, a folder that Python imports from."""
    place = (folder / package).resolve()
    return Kernels(package=package, revision=package, folder=place, sources=read_sources(place))
