"""The minimum-effect test: whether one side differs from the other by more than a floor, and not only from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.stats.errors import StatisticsError, is_finite, require_positive
from harness.stats.mann_whitney import mann_whitney_u


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumEffect:
    """What the test found.

    Attributes
    ----------
    p_value
        Two-sided; exact, given the ties, where the true ratio lies at the floor, and too large where it lies within.
        Never 0.
    min_p_value
        The smallest p-value that sides of these sizes with these ties can have.
    """

    p_value: float
    min_p_value: float


def minimum_effect(x: Sequence[float], y: Sequence[float], floor: float) -> MinimumEffect:
    """Test that the ratio x / y lies within 1 / (1 + floor) and 1 + floor.

    The test of a difference that matters (Hodges and Lehmann, J. Royal Stat. Soc. B 16, 1954), by ``mann_whitney_u``:
    twice the smaller of two one-sided p-values, that of x being lower than y although it is multiplied by 1 + floor,
    and that of x being higher than y although y is; at most 1. With a floor of 0 it is the two-sided
    ``mann_whitney_u``.

    It takes the values for independent and one side for the other times a constant. Swapping x and y changes nothing.

    Parameters
    ----------
    x, y
        Positive, of one unit, of any order. Together at most 200.
    floor
        As a part, >= 0: 0.01 is 1 %.

    Returns
    -------
    MinimumEffect
        Bitwise repeatable; does not depend on the order of the values.

    Raises
    ------
    StatisticsError
        A side is empty, a value is not positive and finite, there are more than 200, or the floor is not finite or
        negative.
    """
    require_positive("minimum_effect", "x", x)
    require_positive("minimum_effect", "y", y)
    if not (is_finite(floor, "minimum_effect", "floor") and floor >= 0):
        raise StatisticsError(f"minimum_effect: floor must be finite and >= 0, got {floor}; say 0.01 for 1 %")
    lower = mann_whitney_u([value * (1 + floor) for value in x], y, "less")
    higher = mann_whitney_u(x, [value * (1 + floor) for value in y], "greater")
    return MinimumEffect(
        p_value=min(1.0, 2 * min(lower.p_value, higher.p_value)),
        min_p_value=min(1.0, 2 * min(lower.min_p_value, higher.min_p_value)),
    )
