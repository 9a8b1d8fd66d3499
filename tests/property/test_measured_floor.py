"""What must move and how long it takes: a sum over the tensors that a call touches, and never less for more work."""

import math
from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.arms import new_output
from harness.model.case import OPS, Case
from harness.model.measured_floor import closed_share, measured_floor
from harness.model.run import Rates
from harness.model.shape import Shape
from harness.operands import make_operands
from tests.unit.report_runs import rates

RATES = st.builds(
    lambda read, mm: rates(read_ns=[read] * 7, mm_ns=[mm] * 7), st.integers(10**6, 10**9), st.integers(10**7, 10**10)
)


@st.composite
def cases(draw: st.DrawFn, *, least: int = 0) -> Case:
    op = draw(st.sampled_from(OPS))
    sizes = tuple(draw(st.lists(st.integers(least, 40), min_size=1, max_size=6)))
    N, K = draw(st.integers(1, 32)), draw(st.integers(1, 32))
    shape = Shape(name="r", row_class="adhoc", N=N, K=K, group_sizes=sizes, distribution="drawn", source="a test")
    out_dtype = draw(st.sampled_from(["bf16", "fp32"])) if op == "dW" else "bf16"
    return Case(suite="adhoc", op=op, shape=shape, out_dtype=out_dtype)


def resized(case: Case, sizes: tuple[int, ...]) -> Case:
    return replace(case, shape=replace(case.shape, group_sizes=sizes))


@given(cases(least=1))
def test_without_an_empty_group_the_bytes_are_those_of_the_operands_and_outputs(case: Case) -> None:
    operands = make_operands(case, seed=0, device=torch.device("cpu"))
    inputs = [tensor for tensor in (operands.x, operands.w, operands.g) if tensor is not None]
    outputs = [new_output(product, torch.device("cpu")) for product in case.products]

    assert case.min_bytes == sum(tensor.nbytes for tensor in (*inputs, *outputs))


@given(cases(), RATES, st.data())
def test_more_rows_never_move_less_nor_take_less(case: Case, measured: Rates, data: st.DataObject) -> None:
    sizes = list(case.shape.group_sizes)
    sizes[data.draw(st.integers(0, len(sizes) - 1))] += data.draw(st.integers(1, 9))
    larger = resized(case, tuple(sizes))

    assert larger.min_bytes > case.min_bytes
    assert measured_floor(larger, measured).ns >= measured_floor(case, measured).ns


@given(cases(), st.data())
def test_an_empty_group_costs_what_is_written_of_it_and_nothing_more(case: Case, data: st.DataObject) -> None:
    sizes = list(case.shape.group_sizes)
    sizes.insert(data.draw(st.integers(0, len(sizes))), 0)
    of_dw = case.shape.N * case.shape.K * (4 if case.out_dtype == "fp32" else 2)

    more = resized(case, tuple(sizes)).min_bytes - case.min_bytes

    assert more == (0 if case.op in ("fwd", "dX") else of_dw)


@given(cases(least=1), RATES, st.integers(2, 9))
def test_rates_that_are_k_times_as_high_give_a_floor_k_times_as_low(case: Case, measured: Rates, k: int) -> None:
    read, mm = measured.plain_read, measured.dense_mm
    faster = replace(
        measured,
        plain_read=replace(read, amount=k * read.amount),
        dense_mm=replace(mm, amount=k * mm.amount),
    )

    there, here = measured_floor(case, measured), measured_floor(case, faster)

    assert math.isclose(here.ns * k, there.ns, rel_tol=1e-12)
    assert here.binds == there.binds or math.isclose(there.bytes_ns, there.flops_ns, rel_tol=1e-12)


@given(st.floats(0.5, 50), st.floats(0.5, 50))
def test_the_closed_share_is_above_0_where_new_is_faster_and_at_most_1_where_it_is_above_the_floor(
    new: float, sota: float
) -> None:
    share = closed_share(new, sota)

    if share is None:
        assert sota <= 1
        return
    assert (share > 0) == (new < sota)
    assert share <= 1 if new >= 1 else share >= 1
