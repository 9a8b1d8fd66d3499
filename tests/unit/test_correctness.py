import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from harness.arms import Operands, Prepared
from harness.correctness import Verdict, accumulation_limit, check_arms, rel_l2_limit, together
from harness.model.case import STEPS, Case
from harness.model.run import Check
from harness.operands import make_operands
from tests.bench import FakeArm, fp64, small_case

OPS = [("fwd", "bf16"), ("dX", "bf16"), ("dW", "bf16"), ("dW", "fp32")]


def verdict(arm: FakeArm, op: str = "fwd", out_dtype: str = "bf16", sizes: tuple[int, ...] = (3, 0, 5)):  # type: ignore[no-untyped-def]
    case = small_case(op, out_dtype=out_dtype, sizes=sizes)
    operands = make_operands(case, seed=0, device=torch.device("cpu"))
    return check_arms(case, operands, {arm.name: arm.prepare(case, operands)}, seed=0)[arm.name]


@pytest.mark.parametrize("allocates", [False, True])
@pytest.mark.parametrize(("op", "out_dtype"), OPS)
def test_the_rounded_fp64_product_passes(op: str, out_dtype: str, allocates: bool) -> None:
    found = verdict(FakeArm("right", allocates=allocates), op, out_dtype)

    assert found.failure == ""
    assert found.check.rel_l2 < found.check.rel_l2_limit
    assert found.check.worst <= 1


@pytest.mark.parametrize(("op", "out_dtype"), OPS)
def test_an_unwritten_element_is_found(op: str, out_dtype: str) -> None:
    def leave(call: int, out: torch.Tensor) -> None:
        out.view(-1)[7] = math.nan  # what the poison leaves where nothing is written

    assert verdict(FakeArm("lazy", spoil=leave), op, out_dtype).failure == "left 1 elements unwritten or not a number"


def test_an_arm_that_writes_nothing_is_found_by_the_poison_in_its_output() -> None:
    case = small_case()
    operands = make_operands(case, seed=0, device=torch.device("cpu"))
    prepared = FakeArm("x").prepare(case, operands)
    idle = type(prepared)(launch=lambda: prepared.out, out=prepared.out)

    assert (
        check_arms(case, operands, {"idle": idle}, seed=0)["idle"].failure
        == "left 128 elements unwritten or not a number"
    )


@pytest.mark.parametrize(("op", "out_dtype"), OPS)
def test_one_element_off_by_three_roundings_is_found_in_a_large_result(op: str, out_dtype: str) -> None:
    def nudge(call: int, out: torch.Tensor) -> None:
        flat = out.view(-1)
        index = int(flat.abs().argmax())
        flat[index] *= 1 + 3 * (2**-8 if out_dtype == "bf16" else 2**-16)

    failure = verdict(FakeArm("off", spoil=nudge), op, out_dtype, sizes=(300, 0, 500)).failure

    assert failure.startswith("wrong: ")


def test_a_nonzero_gradient_of_an_empty_expert_is_found() -> None:
    def fill(call: int, out: torch.Tensor) -> None:
        out[1, 0, 0] = 1e-30

    assert "an element is off" in verdict(FakeArm("dirty", spoil=fill), "dW").failure


def test_what_an_arm_raises_is_its_reason() -> None:
    def explode(call: int, out: torch.Tensor) -> None:
        raise ValueError("no such plan\nand more")

    assert verdict(FakeArm("broken", spoil=explode)).failure == "raised ValueError: no such plan"


def test_an_output_of_the_wrong_shape_is_refused() -> None:
    case = small_case()
    operands = make_operands(case, seed=0, device=torch.device("cpu"))
    prepared = FakeArm("x", allocates=True).prepare(case, operands)
    cut = type(prepared)(launch=lambda: prepared.launch()[:-1], out=None)

    failure = check_arms(case, operands, {"cut": cut}, seed=0)["cut"].failure

    assert failure == "raised MeasurementError: output must be torch.bfloat16 [8, 16], got torch.bfloat16 [7, 16]"


def test_another_tensor_than_the_given_output_is_refused() -> None:
    case = small_case()
    operands = make_operands(case, seed=0, device=torch.device("cpu"))
    prepared = FakeArm("x").prepare(case, operands)
    copies = type(prepared)(launch=lambda: prepared.launch().clone(), out=prepared.out)

    assert "another tensor" in check_arms(case, operands, {"copies": copies}, seed=0)["copies"].failure


