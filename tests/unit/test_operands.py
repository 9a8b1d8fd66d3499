import torch

from harness.operands import make_operands, memory_bytes
from tests.bench import small_case

CPU = torch.device("cpu")


def test_only_the_tensors_of_the_operation_are_made() -> None:
    fwd = make_operands(small_case("fwd"), seed=0, device=CPU)
    dx = make_operands(small_case("dX"), seed=0, device=CPU)
    dw = make_operands(small_case("dW"), seed=0, device=CPU)

    assert (fwd.x.shape, fwd.w.shape, fwd.g) == ((8, 8), (3, 16, 8), None)
    assert (dx.x, dx.w.shape, dx.g.shape) == (None, (3, 16, 8), (8, 16))
    assert (dw.x.shape, dw.w, dw.g.shape) == ((8, 8), None, (8, 16))
    assert {t.dtype for t in (fwd.x, fwd.w, dx.g)} == {torch.bfloat16}


def test_offs_are_cumulative_ends() -> None:
    operands = make_operands(small_case(), seed=0, device=CPU)

    assert operands.offs.tolist() == [3, 3, 8]
    assert operands.offs.dtype == torch.int32


def test_the_same_seed_gives_the_same_bits_in_every_operation() -> None:
    first = make_operands(small_case("fwd"), seed=4, device=CPU)
    again = make_operands(small_case("dW"), seed=4, device=CPU)
    other = make_operands(small_case("dW"), seed=5, device=CPU)

    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)
    assert not torch.equal(first.x.flatten()[:64], again.g.flatten()[:64])


def test_memory_counts_inputs_outputs_of_each_arm_and_the_reference() -> None:
    case = small_case("fwd")

    per_arm = memory_bytes(case, 2) - memory_bytes(case, 1)

    assert per_arm == 2 * 8 * 16
    assert memory_bytes(case, 0) >= 2 * (8 * 8 + 3 * 16 * 8)


def test_a_step_has_all_inputs_and_needs_room_for_three_results_of_each_arm_and_two_more_sets() -> None:
    case = small_case("ckpt")
    operands = make_operands(case, seed=0, device=CPU)
    inputs, outputs = 2 * (8 * 8 + 3 * 16 * 8 + 8 * 16), 2 * (8 * 16 + 8 * 8 + 3 * 16 * 8)
    # FP64 copies of five rows of both sides and of one weight, and five results of the largest product, dW.
    reference = 8 * (5 * (16 + 8) + 16 * 8 + 5 * 16 * 8)

    assert (operands.x.shape, operands.w.shape, operands.g.shape) == ((8, 8), (3, 16, 8), (8, 16))
    assert memory_bytes(case, 4) == inputs + 4 * outputs + 2 * outputs + reference
