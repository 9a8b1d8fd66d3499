import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cake_kernels import registry
from cake_kernels.errors import NoProgramError, ProgramFileError
from cake_kernels.registry import Problem, Program

FWD = Problem(op="fwd", out_dtype="bf16", arch="sm_90a", M=128, N=64, K=64, E=2)

PROGRAM_FILE = """
from ...registry import Problem, Program

def _refuse(problem: Problem) -> str | None:
    return None if problem.K % 64 == 0 else f"needs K a multiple of 64, got {problem.K}"

PROGRAM = Program(
    stem="STEM",
    op="fwd",
    variant="det",
    arch="sm_90a",
    out_dtype="bf16",
    refuse=_refuse,
    route=lambda *args, **kwargs: None,
    builds=tuple,
)
"""


@pytest.fixture
def folder(tmp_path):
    """A folder of programs whose modules are forgotten afterwards."""
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if ".grouped_gemm.programs." in name:
            del sys.modules[name]


def program(**changes):
    base = Program(
        stem="p",
        op="fwd",
        variant="det",
        arch="sm_90a",
        out_dtype="bf16",
        refuse=lambda problem: None,
        route=lambda *args, **kwargs: None,
        builds=tuple,
    )
    return replace(base, **changes)


def test_this_version_has_the_programs_of_sm_90a_in_both_variants():
    assert [(p.stem, p.op, p.variant, p.arch, p.out_dtype) for p in registry.programs()] == [
        ("dgrad_det_sm90a", "dgrad", "det", "sm_90a", "bf16"),
        ("dgrad_nondet_sm90a", "dgrad", "nondet", "sm_90a", "bf16"),
        ("fwd_det_sm90a", "fwd", "det", "sm_90a", "bf16"),
        ("fwd_nondet_sm90a", "fwd", "nondet", "sm_90a", "bf16"),
        ("wgrad_bf16_det_sm90a", "wgrad", "det", "sm_90a", "bf16"),
        ("wgrad_bf16_nondet_sm90a", "wgrad", "nondet", "sm_90a", "bf16"),
        ("wgrad_fp32_det_sm90a", "wgrad", "det", "sm_90a", "fp32"),
        ("wgrad_fp32_nondet_sm90a", "wgrad", "nondet", "sm_90a", "fp32"),
    ]


@pytest.mark.parametrize(
    ("variant", "changed", "stem"),
    [
        ("det", {}, "fwd_det_sm90a"),
        ("nondet", {}, "fwd_nondet_sm90a"),
        ("nondet", {"op": "dgrad"}, "dgrad_nondet_sm90a"),
        ("det", {"op": "wgrad", "accumulate": True}, "wgrad_bf16_det_sm90a"),
        ("nondet", {"op": "wgrad", "accumulate": True}, "wgrad_bf16_nondet_sm90a"),
        ("nondet", {"op": "wgrad", "out_dtype": "fp32"}, "wgrad_fp32_nondet_sm90a"),
    ],
)
def test_a_problem_reaches_the_program_of_its_variant(variant, changed, stem):
    assert registry.find(FWD._replace(**changed), variant).stem == stem


@pytest.mark.parametrize(
    ("problem", "variant", "message"),
    [
        (FWD, "det", "no program for fwd (det, bf16 out) on sm_90a: this version of cake_kernels has none"),
        (
            FWD._replace(op="wgrad", out_dtype="fp32", arch="sm_80"),
            "nondet",
            "no program for wgrad (nondet, fp32 out) on sm_80: this version of cake_kernels has none",
        ),
    ],
)
def test_without_programs_the_reason_says_so(problem, variant, message):
    assert registry.why_not(problem, variant, ()) == message


def test_find_raises_the_reason_and_points_to_the_reference():
    with pytest.raises(NoProgramError) as caught:
        registry.find(FWD, "det", ())

    assert str(caught.value) == (
        "no program for fwd (det, bf16 out) on sm_90a: this version of cake_kernels has none;"
        " the executable contract, slow and on any device, is cake_kernels.grouped_gemm.reference"
    )


def test_every_program_gives_its_own_reason():
    among = (
        program(stem="a", op="dgrad"),
        program(stem="b", arch="sm_100a"),
        program(stem="c", out_dtype="fp32"),
        program(stem="d", variant="nondet"),
        program(stem="e", refuse=lambda problem: f"needs K a multiple of 128, got {problem.K}"),
    )

    assert registry.why_not(FWD, "det", among) == (
        "no program for fwd (det, bf16 out) on sm_90a: a computes dgrad; b is compiled for sm_100a; c writes fp32;"
        " d is nondet; e needs K a multiple of 128, got 64"
    )


def test_the_first_program_that_can_is_found():
    among = (program(stem="a", arch="sm_80"), program(stem="b"), program(stem="c"))

    assert registry.why_not(FWD, "det", among) is None
    assert registry.find(FWD, "det", among).stem == "b"


def test_a_deterministic_program_never_stands_in_for_the_other_variant():
    with pytest.raises(NoProgramError, match="p is det"):
        registry.find(FWD, "nondet", (program(),))


def test_a_program_is_found_from_its_file(folder):
    (folder / "fwd_from_file.py").write_text(PROGRAM_FILE.replace("STEM", "fwd_from_file"))
    (folder / "_shared.py").write_text("raise RuntimeError('never imported')")

    (found,) = registry.programs(folder)

    assert (found.stem, found.op, found.variant, found.arch, found.out_dtype) == (
        "fwd_from_file", "fwd", "det", "sm_90a", "bf16",
    )  # fmt: skip
    assert found.why_not(FWD) is None
    assert found.why_not(FWD._replace(K=72)) == "needs K a multiple of 64, got 72"


def test_a_thread_waits_for_a_program_that_another_one_loads(folder, monkeypatch):
    gate = SimpleNamespace(entered=threading.Event(), opened=threading.Event(), entries=[])
    monkeypatch.setitem(sys.modules, "gate_of_a_program", gate)
    wait = "import gate_of_a_program as gate\ngate.entries.append(1)\ngate.entered.set()\ngate.opened.wait(60)\n"
    (folder / "slow.py").write_text(wait + PROGRAM_FILE.replace("STEM", "slow"))

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(registry.programs, folder)
        assert gate.entered.wait(60)
        second = threads.submit(registry.programs, folder)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.1)  # it would have failed by now, or found a program that is not there yet
        gate.opened.set()

        assert first.result(60) == second.result(60)
    assert gate.entries == [1]


def test_a_program_file_that_fails_to_import_is_an_error_with_its_name(folder):
    (folder / "broken_program.py").write_text("import no_such_module_here")

    with pytest.raises(ProgramFileError) as caught:
        registry.programs(folder)

    assert str(caught.value) == (
        "program 'broken_program' fails to import: ModuleNotFoundError: No module named 'no_such_module_here'"
    )


def test_a_program_file_must_hold_a_program_of_its_stem(folder):
    (folder / "misnamed.py").write_text("PROGRAM = 3")

    with pytest.raises(ProgramFileError) as caught:
        registry.programs(folder)

    assert str(caught.value) == "program 'misnamed' must hold PROGRAM, a Program with that stem, got 3"


def test_programs_are_listed_without_importing_torch(folder):
    (folder / "listed.py").write_text(PROGRAM_FILE.replace("STEM", "listed"))
    code = (
        "import sys; from pathlib import Path; from cake_kernels import registry;"
        f"print(registry.programs(Path({str(folder)!r}))[0].stem, len(registry.programs()), 'torch' in sys.modules)"
    )

    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert listed.stdout == "listed 8 False\n"
