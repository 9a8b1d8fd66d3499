"""Which of a library's candidates an arm takes: screened without rest, then timed after one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from harness.arms._fastest import SCREENING_ROUNDS, TIMED_ROUNDS, chosen

Clock = Callable[[str, float], float]


def scripted(
    back_to_back: dict[str, list[float]], rested: dict[str, list[float]], calls: list[tuple[str, float]]
) -> Clock:
    """Return a timer that reads the next of a candidate's times, and writes down what it was asked."""
    left = {
        (name, bool(rest)): iter(times) for rest, of in ((0, back_to_back), (1, rested)) for name, times in of.items()
    }

    def time_ms(candidate: str, rest_ms: float) -> float:
        calls.append((candidate, rest_ms))
        return next(left[candidate, rest_ms > 0])

    return time_ms


def test_times_after_a_rest_decide_not_those_back_to_back() -> None:
    """At one clock the one of fewer cycles wins; rested, the one of less power."""
    timer = scripted(
        {"few cycles": [9.0, 9.0], "little power": [9.5, 9.5]}, {"few cycles": [8.0] * 5, "little power": [7.5] * 5}, []
    )

    assert chosen(["few cycles", "little power"], timer) == "little power"


def test_a_candidate_far_behind_is_not_timed_again() -> None:
    calls: list[tuple[str, float]] = []
    timer = scripted(
        {"near": [10.0, 10.0], "slow": [12.1, 12.2], "edge": [12.0, 13.0]},
        {"near": [9.0] * 5, "edge": [9.5] * 5},
        calls,
    )

    assert chosen(["near", "slow", "edge"], timer) == "near"
    asked = Counter(name for name, _ in calls)
    assert asked == {
        "near": SCREENING_ROUNDS + TIMED_ROUNDS,
        "edge": SCREENING_ROUNDS + TIMED_ROUNDS,
        "slow": SCREENING_ROUNDS,
    }


def test_the_rest_is_as_long_as_the_candidates_shorter_call() -> None:
    calls: list[tuple[str, float]] = []
    timer = scripted({"a": [10.0, 30.0], "b": [11.0, 10.5]}, {"a": [9.0] * 5, "b": [9.5] * 5}, calls)

    chosen(["a", "b"], timer)

    assert set(calls) == {("a", 0.0), ("b", 0.0), ("a", 10.0), ("b", 10.5)}


def test_one_call_does_not_decide() -> None:
    """A hiccup of the screening, two of the rounds, and one lucky call: the shorter call, the median."""
    rested = {"a": [8.0, 99.0, 8.0, 99.0, 8.0], "b": [9.0, 9.0, 7.0, 9.0, 9.0]}
    timer = scripted({"a": [99.0, 10.0], "b": [10.0, 10.0]}, rested, [])

    assert chosen(["a", "b"], timer) == "a"


def test_candidates_take_turns() -> None:
    """So that a drift of the clock meets all of them alike."""
    calls: list[tuple[str, float]] = []
    timer = scripted({"a": [10.0, 10.0], "b": [10.0, 10.0]}, {"a": [9.0] * 5, "b": [9.5] * 5}, calls)

    chosen(["a", "b"], timer)

    assert [name for name, rest in calls if rest] == ["a", "b"] * TIMED_ROUNDS
