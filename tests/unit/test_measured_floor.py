"""The measured floor: bytes and FLOPs over rates, what binds, how far new and SOTA are from it."""

from dataclasses import replace

import pytest

from harness.model.measured_floor import MeasuredFloor, closed_share, measured_floor
from harness.model.report import Report
from harness.model.run import Rates, Row, Run
from harness.pages.summary import summarise
from tests.bench import small_case
from tests.unit.report_runs import H200, case, rates, row, run

NEW, T, C = "cake_nondet", "torch_grouped_mm", "cublas_loop"
MS = 1_000_000

# 2000 MiB in 2097152 ns are 10^12 B/s; 2 * 8192^3 FLOPs in 10995116.27776 ms are 10^14 FLOP/s.
READ_NS, MM_NS = 2_097_152, 10_995_116


def measured(*, read_ns: int = READ_NS, mm_ns: int = MM_NS, machine: int = 0) -> Rates:
    return rates(read_ns=[read_ns] * 7, mm_ns=[mm_ns] * 7, machine=machine)


# 2 M N K = 4 10^11 FLOPs: 4 ms; 8 + 16 + 2 MB + what is small: less than 1 ms.
BOUND_BY_FLOPS = case("flops", N=2000, K=1000, sizes=(100_000,))
# 10^6 outputs for each of 2000 groups of one row: 4 10^9 bytes: 4 ms, and 4 10^9 FLOPs.
BOUND_BY_BYTES = case("bytes", N=1000, K=1000, sizes=(1,) * 2000)


def floored(*rows: Row, of: Rates | None = None, new: str | None = None) -> Report:
    return summarise([replace(run(*rows), rates=(of or measured(),))], new=new)


@pytest.mark.parametrize(
    ("of", "bytes_ns", "flops_ns", "binds"),
    [
        (BOUND_BY_FLOPS, 2 * (10**8 + 2 * 10**8 + 2 * 10**6) / 1e3, 4e6, "FLOPs"),
        (BOUND_BY_BYTES, 2 * (2 * 2000 * 1000 + 2000 * 10**6) / 1e3, 4e4, "bytes"),
    ],
    ids=["FLOPs", "bytes"],
)
def test_the_floor_is_the_longer_of_bytes_and_flops_at_their_rates(
    of: object, bytes_ns: float, flops_ns: float, binds: str
) -> None:
    found = measured_floor(of, measured())  # type: ignore[arg-type]

    assert found.bytes_ns == pytest.approx(bytes_ns, rel=1e-12)
    assert found.flops_ns == pytest.approx(flops_ns, rel=1e-6)
    assert found.ns == max(found.bytes_ns, found.flops_ns)
    assert found.binds == binds


def test_where_both_take_as_long_bytes_bind() -> None:
    assert MeasuredFloor(bytes_ns=5.0, flops_ns=5.0).binds == "bytes"


@pytest.mark.parametrize(
    ("new", "sota", "share"),
    [
        (1.0, 1.2, 1.0),
        (1.1, 1.2, 0.5),
        (1.2, 1.2, 0.0),
        (1.4, 1.2, -1.0),
        (0.9, 1.2, 1.5),
        (0.9, 1.0, None),
        (2, 0.9, None),
    ],
)
def test_the_closed_share_is_of_the_distance_from_sota_to_the_floor(
    new: float, sota: float, share: float | None
) -> None:
    found = closed_share(new, sota)

    assert found == (None if share is None else pytest.approx(share))


def test_a_row_says_how_far_new_and_sota_are_from_its_floor() -> None:
    (only,) = floored(row(BOUND_BY_BYTES, {NEW: [5 * MS], T: [7 * MS], C: [8 * MS], "quack": [6 * MS]})).rows

    assert only.floor is not None
    floor_ns = only.floor.floor.ns
    assert floor_ns == 4_008_000
    assert (only.floor.new, only.floor.sota) == (5 * MS / floor_ns, 7 * MS / floor_ns)
    # (7 - 5) / (7 - 4.008)
    assert only.floor.closed == pytest.approx(2 / 2.992, rel=1e-12)
    assert not only.floor.new_is_below
    assert not only.floor.sota_is_below


def test_a_row_faster_than_its_floor_is_marked_and_counted_and_stays_in_the_means() -> None:
    report = floored(
        row(BOUND_BY_BYTES, {NEW: [4 * MS], T: [7 * MS]}),
        row(BOUND_BY_FLOPS, {NEW: [3 * MS], T: [3 * MS]}),
    )

    floors = [each.floor for each in report.rows if each.floor]
    assert [(of.new_is_below, of.sota_is_below) for of in floors] == [(True, False), (True, True)]
    assert floors[1].closed is None
    (standing,) = report.floors
    assert (standing.n, standing.new_below, standing.sota_below) == (2, 2, 1)


