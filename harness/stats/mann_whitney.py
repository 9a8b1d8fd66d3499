"""The Mann-Whitney U test, exact with ties: whether the values of one side are lower than those of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.stats.errors import require_at_most, require_finite
from harness.stats.null_distribution import Alternative, sums_of_subsets
from harness.stats.ranks import doubled_ranks

MOST_VALUES = 200
"""Values of both sides together: above, the exact distribution takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MannWhitney:
    """What the test found.

    Attributes
    ----------
    p_value
        Exact, given the ties. Never 0.
    min_p_value
        The smallest p-value that sides of these sizes with these ties can have: above the limit, the test could not
        have found anything, and says nothing. 3 v 3 give 0.1 two-sided: they cannot reach 0.05.
    u
        Pairs (x, y) with x > y, and half of those with x = y; a multiple of 1/2.
    n_x, n_y
        Values of each side.
    """

    p_value: float
    min_p_value: float
    u: float
    n_x: int
    n_y: int

    @property
    def superiority(self) -> float:
        """P(X < Y) + P(X = Y) / 2 over all pairs: of times, how often x is the faster one. 0.5 is no difference."""
        pairs = self.n_x * self.n_y
        return (pairs - self.u) / pairs


def mann_whitney_u(x: Sequence[float], y: Sequence[float], alternative: Alternative = "two-sided") -> MannWhitney:
    """Test that x and y come from one distribution.

    The p-value is that of the conditional permutation distribution: every choice of ``len(x)`` of the pooled mid-ranks
    is equally likely (Mann and Whitney, Ann. Math. Stat. 18, 1947; with ties, Lehmann, *Nonparametrics*, 1975, 1.4).
    Two-sided, it is min(1, 2 * the smaller tail). 32 v 32 take hundredths of a second.

    It takes the values for independent. Rounds that follow one another on a warming card are not: p is then too small.
    It ignores pairing: for paired groups, see ``sign_test`` and ``signed_rank``.

    Parameters
    ----------
    x, y
        Values of one unit, of any order; ints are compared exactly. Together at most 200.
    alternative
        ``"less"``: x is lower (of times: x is faster); ``"greater"``: x is higher.

    Returns
    -------
    MannWhitney
        Bitwise repeatable; does not depend on the order of the values.

    Raises
    ------
    StatisticsError
        A side is empty, a value is NaN or infinite, there are more than 200 values, or the alternative is unknown.
    """
    require_finite("mann_whitney_u", "x", x)
    require_finite("mann_whitney_u", "y", y)
    n_x, n_y = len(x), len(y)
    require_at_most("mann_whitney_u", "values of both sides together", n_x + n_y, MOST_VALUES)
    ranks = doubled_ranks([*x, *y])
    rank_sum = sum(ranks[:n_x])
    null = sums_of_subsets(ranks, n_x)
    return MannWhitney(
        p_value=null.p_value(rank_sum, alternative),
        min_p_value=null.min_p_value(alternative),
        u=(rank_sum - n_x * (n_x + 1)) / 2,
        n_x=n_x,
        n_y=n_y,
    )
