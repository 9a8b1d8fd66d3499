"""The sign test: whether paired groups lie on one side more often than a coin would put them there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.stats.errors import require_at_most, require_finite
from harness.stats.null_distribution import Alternative, heads

MOST_GROUPS = 1000
"""Groups of one test: 0.5^1000 is still a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignTest:
    """What the test found.

    Attributes
    ----------
    p_value
        Exact, given the zeros. Never 0.
    min_p_value
        The smallest p-value that ``n`` groups can have: two-sided 2 / 2^n; 0.03125 for six, 0.0625 for five.
    n
        Groups that are not 0.
    positive
        Groups above 0.
    zeros
        Groups at 0: they are for neither side, and not in ``n``.
    """

    p_value: float
    min_p_value: float
    n: int
    positive: int
    zeros: int


def sign_test(values: Sequence[float], alternative: Alternative = "two-sided") -> SignTest:
    """Test that a paired group is as likely above 0 as below.

    Zeros are left out, and the test is conditional on their count (Dixon and Mood, JASA 41, 1946): among the tests that
    keep their level it is the most powerful one (Lehmann, *Testing Statistical Hypotheses*, 4.9). All at 0 give p = 1.

    It takes the groups for independent, and nothing else: no shape, no symmetry.

    Parameters
    ----------
    values
        Log ratios or differences of paired groups: 0 is no difference. At most 1000.
    alternative
        ``"greater"``: above 0 (of log(baseline / new): new is faster); ``"less"``: below.

    Returns
    -------
    SignTest
        Bitwise repeatable; does not depend on the order of the groups.

    Raises
    ------
    StatisticsError
        There is no value, one is no real number, NaN, infinite or too large for a float, there are more than 1000, or
        the alternative is unknown.
    """
    require_finite("sign_test", "values", values)
    require_at_most("sign_test", "values", len(values), MOST_GROUPS)
    positive = sum(value > 0 for value in values)
    n = sum(value != 0 for value in values)
    null = heads(n)
    return SignTest(
        p_value=null.p_value(positive, alternative),
        min_p_value=null.min_p_value(alternative),
        n=n,
        positive=positive,
        zeros=len(values) - n,
    )