@pytest.mark.parametrize("op", ["fwd", "dX", "dW"])
def test_rows_past_the_last_offset_count_neither_in_flops_nor_in_bytes_nor_in_the_comparison(op: str) -> None:
    # pytorch/pytorch#172439, #154557, #193633: of rows past offs[-1] nothing is read, and what they hold is nobody's.
    case, tail = small_case(op, sizes=(162, 0, 2577, 446, 0, 83)), 40
    exact = make_operands(case, seed=0, device=torch.device("cpu"))

    def longer(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else torch.cat([tensor, torch.full((tail, tensor.shape[1]), math.nan).bfloat16()])

    operands = replace(exact, x=longer(exact.x), g=longer(exact.g))
    right = FakeArm("right").prepare(case, exact).launch()

    (found,) = check_arms(case, operands, {"a": Prepared(launch=right.clone, out=None)}, seed=0).values()

    # N 16, K 8; sizes sum to 3268 in four live groups.
    x, w, g = 2 * 3268 * 8, 2 * 16 * 8, 2 * 3268 * 16
    assert case.flops == 2 * 3268 * 16 * 8
    assert case.min_bytes == {"fwd": x + 4 * w + g, "dX": g + 4 * w + x, "dW": g + x + 6 * w}[op]
    assert found.failure == ""
    assert found.check == check_arms(case, exact, {"a": Prepared(launch=right.clone, out=None)}, seed=0)["a"].check


def test_all_groups_empty_leaves_nothing_to_compare_but_zeros() -> None:
    assert verdict(FakeArm("right"), "fwd", sizes=(0, 0)).failure == ""
    assert verdict(FakeArm("right"), "dW", sizes=(0, 0)).failure == ""


def test_limits_follow_from_dtype_and_length() -> None:
    assert accumulation_limit(6144) == pytest.approx(385 * 2**-23)
    # 128 elements of 8 products; 384 of at most 5.
    assert rel_l2_limit(small_case("fwd")) == pytest.approx(
        2**-8 / math.sqrt(3) * (1 + 4 / math.sqrt(128)) + 1.5 * 2**-23
    )
    assert rel_l2_limit(small_case("dW", out_dtype="fp32")) == pytest.approx(
        2**-24 / math.sqrt(3) * (1 + 4 / math.sqrt(384)) + (1 + 5 / 16) * 2**-23
    )
    assert rel_l2_limit(small_case("fwd", sizes=(0,))) == 2**-8 + 1.5 * 2**-23


def checked_twice(arms: dict[str, Prepared], case: Case, operands: Operands) -> list[dict[str, str]]:
    return [{n: v.failure for n, v in check_arms(case, operands, arms, seed=0).items()} for _ in range(2)]


def test_an_arm_that_hands_out_its_first_result_again_is_found_by_the_second_check() -> None:
    case = small_case()
    operands = make_operands(case, seed=0, device=torch.device("cpu"))
    kept = FakeArm("x").prepare(case, operands).launch().clone()

    first, second = checked_twice({"cached": Prepared(launch=lambda: kept, out=None)}, case, operands)

    assert first == {"cached": ""}
    assert second == {"cached": "left 128 elements unwritten or not a number"}


def test_outputs_that_share_memory_are_refused() -> None:
    case = small_case()
    operands = make_operands(case, seed=0, device=torch.device("cpu"))
    right = FakeArm("x").prepare(case, operands)
    idle = Prepared(launch=lambda: right.out, out=right.out)

    (first, _) = checked_twice({"works": right, "idle": idle}, case, operands)

    # What one writes, the other's poison undoes: neither can be believed.
    assert first == {
        "works": "left 128 elements unwritten or not a number",
        "idle": "raised MeasurementError: its output shares memory with works",
    }


def test_an_input_handed_out_as_output_is_refused() -> None:
    case = small_case()
    operands = make_operands(case, seed=0, device=torch.device("cpu"))
    view = operands.w.view(-1)[: 8 * 16].view(8, 16)

    (first, _) = checked_twice({"view": Prepared(launch=lambda: view, out=None)}, case, operands)

    assert first == {"view": "raised MeasurementError: its output shares memory with the inputs"}


def test_memory_that_comes_fresh_from_the_system_is_filled_too() -> None:
    # 64 MiB: the C library hands out zeros from the system, which would pass for an empty expert's gradient.
    case = small_case("dW", sizes=(2, 0))
    case = replace(case, shape=replace(case.shape, N=4096, K=4096))
    operands = make_operands(case, seed=0, device=torch.device("cpu"))

    def leaves_the_empty_expert() -> torch.Tensor:
        out = torch.empty(2, 4096, 4096, dtype=torch.bfloat16)
        torch.mm(operands.g.t(), operands.x, out=out[0])
        return out

    (first, _) = checked_twice({"lazy": Prepared(launch=leaves_the_empty_expert, out=None)}, case, operands)

    assert first == {"lazy": f"left {4096 * 4096} elements unwritten or not a number"}


def test_the_check_leaves_torchs_determinism_as_it_was() -> None:
    verdict(FakeArm("right", allocates=True))

    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("device", ["meta"])
def test_an_output_elsewhere_is_refused(device: str) -> None:
    case = small_case()
    operands = make_operands(case, seed=0, device=torch.device("cpu"))
    elsewhere = Prepared(launch=lambda: torch.empty(8, 16, dtype=torch.bfloat16, device=device), out=None)

    (first, _) = checked_twice({"elsewhere": elsewhere}, case, operands)

    assert (
        first["elsewhere"] == "raised MeasurementError: output must be a dense tensor on cpu, got torch.strided on meta"
    )


def test_a_right_result_of_one_element_passes_whatever_its_mantissa() -> None:
    case = small_case("dX", sizes=(1,))
    case = replace(case, shape=replace(case.shape, N=1, K=1))
    for seed in range(200):
        operands = make_operands(case, seed=seed, device=torch.device("cpu"))
        found = check_arms(case, operands, {"a": FakeArm("a").prepare(case, operands)}, seed=seed)["a"]

        assert found.failure == ""


def test_an_arm_that_ends_the_program_has_that_as_its_failure() -> None:
    def leave(call: int, out: torch.Tensor) -> None:
        raise SystemExit(0)

    assert verdict(FakeArm("quits", spoil=leave)).failure == "raised SystemExit: 0"


# Training steps: three results a call


def of_step(
    spoil: Callable[[list[torch.Tensor]], object] = lambda outputs: None,
    op: str = "ckpt ES",
    sizes: tuple[int, ...] = (3, 0, 5),
) -> Verdict:
    """The verdict on an arm that returns the right y, dx and dw, changed by ``spoil``."""
    case = small_case(op, sizes=sizes)
    operands = make_operands(case, seed=0, device=torch.device("cpu"))

    def launch() -> tuple[torch.Tensor, ...]:
        outputs = [fp64(product, operands).to(torch.bfloat16) for product in case.products]
        changed = spoil(outputs)
        return tuple(changed if isinstance(changed, list) else outputs)

    return check_arms(case, operands, {"a": Prepared(launch=launch, out=None)}, seed=0)["a"]


@pytest.mark.parametrize("sizes", [(3, 0, 5), (0, 0)])
@pytest.mark.parametrize("op", STEPS)
def test_a_step_whose_three_results_are_right_passes(op: str, sizes: tuple[int, ...]) -> None:
    assert of_step(op=op, sizes=sizes).failure == ""


@pytest.mark.parametrize(("place", "product"), [(0, "fwd"), (1, "dX"), (2, "dW")])
def test_each_result_of_a_step_is_compared(place: int, product: str) -> None:
    def wrong(outputs: list[torch.Tensor]) -> None:
        outputs[place].view(-1)[7] += 1

    def unwritten(outputs: list[torch.Tensor]) -> None:
        outputs[place].view(-1)[7] = math.nan

    assert of_step(wrong).failure.startswith(f"{product}: wrong: ")
    assert of_step(unwritten).failure == f"{product}: left 1 elements unwritten or not a number"


def test_a_gradient_of_the_wrong_dtype_or_a_missing_one_is_refused() -> None:
    assert of_step(lambda outputs: [*outputs[:2], outputs[2].float()]).failure == (
        "raised MeasurementError: output dW must be torch.bfloat16 [3, 16, 8], got torch.float32 [3, 16, 8]"
    )
    assert of_step(lambda outputs: outputs[:2]).failure == (
        "raised MeasurementError: the call must return 3 tensors (fwd, dX, dW), got 2"
    )
    assert of_step(lambda outputs: [outputs[0], outputs[2], outputs[1]]).failure == (
        "raised MeasurementError: output dX must be torch.bfloat16 [8, 8], got torch.bfloat16 [3, 16, 8]"
    )


def test_results_of_a_step_that_are_handed_out_again_are_found_by_the_second_check() -> None:
    case = small_case("ckpt")
    operands = make_operands(case, seed=0, device=torch.device("cpu"))
    y, dx, kept = (fp64(product, operands).to(torch.bfloat16) for product in case.products)

    first, second = checked_twice(
        {"cached": Prepared(launch=lambda: (y.clone(), dx.clone(), kept), out=None)}, case, operands
    )

    assert first == {"cached": ""}
    assert second == {"cached": "dW: left 384 elements unwritten or not a number"}


def test_a_result_of_a_step_that_is_an_input_is_refused() -> None:
    case = small_case("ckpt")
    operands = make_operands(case, seed=0, device=torch.device("cpu"))
    y, dx, _ = (fp64(product, operands).to(torch.bfloat16) for product in case.products)

    (first, _) = checked_twice({"view": Prepared(launch=lambda: (y, dx, operands.w), out=None)}, case, operands)

    assert first == {"view": "raised MeasurementError: its output shares memory with the inputs"}


def test_the_check_of_a_step_is_that_of_the_product_nearest_to_a_limit() -> None:
    far = Verdict(failure="", check=Check(rel_l2=0.1, rel_l2_limit=1, worst=0.2))
    by_norm = Verdict(failure="", check=Check(rel_l2=0.9, rel_l2_limit=1, worst=0.2))
    by_element = Verdict(failure="", check=Check(rel_l2=0.001, rel_l2_limit=0.01, worst=0.95))
    wrong = Verdict(failure="wrong: so", check=by_norm.check)

    assert together({"fwd": far, "dX": by_norm}) is by_norm
    assert together({"fwd": far, "dX": by_norm, "dW": by_element}) is by_element
    assert together({"fwd": far, "dX": wrong, "dW": by_element}) == Verdict(failure="dX: wrong: so", check=wrong.check)
    assert together({"dW": wrong}) is wrong
