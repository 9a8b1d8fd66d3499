"""Measured floors on the pages: what is marked, what has no number, and when the section stands."""

from dataclasses import replace

import pytest

from harness.audit import audit
from harness.audit.finding import Grade
from harness.model.run import Run
from harness.pages.csv import to_frame
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from tests.property.gfm_tables import tables
from tests.unit.report_runs import H200, case, rates, row, run, skipped

NEW, T, C, Q = "cake_nondet", "torch_grouped_mm", "cublas_loop", "quack"
MS = 1_000_000
# 2 * 8192^3 FLOPs in 10.995116 ms are 10^14 FLOP/s; 4 10^11 FLOPs of the row then take 4 ms.
RATES = rates(read_ns=[500_000] * 7, mm_ns=[10_995_116] * 7)
ROW = case("flops", N=2000, K=1000, sizes=(100_000,))


def page_of(made: Run, *others: Run, new: str | None = None, of: object = RATES) -> str:
    return render_page(summarise([replace(made, rates=(of,)), *others], new=new))  # type: ignore[arg-type]


def last_row(page: str) -> dict[str, str]:
    table = tables(page)[-1]
    return dict(zip(table[0], table[-1], strict=True))


def test_the_row_says_its_floor_what_binds_and_how_far_new_is_from_it() -> None:
    found = last_row(page_of(run(row(ROW, {NEW: [6 * MS], T: [8 * MS]}))))

    assert found["floor (ms)"] == "4.0000"
    assert found["bound by"] == "FLOPs"
    assert found["cake_nondet / floor"] == "1.500"
    assert found["distance to the floor closed"] == "50.00 %"
    assert "remarks" not in found


def test_a_row_below_the_floor_names_the_arms_in_its_remarks_and_is_counted() -> None:
    both = page_of(run(row(ROW, {NEW: [3 * MS], T: [3_500_000]})))
    new = page_of(run(row(ROW, {NEW: [3 * MS], T: [5 * MS]})))

    assert last_row(both)["remarks"] == "**below the floor**: cake_nondet, torch_grouped_mm"
    assert last_row(both)["distance to the floor closed"] == "–"
    assert "| dW | 1 of 1 row | 0.750 | 0.875 | – | **1**, **1** |\n" in both
    assert last_row(new)["remarks"] == "**below the floor**: cake_nondet"
    assert last_row(new)["distance to the floor closed"] == "200 %"


def test_a_row_in_which_sota_has_no_time_says_so() -> None:
    page = page_of(run(row(ROW, {NEW: [6 * MS], Q: [7 * MS]}, unsupported={T: "no"})))

    assert last_row(page)["distance to the floor closed"] == "SOTA has no time"
    assert "| dW | 0 of 1 row | – | – | – | 0, 0 |\n" in page


def test_a_row_in_which_new_has_no_time_has_a_floor_all_the_same() -> None:
    made = run(row(ROW, {T: [6 * MS]}, failed={NEW: "wrong"}))

    found = last_row(page_of(made, new=NEW))

    assert (found["floor (ms)"], found["cake_nondet / floor"]) == ("4.0000", "–")
    assert found["distance to the floor closed"] == "–"


def test_where_new_is_itself_a_baseline_the_other_is_not_called_sota() -> None:
    page = page_of(run(row(ROW, {T: [6 * MS], C: [8 * MS]}), arms=(T, C)), new=T)

    assert "| operation | n | torch_grouped_mm / floor | fastest other of t, c, d / floor |" in page


def test_each_machine_and_run_says_its_rates_with_their_range_and_clock() -> None:
    of = rates(read_ns=[420_000, 500_000, 500_000, 500_000, 500_000, 500_000, 600_000], mm_ns=[10_995_116] * 7)

    page = page_of(run(row(ROW, {NEW: [6 * MS], T: [8 * MS]})), of=of)

    assert (
        "- NVIDIA H200, board 0123456789ab, run 20260101-120000-h200: plain read 4.194 TB/s [3.495, 4.993] (n 7, 1935"
        " MHz) of 1.95 GiB; dense BF16 product 100.0 TFLOP/s [100.0, 100.0] (n 7, 1935 MHz) of 1100 GFLOP\n"
    ) in page


