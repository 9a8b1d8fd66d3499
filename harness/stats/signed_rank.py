"""The Wilcoxon signed-rank test, exact with ties and zeros: whether paired groups differ, sizes counted too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.stats.errors import require_at_most, require_finite
from harness.stats.null_distribution import Alternative, sums_of_signs
from harness.stats.ranks import doubled_ranks

MOST_GROUPS = 200
"""Groups of one test: above, the exact distribution takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRank:
    """What the test found.

    Attributes
    ----------
    p_value
        Exact, given ties and zeros. Never 0.
    min_p_value
        The smallest p-value that ``n`` groups can have: two-sided 2 / 2^n; 0.03125 for six, 0.0625 for five.
    n
        Groups that are not 0.
    rank_sum
        Sum of the ranks of the groups above 0; a multiple of 1/2.
    zeros
        Groups at 0: they take the lowest ranks, and are for neither side.
    """

    p_value: float
    min_p_value: float
    n: int
    rank_sum: float
    zeros: int


def signed_rank(values: Sequence[float], alternative: Alternative = "two-sided") -> SignedRank:
    """Test that paired groups lie symmetrically around 0.

    Every choice of signs of the mid-ranks of the absolute values is equally likely (Wilcoxon, Biometrics Bulletin 1,
    1945). Zeros are ranked with the others and then give nothing to either side (Pratt, JASA 54, 1959). To drop them
    before ranking, as Wilcoxon did, keeps the level too, but a sample can then look more clearly above 0 after every
    value has fallen. All at 0 give p = 1.

    It takes the groups for independent and, where new and baseline are equally fast, symmetric around 0; a skewed null
    makes p too small. Where the skew is not known, take ``sign_test``.

    Parameters
    ----------
    values
        Log ratios or differences of paired groups: 0 is no difference. Log ratios treat twice as fast and twice as slow
        alike; differences weigh slow groups more. At most 200.
    alternative
        ``"greater"``: above 0 (of log(baseline / new): new is faster); ``"less"``: below.

    Returns
    -------
    SignedRank
        Bitwise repeatable; does not depend on the order of the groups.

    Raises
    ------
    StatisticsError
        There is no value, one is NaN or infinite, there are more than 200, or the alternative is unknown.
    """
    require_finite("signed_rank", "values", values)
    require_at_most("signed_rank", "values", len(values), MOST_GROUPS)
    ranks = doubled_ranks([abs(value) for value in values])
    signed = [rank for rank, value in zip(ranks, values, strict=True) if value != 0]
    rank_sum = sum(rank for rank, value in zip(ranks, values, strict=True) if value > 0)
    null = sums_of_signs(signed)
    return SignedRank(
        p_value=null.p_value(rank_sum, alternative),
        min_p_value=null.min_p_value(alternative),
        n=len(signed),
        rank_sum=rank_sum / 2,
        zeros=len(values) - len(signed),
    )
