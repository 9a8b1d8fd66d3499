"""Which arm a round loads first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.rounds.model import Order
from harness.rounds.orders import first_roles

EVEN = st.integers(1, 50).map(lambda half: 2 * half)


@given(rounds=EVEN, order=st.sampled_from(["halves", "abba"]), seed=st.integers(0, 2**31 - 1))
def test_each_arm_is_loaded_first_in_exactly_half_of_the_rounds(rounds: int, order: Order, seed: int) -> None:
    firsts = first_roles(rounds, order, seed=seed)

    assert (firsts.count("baseline"), firsts.count("new")) == (rounds // 2, rounds // 2)


def test_halves_is_the_baseline_first_in_the_first_half() -> None:
    assert first_roles(6, "halves", seed=5) == ("baseline",) * 3 + ("new",) * 3


@given(rounds=EVEN, seed=st.integers(0, 2**31 - 1))
def test_a_linear_drift_cancels_in_every_whole_block_of_abba(rounds: int, seed: int) -> None:
    firsts = first_roles(rounds, "abba", seed=seed)

    for start in range(0, rounds - 3, 4):
        assert sum(place for place in range(4) if firsts[start + place] == "new") == 3


def test_abba_is_drawn_from_the_seed() -> None:
    drawn = {seed: first_roles(32, "abba", seed=seed) for seed in range(8)}

    assert drawn[0] == first_roles(32, "abba", seed=0)
    assert len(set(drawn.values())) == 8


@pytest.mark.parametrize("rounds", [0, 1, 3, -2])
def test_rounds_that_have_no_half_are_refused(rounds: int) -> None:
    with pytest.raises(ValueError, match=f"even and at least 2, half for each load order; got {rounds}"):
        first_roles(rounds, "halves", seed=0)
