import math

import pytest

from harness.stats import StatisticsError, benjamini_hochberg, paired_tests, sign_test, signed_rank

FASTER = (1.012, 1.008, 1.021, 1.003, 1.015, 1.017)
SLOWER = tuple(1 / ratio for ratio in FASTER)
MIXED = (1.01, 0.99, 1.02, 0.97, 1.03, 1.04)


def test_each_row_has_both_tests_of_its_log_ratios() -> None:
    mixed = paired_tests([FASTER, MIXED])[1]

    logs = [math.log(ratio) for ratio in MIXED]
    assert (mixed.sign_p, mixed.signed_rank_p) == (sign_test(logs).p_value, signed_rank(logs).p_value)
    assert (mixed.n, mixed.faster, mixed.at_its_smallest) == (6, 4, False)


def test_six_groups_on_one_side_have_the_smallest_p_that_six_can_have() -> None:
    faster, slower = paired_tests([FASTER, SLOWER])

    assert faster.sign_p == faster.signed_rank_p == faster.p_in_reach == 0.03125
    assert slower.sign_p == slower.signed_rank_p == slower.p_in_reach == 0.03125
    assert (faster.faster, slower.faster) == (6, 0)
    assert faster.at_its_smallest
    assert slower.at_its_smallest


def test_q_is_over_all_rows_tested_also_those_that_show_nothing() -> None:
    tests = paired_tests([FASTER, *[MIXED] * 9])

    assert tests[0].signed_rank_q == pytest.approx(0.3125)
    assert [test.signed_rank_q for test in tests] == list(benjamini_hochberg([t.signed_rank_p for t in tests]))
    assert [test.sign_q for test in tests] == list(benjamini_hochberg([test.sign_p for test in tests]))


def test_groups_that_are_equally_fast_leave_less_in_reach() -> None:
    (equal,) = paired_tests([(1.0,) * 6])
    (five,) = paired_tests([(1.0, *FASTER[:5])])

    assert (equal.n, equal.signed_rank_p, equal.p_in_reach, equal.at_its_smallest) == (0, 1.0, 1.0, False)
    assert (five.n, five.sign_p, five.p_in_reach) == (5, 0.0625, 0.0625)


def test_no_rows_give_no_tests() -> None:
    assert paired_tests([]) == ()


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_ratio_that_is_none_is_refused_and_not_dropped(bad: float) -> None:
    with pytest.raises(StatisticsError, match=r"paired_tests: ratios\[1\] must be"):
        paired_tests([FASTER, (1.01, bad)])