def test_without_a_time_of_sota_there_is_no_share_and_the_row_is_in_no_mean() -> None:
    report = floored(
        row(BOUND_BY_BYTES, {NEW: [5 * MS]}, unsupported={T: "no"}),
        row(BOUND_BY_FLOPS, {NEW: [6 * MS], T: [8 * MS]}),
    )

    alone = report.rows[0].floor
    assert alone is not None
    assert (alone.sota, alone.closed) == (None, None)
    (standing,) = report.floors
    assert (standing.rows, standing.n) == (2, 1)
    assert standing.new == pytest.approx(1.5, rel=1e-6)
    assert standing.sota == pytest.approx(2.0, rel=1e-6)
    assert standing.closed == pytest.approx(0.5, rel=1e-6)


def test_the_share_of_an_operation_is_that_of_its_two_means() -> None:
    # In floors: new 1.5 and 6, SOTA 2 and 8; their geomeans are 3 and 4.
    (standing,) = floored(
        row(BOUND_BY_FLOPS, {NEW: [6 * MS], T: [8 * MS]}),
        row(replace(BOUND_BY_FLOPS, shape=replace(BOUND_BY_FLOPS.shape, name="b")), {NEW: [24 * MS], T: [32 * MS]}),
    ).floors

    assert standing.new == pytest.approx(3, rel=1e-6)
    assert standing.sota == pytest.approx(4, rel=1e-6)
    assert standing.closed == pytest.approx(1 / 3, rel=1e-6)


def test_a_host_bound_row_has_a_floor_and_is_in_no_mean() -> None:
    spans = {NEW: [6 * MS], T: [8 * MS]}

    (standing,) = floored(row(BOUND_BY_FLOPS, spans, busy={NEW: [6 * MS], T: [7 * MS]})).floors

    assert (standing.rows, standing.n, standing.new, standing.sota, standing.closed) == (1, 0, None, None, None)


def test_operations_and_regimes_never_share_a_mean() -> None:
    spans = {NEW: [6 * MS], T: [8 * MS]}

    report = floored(
        row(replace(BOUND_BY_FLOPS, op="dX"), spans),
        row(BOUND_BY_FLOPS, spans),
        row(BOUND_BY_FLOPS, spans, regime="sustained"),
    )

    assert [(of.regime, of.op, of.n) for of in report.floors] == [
        ("sustained", "dW", 1),
        ("boost", "dX", 1),
        ("boost", "dW", 1),
    ]


def test_without_rates_no_row_has_a_floor() -> None:
    report = summarise([run(row(BOUND_BY_BYTES, {NEW: [5 * MS], T: [7 * MS]}))])

    assert (report.rows[0].floor, report.floors) == (None, ())


def test_a_row_without_work_has_no_floor() -> None:
    nothing = small_case("fwd", sizes=(0, 0))

    (only,) = floored(row(nothing, {NEW: [5], T: [7]})).rows

    assert measured_floor(nothing, measured()).ns == 0
    assert only.floor is None


def card(name: str, of: Rates | None, *, new_ms: int) -> Run:
    made = run(
        row(BOUND_BY_BYTES, {NEW: [new_ms * MS], T: [9 * MS]}), run_id=name, machines=[replace(H200, board=name * 12)]
    )
    return replace(made, rates=(of,) if of else ())


def test_of_several_cards_the_floor_is_the_median_over_them() -> None:
    twice, half = measured(read_ns=2 * READ_NS), measured(read_ns=READ_NS // 2)
    cards = [card("a", measured(), new_ms=6), card("b", twice, new_ms=9), card("c", half, new_ms=5)]

    report = summarise(cards)

    (only,) = report.rows
    assert only.floor is not None
    assert only.floor.floor.ns == 4_008_000
    assert only.floor.new == 6 * MS / 4_008_000
    assert [[of.run_id for of in place.rates] for place in report.environments] == [["a"], ["b"], ["c"]]


def test_a_row_of_which_one_run_measured_no_rates_has_no_floor() -> None:
    (only,) = summarise([card("a", measured(), new_ms=6), card("b", None, new_ms=7)]).rows

    assert only.floor is None


def test_each_row_has_the_floor_of_its_own_machine() -> None:
    spans = {NEW: [9 * MS], T: [9 * MS]}
    other = replace(H200, board="b" * 12)
    rows = (row(BOUND_BY_BYTES, spans), row(replace(BOUND_BY_BYTES, out_dtype="fp32"), spans, machine=1))
    made = run(*rows, machines=[H200, other])

    report = summarise([replace(made, rates=(measured(), measured(machine=1, read_ns=2 * READ_NS)))])

    floors = [each.floor.floor.ns for each in report.rows if each.floor]
    assert floors == [4_008_000, 2 * 8_008_000]
