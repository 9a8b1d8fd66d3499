from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.orders import group_count, orders


@pytest.mark.parametrize(("n_arms", "groups"), [(1, 6), (2, 6), (3, 6), (4, 8), (5, 10), (6, 6), (7, 14), (8, 8)])
def test_six_groups_grow_until_the_design_balances(n_arms: int, groups: int) -> None:
    assert group_count(n_arms, at_least=6) == groups


@given(n_arms=st.integers(1, 9), at_least=st.integers(1, 20))
def test_each_arm_stands_at_each_position_equally_often(n_arms: int, at_least: int) -> None:
    groups = group_count(n_arms, at_least)
    rows = orders(n_arms, groups)

    assert all(sorted(row) == list(range(n_arms)) for row in rows)
    for position in range(n_arms):
        assert set(Counter(row[position] for row in rows).values()) == {groups // n_arms}


@given(n_arms=st.integers(2, 9))
def test_each_arm_follows_each_other_equally_often(n_arms: int) -> None:
    rows = orders(n_arms, group_count(n_arms, at_least=6))

    follows = Counter(pair for row in rows for pair in pairwise(row))

    assert len(follows) == n_arms * (n_arms - 1)
    assert len(set(follows.values())) == 1


def test_groups_that_do_not_balance_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 4 for 4 arms, got 6"):
        orders(4, 6)
