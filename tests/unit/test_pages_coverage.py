"""Coverage limits, the arms table, operations and shapes, names of kernels, what changed."""

import pytest

from harness.model.run import Row
from harness.pages import csv as csv_page
from harness.pages import json as json_page
from harness.pages.markdown.numbers import percent, speedup, speedup_range
from harness.pages.markdown.records import short_name
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from tests.unit.report_runs import case, row, run

NEW, T, C, D = "cake_nondet", "torch_grouped_mm", "cublas_loop", "cudnn"
DET = "cake_det"
MS = 1_000_000
TWO = {T: [4 * MS], C: [5 * MS]}


def page(*rows: Row, arms: tuple[str, ...] = (NEW, DET, T, C, D)) -> str:
    return render_page(summarise([run(*rows, arms=arms)]))


def no_program(program: str, out: str = "bf16") -> str:
    return f"no program for {program} (det, {out} out) on sm_90a: this version has none"


# Limits


def test_reasons_of_an_arm_that_differ_only_by_operation_or_type_are_one_line() -> None:
    rows = [
        row(case(op="fwd"), TWO, unsupported={DET: no_program("fwd")}),
        row(case(op="dX"), TWO, unsupported={DET: no_program("dgrad")}),
        row(case(op="dW"), TWO, unsupported={DET: no_program("wgrad")}),
        row(case(op="dW", out_dtype="fp32"), TWO, unsupported={DET: no_program("wgrad", "fp32")}),
    ]

    assert (
        "- **cake_det**, all 4 rows: no program for fwd/dgrad/wgrad (det, bf16/fp32 out) on sm_90a: this version has"
        " none\n"
    ) in page(*rows)


def test_different_reasons_of_an_arm_stand_below_its_name() -> None:
    rows = [
        row(case(op="dX"), TWO, unsupported={D: "no plan"}),
        row(case(op="dW"), TWO, unsupported={D: "too old"}),
    ]

    assert (
        "- **cudnn (d)**\n  - dX gate_up E4 M112576 bal: no plan\n  - dW gate_up E4 M112576 bal: too old\n"
    ) in page(*rows)


def test_limits_are_in_the_order_of_the_arms_whatever_row_comes_first() -> None:
    rows = [
        row(case(op="dX"), {C: [5 * MS]}, unsupported={D: "no plan", T: "no"}),
        row(case(op="dW"), {C: [5 * MS]}, unsupported={DET: "none"}),
    ]

    made = page(*rows)

    assert made.index("**cake_det**") < made.index("**torch_grouped_mm (t)**") < made.index("**cudnn (d)**")


def test_an_arm_without_a_time_is_in_the_limits_and_not_in_the_table_of_arms() -> None:
    made = page(row(case(), TWO, unsupported={D: "no plan"}))

    assert "- **cudnn (d)**, dW gate_up E4 M112576 bal: no plan\n" in made
    assert "| torch_grouped_mm | t | new | 1 of 1 |" in made
    assert "| cudnn |" not in made


def test_a_run_without_a_time_has_no_table_of_arms() -> None:
    assert "## Arms" not in page(row(case(), {}, unsupported={T: "no GPU"}))


# Operations and shapes


def test_one_line_names_operations_projections_sizes_and_kinds() -> None:
    rows = [
        row(case("gate_up E4 M4096 skew asc", op="fwd", N=4096, K=6144, sizes=(1024,) * 4), TWO),
        row(case("gate_up E4 M4096 bal", op="dW", N=4096, K=6144, sizes=(1024,) * 4, out_dtype="fp32"), TWO),
        row(case("qwen3-30b down E8 M112576", op="dW", N=2048, K=768, sizes=(14072,) * 8), TWO),
    ]

    assert (
        "\nOperations and shapes: fwd, dW (BF16 and FP32 output); gate_up N 4096 K 6144, qwen3-30b down N 2048 K 768;"
        " E4 M4096, E8 M112576; kinds skew asc, bal.\n"
    ) in page(*rows)


def test_a_name_of_another_form_still_shows_its_sizes() -> None:
    assert "Operations and shapes: dW; N 2048 K 2048; E4 M112576.\n" in page(row(case("mine"), TWO))


def test_of_many_projections_a_dozen_are_named() -> None:
    rows = [row(case(f"m{i} up E4 M112576", N=2048 + i), TWO) for i in range(14)]

    assert "m11 up N 2059 K 2048 and 2 more; E4 M112576." in page(*rows)


# What changed


def test_what_changed_stands_escaped_under_the_title() -> None:
    report = summarise([run(row(case(), TWO), arms=(T, C))])

    assert ("fastest other of t, c, d\n\nSlack \\*everywhere\\* @&#8203;all\n\n**") in render_page(
        report, what="Slack *everywhere*\n@all"
    )
    assert "fastest other of t, c, d\n\n**" in render_page(report)


def test_pages_for_programs_take_what_changed_and_leave_it_out() -> None:
    report = summarise([run(row(case(), TWO), arms=(T, C))])

    assert csv_page.render_page(report, what="x") == csv_page.render_page(report)
    assert json_page.render_page(report, what="x") == json_page.render_page(report)


# Numbers


@pytest.mark.parametrize(
    ("value", "written"),
    [(9.9994, "9.999"), (17.24, "17.2"), (171.6, "172"), (12345.6, "12346"), (0.1, "0.100"), (0.07314, "0.0731")],
)
def test_ratios_far_from_one_have_three_digits(value: float, written: str) -> None:
    assert speedup(value) == written


def test_a_range_wider_than_its_ratio_has_two_digits() -> None:
    wide = row(case(), {NEW: [4 * MS] * 3, T: [4_800_000, 29_200_000_000, 4 * MS]})
    narrow = row(case(), {NEW: [4 * MS] * 3, T: [4_800_000, 7_200_000, 4 * MS]})

    texts = [speedup_range(r.ratios[0]) for made in (wide, narrow) for r in summarise([run(made)]).rows]

    assert texts == ["1.2 [1.0, 7300]", "1.200 [1.000, 1.800]"]


@pytest.mark.parametrize(
    ("value", "written"), [(0.0385, "3.85 %"), (0.99994, "99.99 %"), (1.0, "100 %"), (3.174, "317 %")]
)
def test_percents_from_a_hundred_on_have_no_decimals(value: float, written: str) -> None:
    assert percent(value) == written


# Kernels


@pytest.mark.parametrize(
    ("kernel", "short"),
    [
        ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN"),
        ("_ZN7cutlass13device_kernelIN2at4cuda6detail25enable_3x_kernelIJiiEEEvT_", "cutlass::device_kernel"),
        ("_ZN2at6native29vectorized_elementwise_kernelILi8EEEvi", "at::native::vectorized_elementwise_kernel"),
        ("_ZN2at40_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c4copyIiEEvi", "at::(anonymous)::copy"),
        ("_Z4gemmPfS_", "gemm"),
        ("k" * 100, "k" * 77 + "..."),
        ("_ZN", "_ZN"),
    ],
)
def test_a_mangled_name_is_shortened_to_what_it_calls(kernel: str, short: str) -> None:
    assert short_name(kernel) == short


def test_a_launch_names_two_kernels_and_counts_the_rest() -> None:
    one = row(case(), TWO, kernels={T: (("_Z1aIiEvi x 1", "b`|c x 1", "d x 1"),)})

    assert "torch_grouped_mm 3 kernels (`a`, `b??c` and 1 more).\n" in page(one)