def test_without_rates_neither_section_nor_columns_stand() -> None:
    page = render_page(summarise([run(row(ROW, {NEW: [6 * MS], T: [8 * MS]}))]))

    assert "Measured floor" not in page
    assert "floor (ms)" not in page
    assert "**Floor**" not in page


def test_asked_for_without_rates_the_column_is_there_and_empty() -> None:
    page = render_page(summarise([run(row(ROW, {NEW: [6 * MS], T: [8 * MS]}))]), columns=["floor"])

    assert last_row(page)["bound by"] == "–"


def test_rows_without_a_floor_are_counted_where_others_have_one() -> None:
    spans = {NEW: [6 * MS], T: [8 * MS]}
    other = run(row(ROW, {NEW: [7 * MS], T: [8 * MS]}), run_id="other", machines=[replace(H200, board="b" * 12)])
    both = run(row(ROW, spans), row(replace(ROW, op="dX"), spans), skipped(replace(ROW, op="fwd"), "too big"))

    page = page_of(both, other)

    assert "Without a floor: 1 row; a run that timed it measured no rates, or it does no work.\n" in page
    assert "| dX | 1 of 1 row | 1.500 | 2.000 | 50.00 % | 0, 0 |\n" in page
    assert "Without a floor" not in page_of(both)


def test_operations_on_two_devices_and_in_two_regimes_have_a_line_each() -> None:
    spans = {NEW: [6 * MS], T: [8 * MS]}
    b200 = run(row(ROW, {NEW: [5 * MS], T: [8 * MS]}), run_id="b", machines=[replace(H200, product="B200", board="b")])
    made = run(row(ROW, spans), row(ROW, {NEW: [7 * MS], T: [8 * MS]}, regime="sustained"))

    page = page_of(made, replace(b200, rates=(RATES,)))

    (table,) = [found for found in tables(page) if any("SOTA / floor" in title for title in found[0])]
    assert [line[:4] for line in table] == [
        ["device", "regime", "operation", "n"],
        ["NVIDIA H200 (sm_90a)", "sustained", "dW", "1 of 1 row"],
        ["NVIDIA H200 (sm_90a)", "boost", "dW", "1 of 1 row"],
        ["B200 (sm_90a)", "boost", "dW", "1 of 1 row"],
    ]


def test_the_csv_marks_each_arm_below_the_floor_and_leaves_empty_what_has_none() -> None:
    spans = {NEW: [3 * MS], T: [8 * MS]}
    made = replace(run(row(ROW, spans, unsupported={C: "no"})), rates=(RATES,))

    with_floors = to_frame(summarise([made])).set_index("arm")
    without = to_frame(summarise([replace(made, rates=())]))

    assert with_floors["floor_ns"].tolist() == pytest.approx([4 * MS] * 3, rel=1e-6)
    assert with_floors["below_floor"].dropna().to_dict() == {NEW: True, T: False}
    assert with_floors["over_floor"].to_dict()[T] == pytest.approx(2, rel=1e-6)
    assert with_floors["floor_closed"].tolist() == pytest.approx([5 / 4] * 3, rel=1e-6)
    columns = ["floor_ns", "floor_binds", "over_floor", "below_floor", "floor_closed"]
    assert without[columns].isna().all(axis=None)


def test_the_audit_reads_a_page_with_floors_and_takes_none_of_its_columns_for_a_ratio() -> None:
    page = page_of(
        run(row(ROW, {NEW: [6 * MS], T: [8 * MS]}), row(replace(ROW, op="dX"), {NEW: [3 * MS], T: [8 * MS]}))
    )

    found = audit(page)

    assert found.graded(Grade.CONTRADICTS) == ()
    assert (found.rows, found.columns) == (2, ("sota / cake_nondet",))
    assert found.means == 2
