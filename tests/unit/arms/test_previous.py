"""The arms of another revision: its answers, what it lacks, and its values."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness import arms, previous
from harness.arms._previous import NOT_GIVEN, PreviousArm
from harness.operands import make_operands
from tests import tiny_kernels
from tests.bench import fp64

NAMES = ("previous_det", "previous_nondet")
CPU = torch.device("cpu")
GEMM, REGISTRY = tiny_kernels.FILES["grouped_gemm/__init__.py"], tiny_kernels.FILES["registry.py"]
RAISES = f"{REGISTRY}\ndef why_not(problem, variant):\n    raise SystemExit('bye')\n"


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Return a function that gives an arm of a tiny revision with changed files."""
    open_ones = []

    def give(name, changes=None):
        context = previous.opened(str(tiny_kernels.write(tmp_path, changes)), top=Path("/"))
        open_ones.append(context)
        return arms.load(name).of(context.__enter__())

    yield give
    for context in open_ones:
        context.__exit__(None, None, None)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_revision_the_reason_names_the_option(name, new_case, new_machine):
    arm = arms.load(name)

    assert arm.why_not(new_case(), new_machine()) == NOT_GIVEN
    with pytest.raises(RuntimeError, match="--previous"):
        arm.prepare(new_case(), make_operands(new_case(), seed=0, device=CPU))


@pytest.mark.parametrize("name", NAMES)
def test_with_one_its_note_names_it_and_the_arm_stays_itself(name, opened):
    arm = opened(name)

    assert arm.info == replace(
        arms.load(name).info, note=f"cake_kernels of revision unknown, {arms.load(name).info.note}"
    )
    assert arms.load(name).kernels is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", ["fwd", "dX"])
def test_what_its_registry_can_do_is_computed_by_its_own_function(name, op, opened, new_case, new_machine):
    case = new_case(op, (3, 0, 5))
    operands = make_operands(case, seed=0, device=CPU)
    arm = opened(name)

    assert arm.why_not(case, new_machine()) is None
    prepared = arm.prepare(case, operands)
    output = prepared.launch()

    assert output is prepared.out
    assert prepared.launch.func.__module__ == "cake_kernels_previous.grouped_gemm"
    assert prepared.launch.keywords["deterministic"] is (name == "previous_det")
    torch.testing.assert_close(output, fp64(case, operands).to(torch.bfloat16), rtol=0, atol=0)


@pytest.mark.parametrize("out_dtype", ["bf16", "fp32"])
def test_the_weight_gradient_is_asked_for_in_the_cases_type(out_dtype, opened, new_case):
    case = new_case("dW", (3, 0, 5), out_dtype=out_dtype)
    operands = make_operands(case, seed=0, device=CPU)
    prepared = opened("previous_det").prepare(case, operands)

    output = prepared.launch()

    assert output.dtype == prepared.launch.keywords["out_dtype"]
    torch.testing.assert_close(output, fp64(case, operands).to(output.dtype), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"registry.py": None, "grouped_gemm/__init__.py": ""},
            "ModuleNotFoundError: No module named 'cake_kernels_previous.registry'",
        ),
        ({"registry.py": ""}, "AttributeError: module 'cake_kernels_previous.registry' has no attribute 'why_not'"),
        ({"registry.py": RAISES}, "SystemExit: bye"),
        ({"registry.py": REGISTRY.replace("E: int", "experts: int")}, "got an unexpected keyword argument 'E'"),
        ({"grouped_gemm/__init__.py": "def dgrad(): ..."}, "has no attribute 'forward'"),
        (
            {"grouped_gemm/__init__.py": GEMM.replace("out, deterministic=True", "out")},
            "TypeError: got an unexpected keyword argument 'deterministic'",
        ),
        (
            {"grouped_gemm/__init__.py": GEMM.replace("x, w, offs, *", "x, w, offs, sizes, *")},
            "TypeError: missing a required argument: 'sizes'",
        ),
    ],
)
def test_what_a_revision_lacks_is_the_reason(changes, reason, opened, new_case, new_machine):
    said = opened("previous_det", changes).why_not(new_case(), new_machine())

    assert said.startswith("revision unknown: ")
    assert reason in said


def test_its_registrys_own_reason_stands_with_the_revision(opened, new_case, new_machine):
    said = opened("previous_nondet").why_not(new_case("dW"), new_machine())

    assert said == "revision unknown: no program for wgrad"


def test_both_variants_are_ours_and_of_another_revision():
    loaded = [arms.load(name) for name in NAMES]

    assert all(isinstance(arm, PreviousArm) and arm.info.is_cake for arm in loaded)
    assert [arm.variant for arm in loaded] == ["det", "nondet"]


FACADE = """
import torch


def grouped_mm(x, w, offs, *, deterministic=True, backend="auto"):
    sizes = [end - start for start, end in zip([0, *offs.tolist()], offs.tolist())]
    CALLS.append((deterministic, backend))
    return torch.cat([rows @ weight.t() for rows, weight in zip(x.split(sizes), w.unbind())])


CALLS = []
"""
ALL_THREE = {"registry.py": REGISTRY.replace("STEMS = {", 'STEMS = {"wgrad": "", '), "facade/__init__.py": FACADE}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", ["ckpt", "ckpt ES"])
def test_a_step_is_computed_by_its_own_grouped_mm(name, op, opened, new_case, new_machine):
    case = new_case(op, (3, 0, 5))
    operands = make_operands(case, seed=0, device=CPU)
    arm = opened(name, ALL_THREE)

    assert arm.why_not(case, new_machine()) is None
    outputs = arm.prepare(case, operands).launch()

    calls = arm.kernels.module("facade").CALLS
    assert calls == [(name == "previous_det", "auto")] * 2  # forward, and again in backward
    for product, output in zip(case.products, outputs, strict=True):
        torch.testing.assert_close(output.double(), fp64(product, operands), rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "no program for wgrad"),
        (ALL_THREE | {"facade/__init__.py": None}, "No module named 'cake_kernels_previous.facade'"),
        (ALL_THREE | {"facade/__init__.py": ""}, "has no attribute 'grouped_mm'"),
        (
            ALL_THREE | {"facade/__init__.py": FACADE.replace(', backend="auto"', "")},
            "got an unexpected keyword argument 'backend'",
        ),
    ],
    ids=["a product without a program", "no facade", "no grouped_mm", "another signature"],
)
def test_what_a_revision_lacks_for_a_step_is_the_reason(changes, reason, opened, new_case, new_machine):
    said = opened("previous_det", changes).why_not(new_case("ckpt ES"), new_machine())

    assert said.startswith("revision unknown: ")
    assert reason in said
