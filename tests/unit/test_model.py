import math
import re
from dataclasses import replace

import pytest

from harness.errors import RunFileError, ShapesError
from harness.model.case import STEPS, Case
from harness.model.sample import Samples
from harness.model.shape import Shape
from tests.bench import machine, small_case


def test_flops_count_the_rows_that_exist() -> None:
    # pytorch/ao#2490.
    # 8192 rows over 16 experts, K 5120, N 8192 in 1.31 ms: 525 TFLOP/s, not 16 times that.
    shape = Shape(
        name="x", row_class="model", N=8192, K=5120, group_sizes=(512,) * 16, distribution="balanced", source="a report"
    )
    case = Case(suite="test", op="fwd", shape=shape)

    assert case.flops / 1.31e-3 / 1e12 == pytest.approx(524.6, abs=0.1)


@pytest.mark.parametrize(("op", "gemms"), [("fwd", 1), ("dX", 1), ("dW", 1), ("ckpt ES", 3), ("ckpt", 4)])
def test_a_checkpointed_step_is_three_or_four_gemms(op: str, gemms: int) -> None:
    assert small_case(op).flops == gemms * 2 * 8 * 16 * 8


@pytest.mark.parametrize("op", STEPS)
def test_a_step_has_the_results_of_three_products_on_its_shape_and_a_product_its_own(op: str) -> None:
    step, dw = small_case(op), small_case("dW", out_dtype="fp32")

    assert step.products == (small_case("fwd"), small_case("dX"), small_case("dW"))
    assert dw.products == (dw,)
    assert (step.is_step, dw.is_step) == (True, False)


def test_bytes_read_no_weights_of_an_empty_expert_and_write_its_gradient() -> None:
    # sizes 3, 0, 5; N 16, K 8
    assert small_case("fwd").min_bytes == 2 * (8 * 8 + 2 * 16 * 8 + 8 * 16)
    assert small_case("dW").min_bytes == 2 * (8 * 8 + 8 * 16 + 3 * 16 * 8)
    assert small_case("dW", out_dtype="fp32").min_bytes == 2 * (8 * 8 + 8 * 16) + 4 * 3 * 16 * 8


def test_the_floor_is_the_larger_of_flops_and_bytes_and_at_least_one() -> None:
    assert machine(peak_flops=1e9).floor_ns(small_case()) == 2048
    assert machine(peak_flops=None).floor_ns(small_case()) == 1


def test_what_the_cache_can_still_hold_need_not_have_been_written() -> None:
    gpu = replace(machine(), peak_bytes_per_s=1e9, cache_bytes=100)

    # x 128 B and two weights 512 B are read; of y, 256 B, at least 156 B are written.
    assert gpu.floor_ns(small_case("fwd")) == 128 + 512 + 156
    assert replace(gpu, cache_bytes=1000).floor_ns(small_case("fwd")) == 128 + 512


def test_fp32_output_belongs_to_the_weight_gradient() -> None:
    assert small_case("dW", out_dtype="fp32", name="down E4 M8 bal").name == "down E4 M8 bal fp32"
    with pytest.raises(ShapesError, match="out_dtype fp32 of 'tiny' needs op dW, got 'fwd'"):
        small_case("fwd", out_dtype="fp32")


def test_negative_sizes_and_unknown_operations_are_refused() -> None:
    with pytest.raises(ShapesError, match=r"group_sizes\[1\] of 'tiny' must be >= 0, got -2"):
        small_case(sizes=(3, -2))
    with pytest.raises(ShapesError, match="op of 'tiny' must be one of fwd, dX, dW, ckpt, ckpt ES, got 'bwd'"):
        small_case("bwd")


def columns(**changes: tuple[object, ...]) -> Samples:
    fields: dict[str, tuple[object, ...]] = {
        "group": (0,), "position": (0,), "arm": ("a",), "span_ns": (10,), "busy_ns": (9,), "clock_mhz": (None,),
        "joules": (None,), "calls": (1,),
    }  # fmt: skip
    return Samples(**(fields | changes))  # type: ignore[arg-type]


def test_columns_have_one_length_and_busy_lies_within_span() -> None:
    assert len(columns()) == 1
    with pytest.raises(RunFileError, match="all columns must have one length"):
        columns(arm=())
    with pytest.raises(RunFileError, match=r"samples\[0\] of a: busy_ns must be in 1..span_ns = 10, got 11"):
        columns(busy_ns=(11,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"span_ns": (2**63,)}, "span_ns must be below 2**63, got 9.22337e+18"),
        ({"clock_mhz": (0,)}, "clock_mhz must be at least 1, got 0"),
        ({"joules": (-0.5,)}, "joules must be a finite number >= 0, got -0.5"),
        ({"joules": (math.inf,)}, "joules must be a finite number >= 0, got inf"),
        ({"calls": (0,)}, "calls must be at least 1, got 0"),
        ({"position": (-1,)}, "samples[0]: (group, position) must come after (0, -1), got (0, -1)"),
        ({"group": (-1,)}, "samples[0]: (group, position) must come after (0, -1), got (-1, 0)"),
    ],
)
def test_a_sample_that_no_timer_can_have_given_is_refused(changes: dict[str, tuple[object, ...]], message: str) -> None:
    with pytest.raises(RunFileError, match=re.escape(message)):
        columns(**changes)


@pytest.mark.parametrize("name", ["peak_flops", "peak_bytes_per_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, 1e-300, math.inf, math.nan])
def test_a_peak_that_would_switch_the_floor_off_is_refused(name: str, value: float) -> None:
    with pytest.raises(RunFileError, match=f"{name} of machine 'Test CPU' must be a finite number >= 1, got {value}"):
        replace(machine(), **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_sizes": (2**31,)}, "M of 'tiny' must be in 0..2147483647, got 2147483648"),
        ({"group_sizes": ()}, "E of 'tiny' must be in 1..65536, got 0"),
        ({"group_sizes": (0,) * 65537}, "E of 'tiny' must be in 1..65536, got 65537"),
        ({"N": 2**31}, "N of 'tiny' must be in 1..2147483647, got 2147483648"),
        ({"K": 0}, "K of 'tiny' must be in 1..2147483647, got 0"),
    ],
)
def test_a_shape_fits_into_32_bit_offsets(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ShapesError, match=message):
        replace(small_case().shape, **changes)  # type: ignore[arg-type]
