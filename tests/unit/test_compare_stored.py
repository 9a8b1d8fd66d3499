"""What ``cake-bench compare`` concludes of two stored runs: noise between them, comparability, rows of one side."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness import runfile
from harness.compare.comparison import ComparedRow, Verdict
from harness.compare.environment import ALLOWABLE, ENVIRONMENT
from harness.compare.stored import NOISE_RATIOS, compare_stored
from harness.errors import NothingMeasured, UnknownName
from harness.model.run import Row, Run
from tests.unit.compare_runs import FAST, LIMITS, OURS, SLOW, THEIRS, C, T, named, noisy, one
from tests.unit.report_runs import H200, row, run, skipped


def vendor(index: int, ours: float, *, groups: int = 6, t: float = 1.0, c: float = 1.02, op: str = "dW", seed: int = 0,
           clock: int | None = None) -> Row:  # fmt: skip
    """One row of ours beside two baselines; each figure is a part of 8 ms."""
    source = random.Random(1000 * seed + index)
    spans = {arm: noisy(source, 8e6 * part, groups, 0.001) for arm, part in ((OURS, ours), (T, t), (C, c))}
    return row(named(index, op), spans, clock=dict.fromkeys(spans, (clock,) * groups) if clock else None)


def stored(run_id: str, rows: Sequence[Row], **changes: object) -> Run:
    made = run(*rows, arms=(OURS, T, C), run_id=run_id)
    machine = replace(H200, **{k: v for k, v in changes.items() if hasattr(H200, k)})  # type: ignore[arg-type]
    rest = {key: value for key, value in changes.items() if not hasattr(H200, key)}
    return replace(made, machines=(machine,), revision=f"of {run_id}", **rest)  # type: ignore[arg-type]


def many(seed: int, first: float = 1.0, n: int = 24, **changes: object) -> list[Row]:
    return [vendor(i, first if i == 0 else 1.0, seed=seed) for i in range(n)]


# 1.2 % excludes 1, and is not known to exceed the floor: intervals are as wide as what moved, 0.2 %.
@pytest.mark.parametrize(
    ("part", "verdict"), [(1.05, "slower"), (0.95, "faster"), (1.0, "same"), (1.012, "unclear"), (0.988, "unclear")]
)
def test_two_runs_say_what_is_larger_than_what_moved_between_them(part: float, verdict: Verdict) -> None:
    found = one(compare_stored(stored("a", many(1)), stored("b", many(2, part)), limits=LIMITS))

    assert (found.verdict, found.against) == (verdict, T)
    assert (found.p, found.q, found.q_in_reach) == (None, None, None)
    assert found.effect is not None
    assert found.effect.ratio == pytest.approx(1 / part, abs=0.002)


def test_what_baselines_moved_by_widens_every_interval() -> None:
    moved = [vendor(i, 1.05 if i == 0 else 1.0, seed=2, c=1.02 * (1.08 if i == 5 else 1)) for i in range(24)]

    comparison = compare_stored(stored("a", many(1)), stored("b", moved), limits=LIMITS)

    (noise,) = comparison.noise
    assert (noise.ratios, noise.regime) == (24, "boost")
    assert noise.largest == pytest.approx(0.08, abs=0.003)
    assert (one(comparison).verdict, one(comparison).reason) == ("unclear", "spread")


def test_too_few_baseline_ratios_show_no_noise_and_nothing_is_concluded() -> None:
    few = NOISE_RATIOS - 1
    comparison = compare_stored(stored("a", many(1, n=few)), stored("b", many(2, 1.5, n=few)), limits=LIMITS)

    assert {(r.verdict, r.reason) for r in comparison.rows} == {("unclear", "spread")}
    assert one(comparison).detail == "18 ratios of baselines show the noise between the runs, 19 must"


def test_two_arms_of_ours_do_not_count_the_baselines_twice() -> None:
    def twice(rows: Sequence[Row]) -> list[Row]:
        made = []
        for one_row in rows:
            spans = {a: [one_row.samples.span_ns[i] for _, i in one_row.samples.by_group(a)] for a in (OURS, T, C)}
            made.append(row(one_row.case, {"cake_nondet": spans[OURS], **spans}))
        return made

    comparison = compare_stored(stored("a", twice(many(1))), stored("b", twice(many(2))), limits=LIMITS)

    assert [noise.ratios for noise in comparison.noise] == [24]
    assert {r.id.arm for r in comparison.rows} == {"cake_nondet", "cake_det"}


def test_another_revision_beside_ours_is_not_compared_with_a_stored_one() -> None:
    def beside(rows: Sequence[Row]) -> list[Row]:
        return [row(one_row.case, {THEIRS: FAST[:6], T: FAST[:6], OURS: SLOW[:6]}) for one_row in rows]

    comparison = compare_stored(stored("a", beside(many(1))), stored("b", beside(many(2))), limits=LIMITS)

    assert {r.id.arm for r in comparison.rows} == {OURS}


@pytest.mark.parametrize("arm", [OURS, T])
def test_gaps_of_ours_or_of_the_baseline_make_a_stored_row_host_bound(arm: str) -> None:
    def gapped(rows: Sequence[Row]) -> list[Row]:
        spans = dict.fromkeys((OURS, T, C), FAST[:6])
        busy = {a: tuple(8 * ns // 10 for ns in FAST[:6]) if a == arm else FAST[:6] for a in spans}
        return [row(rows[0].case, spans, busy=busy), *rows[1:]]

    found = one(compare_stored(stored("a", gapped(many(1))), stored("b", gapped(many(2))), limits=LIMITS))

    assert (found.verdict, found.reason) == ("unclear", "host-bound")


def test_a_twin_shows_no_noise_between_runs() -> None:
    def twins(rows: Sequence[Row]) -> list[Row]:
        again = f"{T} again"
        return [row(r.case, {OURS: SLOW[:6], T: FAST[:6], again: FAST[:6]}) for r in rows]

    comparison = compare_stored(stored("a", twins(many(1))), stored("b", twins(many(2))), limits=LIMITS)

    assert comparison.noise == ()


BASELINES = Path(__file__).parents[2] / "reports" / "h200" / "baselines"


@pytest.mark.parametrize("arm", ["torch_grouped_mm", "cublas_loop", "cudnn"])
def test_vendor_kernels_on_two_boards_are_neither_faster_nor_slower(arm: str) -> None:
    base, head = (runfile.load(BASELINES / f"boost-e4-e8-{card}.json") for card in (0, 1))

    counts = compare_stored(base, head, arms=(arm,), limits=LIMITS).counts

    assert (counts["faster"], counts["slower"]) == (0, 0)
    assert counts["unclear"] == (24 if arm == "cudnn" else 72)


def test_time_alone_is_not_enough_where_the_cycles_are_the_same() -> None:
    base = [vendor(i, 1.0, seed=1, clock=1500) for i in range(24)]
    head = [vendor(i, 1.0, seed=2, clock=1500) for i in range(1, 24)]
    source = random.Random(9)
    spans = {OURS: noisy(source, 8.4e6, 6, 0.001), T: noisy(source, 8e6, 6, 0.001), C: noisy(source, 8.16e6, 6, 0.001)}
    slow = row(named(0), spans, clock={OURS: (1429,) * 6, T: (1500,) * 6, C: (1500,) * 6})

    found = one(compare_stored(stored("a", base), stored("b", [slow, *head]), limits=LIMITS))

    assert (found.verdict, found.reason) == ("unclear", "clock")
    assert found.cycles == pytest.approx(1.0, abs=0.003)


def test_one_or_two_groups_say_nothing_and_three_cannot() -> None:
    # conbench/conbench#1605 and #1583: one repetition, and two.
    def compared(groups: int) -> ComparedRow:
        base = [vendor(i, 1.0, seed=1, groups=groups) for i in range(24)]
        head = [vendor(i, 1.2 if i == 0 else 1.0, seed=2, groups=groups) for i in range(24)]
        return one(compare_stored(stored("a", base), stored("b", head), limits=LIMITS))

    assert [(compared(n).verdict, compared(n).reason) for n in (1, 2, 3, 4)] == [
        ("unclear", "few-groups"), ("unclear", "few-groups"), ("unclear", "cannot-reach"), ("slower", "effect"),
    ]  # fmt: skip


def test_a_baseline_that_moves_on_its_own_board_takes_every_verdict() -> None:
    slower = [vendor(i, 1.1 if i == 0 else 1.03, seed=2, t=1.03, c=1.02 * 1.03) for i in range(24)]

    same_board = compare_stored(stored("a", many(1)), stored("b", slower), limits=LIMITS)
    other_board = compare_stored(stored("a", many(1)), stored("b", slower, board="f" * 12), limits=LIMITS)

    assert {(r.verdict, r.reason) for r in same_board.rows} == {("unclear", "lane-moved")}
    assert [lane.moved for lane in same_board.lanes] == [True]
    assert (one(other_board).verdict, other_board.lanes) == ("slower", ())
    assert [(d.field, d.role) for d in other_board.differences] == [("board", "shown")]


VERSIONS, SETTINGS = dict(H200.versions), dict(H200.settings)
OTHERS: dict[str, dict[str, object]] = {
    "product": {"product": "NVIDIA H100"},
    "power-limit": {"settings": {**SETTINGS, "power limit": "600 W"}},
    "clock-policy": {"settings": {**SETTINGS, "clocks": "locked at 1410 MHz"}},
    "ecc": {"settings": {**SETTINGS, "ECC": "off"}},
    "mig": {"settings": {**SETTINGS, "MIG": "on"}},
    "driver": {"versions": {**VERSIONS, "driver": "590.1"}},
    "torch": {"versions": {**VERSIONS, "torch": "2.14.0"}},
    "cuda": {"versions": {**VERSIONS, "cuda": "13.1"}},
    "cudnn": {"versions": {**VERSIONS, "cudnn": "9.20"}},
    "method": {"method_version": 2},
    "timer": {"timer": "cpu"},
}


@pytest.mark.parametrize("field", OTHERS)
def test_what_differs_is_not_comparable_unless_allowed_by_name(field: str) -> None:
    # CodSpeedHQ/codspeed#520, o1-labs/proof-systems#3593, NVIDIA/nvbench#297.
    base, head = stored("a", many(1)), stored("b", many(2, 1.05), **OTHERS[field])

    refused = compare_stored(base, head, limits=LIMITS)
    other = next(name for name in ALLOWABLE if name != field)
    still = compare_stored(base, head, allow={other}, limits=LIMITS)
    allowed = compare_stored(base, head, allow={field}, limits=LIMITS)

    reason = "environment" if field in ENVIRONMENT else "method"
    assert {(r.verdict, r.reason) for r in (*refused.rows, *still.rows)} == {("not comparable", reason)}
    assert refused.rows[0].detail.startswith(f"{field} ")
    assert [(d.field, d.role) for d in refused.differences] == [(field, "refused")]
    assert [(d.field, d.role) for d in allowed.differences] == [(field, "allowed")]
    assert one(allowed).verdict == "slower"


def test_another_regime_is_said_to_be_one() -> None:
    base = stored("a", many(1))
    moved = [replace(r, regime="sustained") for r in many(2, 1.05)]
    head = replace(run(*moved, arms=(OURS, T, C), run_id="b"))

    refused = compare_stored(base, head, limits=LIMITS)
    allowed = compare_stored(base, head, allow={"regime"}, limits=LIMITS)

    assert {(r.verdict, r.reason, r.detail) for r in refused.rows} == {
        ("not comparable", "method", "regime boost → sustained")
    }
    assert one(allowed).verdict == "slower"


def test_every_fact_that_may_be_allowed_is_tested_here() -> None:
    assert {*OTHERS, "regime"} == set(ALLOWABLE)


@pytest.mark.parametrize(
    "changes",
    [
        {"board": "f" * 12},
        {"versions": {**VERSIONS, "python": "3.12.1"}},
        {"settings": {**SETTINGS, "persistence": "off"}},
        {"seed": 4},
    ],
)
def test_what_does_not_matter_is_shown(changes: dict[str, object]) -> None:
    # NVIDIA/nvbench#278 and #297: one device under two numbers; a field that does not matter.
    comparison = compare_stored(stored("a", many(1)), stored("b", many(2, 1.05), **changes), limits=LIMITS)

    assert one(comparison).verdict == "slower"
    assert [d.role for d in comparison.differences] == ["shown"]


def test_one_name_with_other_sizes_is_not_comparable_whatever_is_allowed() -> None:
    head = many(2)
    shape = replace(head[0].case.shape, group_sizes=(28145, 28143, 28144, 28144))
    head[0] = replace(head[0], case=replace(head[0].case, shape=shape))

    found = one(compare_stored(stored("a", many(1)), stored("b", head), allow=ALLOWABLE, limits=LIMITS))

    assert (found.verdict, found.reason) == ("not comparable", "method")
    assert "sizes N 2048 K 2048 sizes 28144, 28144, 28144, 28144 → " in found.detail


def test_a_row_without_a_common_baseline_is_not_comparable() -> None:
    alone = row(named(0), {OURS: FAST[:6]})
    found = one(compare_stored(stored("a", [alone, *many(1)[1:]]), stored("b", many(2)), limits=LIMITS))

    assert (found.verdict, found.reason) == ("not comparable", "no-baseline")


def test_a_baseline_can_be_named() -> None:
    base, head = stored("a", many(1)), stored("b", many(2, 1.05))

    assert one(compare_stored(base, head, against=C, limits=LIMITS)).against == C
    with pytest.raises(UnknownName, match="baseline of --against 'cudnn' is not known; known: torch_grouped_mm, cub"):
        compare_stored(base, head, against="cudnn", limits=LIMITS)


def test_an_arm_that_is_not_ours_can_be_compared() -> None:
    head = stored("b", [vendor(i, 1.0, seed=2, c=1.02 * (1.05 if i == 0 else 1)) for i in range(24)])
    comparison = compare_stored(stored("a", many(1)), head, arms=(C,), limits=LIMITS)

    assert {r.id.arm for r in comparison.rows} == {C}
    with pytest.raises(UnknownName, match="arm of --arm 'quack' is not known"):
        compare_stored(head, head, arms=("quack",), limits=LIMITS)


def test_runs_without_an_arm_of_ours_are_refused() -> None:
    theirs = run(row(named(0), {T: FAST[:6]}), arms=(T,))

    with pytest.raises(NothingMeasured, match="neither run has an arm of ours, they have torch_grouped_mm"):
        compare_stored(theirs, theirs, limits=LIMITS)


def test_rows_of_one_side_are_new_or_missing_and_the_others_compared() -> None:
    # bheisler/criterion.rs#530 and phpbench/phpbench#1145: a row that the baseline does not have.
    base, head = many(1), many(2)
    comparison = compare_stored(stored("a", base[:-1]), stored("b", head[1:]), limits=LIMITS)

    assert (one(comparison, "row 000").verdict, one(comparison, "row 023").verdict) == ("missing", "new")
    assert comparison.counts["same"] == 22
    assert comparison.matched == 22


def test_a_row_of_base_alone_is_listed_and_has_no_part_in_the_geomean() -> None:
    # golang/go#19565: a row that only the old file had made the geomean -90 %.
    (equal, *others), alone = many(1), row(named(99), {OURS: (900_000,) * 6, T: FAST[:6], C: FAST[:6]})

    found = compare_stored(stored("a", [equal, *others, alone]), stored("b", [equal, *others]), limits=LIMITS)

    assert (one(found, "row 099").verdict, one(found, "row 099").reason) == ("missing", "no-baseline")
    (mean,) = found.geomeans
    assert (mean.value, mean.n, mean.expected_n) == (1.0, 24, 25)


def test_a_row_that_no_longer_fits_is_out_of_memory() -> None:
    head = [skipped(named(0), "needs 152.1 GiB of device memory for 3 arms, 139.8 GiB are usable"), *many(2)[1:]]
    found = one(compare_stored(stored("a", many(1)), stored("b", head), limits=LIMITS))

    assert (found.verdict, found.reason) == ("failed", "oom")
