"""An interval for the median of a row's paired ratios, beside a sign test's p-value."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.stats.errors import require_at_most, require_confidence, require_positive
from harness.stats.interval import Interval
from harness.stats.median import median
from harness.stats.null_distribution import heads
from harness.stats.sign import MOST_GROUPS


def median_interval(ratios: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the median of paired ratios, with a distribution-free interval.

    From the c-th lowest ratio to the c-th highest, c the largest with P(B < c) <= (1 - confidence) / 2, B the heads of
    n tosses (Thompson, Ann. Math. Stat. 7, 1936). Six groups give [min, max], which covers with 0.969. Where
    no ratio is 1, 1 lies outside exactly where the two-sided ``sign_test`` of the logarithms gives
    p <= 1 - confidence. Nothing is assumed of the distribution's shape; ties make it cover more often. It takes the
    groups for independent: drift that they share makes it too narrow.

    Parameters
    ----------
    ratios
        Positive; one a paired group. At most 1000.
    confidence
        Least probability to cover, between 0 and 1.

    Returns
    -------
    Interval
        0 to infinity where no finite one has the confidence (five groups at 0.95). Bitwise repeatable.

    Raises
    ------
    StatisticsError
        There is no ratio, one is not positive and finite, there are more than 1000, or the confidence is no
        probability.
    """
    require_positive("median_interval", "ratios", ratios)
    require_confidence("median_interval", confidence)
    require_at_most("median_interval", "ratios", len(ratios), MOST_GROUPS)
    ordered = sorted(ratios)
    depth = heads(len(ordered)).depth(confidence)
    return Interval(
        estimate=median(ordered),
        low=ordered[depth - 1] if depth else 0.0,
        high=ordered[-depth] if depth else math.inf,
        confidence=confidence,
    )
