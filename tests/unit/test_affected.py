"""Which rows run another program: a program's fingerprint, file by file, and what becomes of rows."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli._affected import Compared, compare, fingerprint, keep_affected
from harness.errors import NothingMeasured
from harness.kernels import Kernels
from harness.model.case import Case
from tests import tiny_kernels
from tests.bench import small_case
from tests.tiny_kernels import FILES

Sides = Callable[..., tuple[Kernels, Kernels]]

FOLDER = Path("/package")
BUILD = SimpleNamespace(
    name="fwd_128", source=FOLDER / "cuda" / "fwd.cu", defines={"TILE_M": 128}, symbol="fwd_tiny", smem_bytes=1024
)
PROGRAM = FILES["grouped_gemm/programs/fwd_tiny.py"]
LAUNCH = FILES["launch.py"]
CASES = (small_case("fwd"), small_case("fwd", sizes=(1, 1), name="less"), small_case("dX"), small_case("dW"))


def of_fwd(changes: dict[str, str | None] | None = None, **build: object) -> str:
    """Return the fingerprint of the tiny forward program in a tree with changed files and build."""
    files = {name: text.encode() for name, text in {**FILES, **(changes or {})}.items() if text is not None}
    program = SimpleNamespace(stem="fwd_tiny", builds=lambda: (SimpleNamespace(**{**vars(BUILD), **build}),))
    return fingerprint(program, FOLDER, files)


@pytest.mark.parametrize(
    "changes",
    [
        {"cuda/fwd.cu": f"{FILES['cuda/fwd.cu']}// a word more\n"},
        {"cuda/ptx/add.cuh": "// adds two\n"},
        {"launch.py": '"""Launches."""\n\nGRID = 264\n'},
        {"registry.py": f"{FILES['registry.py']}\nSTEMS['fwd'] = 'fwd_tiny'\n"},
        {"grouped_gemm/__init__.py": f"{FILES['grouped_gemm/__init__.py']}\nCALLS = 0\n"},
        {"grouped_gemm/programs/fwd_tiny.py": f"{PROGRAM}\nTILES = 3\n"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_file_that_a_program_reaches_changes_its_fingerprint(changes: dict[str, str | None]) -> None:
    assert of_fwd(changes) != of_fwd()


@pytest.mark.parametrize(
    "changes",
    [
        {"cuda/dgrad.cu": "void dgrad_tiny(int) {}\n"},
        {"cuda/unused.cuh": "// used by nobody\n"},
        {"grouped_gemm/programs/dgrad_tiny.py": "PROGRAM = None\n"},
        {"__init__.py": "__all__ = []\n"},
        {"NOTES.md": "measured"},
        {"launch.py": '"""Launches a grid."""\n# One a multiprocessor.\n\nGRID = 132\n"""Blocks."""\n'},
    ],
    ids=["another source", "unused", "another program", "package", "notes", "words in Python"],
)
def test_what_it_does_not_reach_and_words_do_not(changes: dict[str, str | None]) -> None:
    assert of_fwd(changes) == of_fwd()


@pytest.mark.parametrize(
    "build", [{"name": "fwd_256"}, {"defines": {"TILE_M": 256}}, {"symbol": "fwd"}, {"smem_bytes": 0}, {"defines": {}}]
)
def test_every_part_of_a_build_is_in_it(build: dict[str, object]) -> None:
    assert of_fwd(**build) != of_fwd()


def test_the_order_of_macros_and_the_place_of_the_package_are_not() -> None:
    files = {name: text.encode() for name, text in FILES.items() if text is not None}
    moved = SimpleNamespace(**{**vars(BUILD), "source": Path("/elsewhere/cuda/fwd.cu"), "defines": {"B": 1, "A": 2}})
    program = SimpleNamespace(stem="fwd_tiny", builds=lambda: (moved,))

    assert fingerprint(program, Path("/elsewhere"), files) == of_fwd(defines={"A": 2, "B": 1})


def test_headers_are_found_beside_the_includer_and_below_any_folder_of_the_package() -> None:
    direct = {"cuda/fwd.cu": '#include "near.cuh"\n', "cuda/near.cuh": "  #  include <ptx/add.cuh>\n"}

    assert of_fwd(direct) != of_fwd({**direct, "cuda/ptx/add.cuh": "// other\n"})
    assert of_fwd({"cuda/fwd.cu": "#include <cstdint>\n"}) != of_fwd({"cuda/fwd.cu": "#include <cstddef>\n"})
    # Only whole names match: an include of add.cuh is not one of cuda/ptx/readd.cuh.
    also = {"cuda/ptx/readd.cuh": "// 1\n", "cuda/fwd.cu": '#include "add.cuh"\n'}
    assert of_fwd(also) == of_fwd({**also, "cuda/ptx/readd.cuh": "// 2\n"})


def test_imports_that_go_round_in_circles_end() -> None:
    circle = {"launch.py": "from . import other\nGRID = 1\n", "other.py": "from .launch import GRID\n"}

    assert of_fwd(circle) != of_fwd({**circle, "other.py": "from .launch import GRID as SIZE\n"})


@given(st.sampled_from(sorted(FILES)), st.text(alphabet="ab \n", max_size=8))
def test_a_comment_at_the_end_of_a_file_counts_only_in_what_is_compiled(path: str, words: str) -> None:
    comment = "".join(f"\n# {line}" for line in words.splitlines() or [words])
    changed = of_fwd({path: f"{FILES[path]}{comment}"}) != of_fwd()

    assert changed == (path in ("cuda/fwd.cu", "cuda/ptx/add.cuh"))


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sides]:
    """Return a function that gives two tiny revisions with changed files: those of the previous, of the current one."""

    def make(before: dict[str, str | None], now: dict[str, str | None] | None = None) -> tuple[Kernels, Kernels]:
        for name, files in (("tiny_now", now), ("tiny_before", before)):
            tiny_kernels.write(tmp_path, files, package=name)
        return tiny_kernels.kernels(tmp_path, "tiny_now"), tiny_kernels.kernels(tmp_path, "tiny_before")

    monkeypatch.syspath_prepend(tmp_path)
    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tiny_now", "tiny_before")]:
        del sys.modules[name]


def names(cases: tuple[Case, ...]) -> list[str]:
    return [case.case_id for case in cases]


def test_rows_of_a_changed_program_are_affected_those_of_the_same_one_are_controls(sides: Sides) -> None:
    now, before = sides({"cuda/dgrad.cu": "void dgrad_tiny(int) {}\n"})

    compared = compare(CASES, ["det"], "sm_90a", now, before)

    assert names(compared.affected) == ["dX tiny"]
    assert names(compared.controls) == ["fwd tiny", "fwd less"]
    assert compared.previous is before


@pytest.mark.parametrize(
    "registry",
    [
        None,
        "",
        FILES["registry.py"].replace('"fwd": "fwd_tiny", ', ""),  # type: ignore[union-attr]
        FILES["registry.py"].replace(".PROGRAM", ".builds"),  # type: ignore[union-attr]
        "raise SystemExit",
    ],
    ids=["no registry", "empty", "no such program", "a program that does not say what it compiles", "asks to leave"],
)
def test_what_the_previous_side_lacks_is_affected(sides: Sides, registry: str | None) -> None:
    now, before = sides({"registry.py": registry})

    assert "fwd tiny" in names(compare(CASES, ["det"], "sm_90a", now, before).affected)


def test_what_neither_side_can_tell_is_affected(sides: Sides) -> None:
    mute = {"registry.py": (FILES["registry.py"] or "").replace(".PROGRAM", ".builds")}

    assert "fwd tiny" in names(compare(CASES, ["det"], "sm_90a", *sides(mute, mute)).affected)


def test_what_neither_side_does_is_neither(sides: Sides) -> None:
    now, before = sides({})
    step = replace(small_case("fwd"), op="ckpt")

    compared = compare((*CASES, step), ["det", "nondet"], "sm_90a", now, before)

    assert names(compared.affected) == []
    assert names(compared.controls) == ["fwd tiny", "fwd less", "dX tiny"]


STEP = replace(small_case("fwd"), op="ckpt ES")
GEMM = FILES["grouped_gemm/__init__.py"]
WITH_STEPS = {
    "registry.py": (FILES["registry.py"] or "").replace("STEMS = {", 'STEMS = {"wgrad": "wgrad_tiny", '),
    "grouped_gemm/programs/wgrad_tiny.py": (PROGRAM or "").replace("fwd_", "wgrad_").replace("fwd.cu", "wgrad.cu"),
    "cuda/wgrad.cu": "void wgrad_tiny() {}\n",
    "facade/__init__.py": "from .autograd import multiply\n",
    "facade/autograd.py": "from ..launch import GRID\n",
}


def test_a_step_runs_the_programs_of_its_three_products_by_grouped_mm(sides: Sides) -> None:
    compared = compare([STEP], ["det"], "sm_90a", *sides(WITH_STEPS, WITH_STEPS))

    assert (names(compared.affected), names(compared.controls)) == ([], ["ckpt ES tiny"])


@pytest.mark.parametrize(
    "changes",
    [
        {"cuda/fwd.cu": "void fwd_tiny(int) {}\n"},
        {"cuda/dgrad.cu": "void dgrad_tiny(int) {}\n"},
        {"cuda/wgrad.cu": "void wgrad_tiny(int) {}\n"},
        {"facade/autograd.py": "GRID = 2\n"},
        {"facade/__init__.py": None},
    ],
    ids=["forward", "data gradient", "weight gradient", "autograd", "no grouped_mm"],
)
def test_a_step_is_affected_by_what_any_of_its_launches_reaches(sides: Sides, changes: dict[str, str | None]) -> None:
    compared = compare([STEP], ["det"], "sm_90a", *sides({**WITH_STEPS, **changes}, WITH_STEPS))

    assert (names(compared.affected), names(compared.controls)) == (["ckpt ES tiny"], [])


def test_a_step_is_not_affected_by_the_call_of_a_single_product(sides: Sides) -> None:
    other = {**WITH_STEPS, "grouped_gemm/__init__.py": f"{GEMM}\nCALLS = 0\n"}

    compared = compare([STEP, small_case("fwd")], ["det"], "sm_90a", *sides(other, WITH_STEPS))

    assert (names(compared.affected), names(compared.controls)) == (["fwd tiny"], ["ckpt ES tiny"])


def compared(affected: str, controls: str) -> Compared:
    here = {case.case_id: case for case in CASES}
    kernels = Kernels(package="p", revision="1a2b (git)", folder=FOLDER, sources={})
    chosen = ([here[name] for name in text.split(", ") if name] for text in (affected, controls))
    return Compared(previous=kernels, **dict(zip(("affected", "controls"), map(tuple, chosen), strict=True)))


def test_of_each_operation_the_control_with_the_fewest_flops_stays() -> None:
    kept = keep_affected(CASES, compared("dW tiny", "fwd tiny, fwd less, dX tiny"))

    assert names(kept) == ["fwd less", "dX tiny", "dW tiny"]


def test_affected_rows_stay_where_no_row_is_a_control() -> None:
    assert names(keep_affected(CASES, compared("fwd tiny, dX tiny", ""))) == ["fwd tiny", "dX tiny"]


def test_without_an_affected_row_there_is_nothing_to_measure() -> None:
    with pytest.raises(NothingMeasured) as caught:
        keep_affected(CASES, compared("", "fwd tiny, dX tiny"))

    assert str(caught.value) == (
        "--only-affected: no row is affected by what changed since revision 1a2b (git): of 4 rows 2 run the same"
        " program on both sides, 2 have none on either; without --only-affected all of them are measured"
    )
