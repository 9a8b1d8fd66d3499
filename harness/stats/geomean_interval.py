"""How far a geomean depends on which rows are in it: a bootstrap interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from harness.stats.errors import StatisticsError, require_confidence, require_integer, require_positive
from harness.stats.geomean import geomean
from harness.stats.interval import Interval


def geomean_interval(
    ratios: Sequence[float], *, seed: int, confidence: float = 0.95, resamples: int = 10_000
) -> Interval:
    """Return the geomean of rows' ratios, with a bootstrap-t interval.

    Rows are drawn with replacement; of each resample, t is how far its mean of logarithms lies from the sample's, in
    its own standard errors. The interval takes the k-th lowest and k-th highest t, k = floor((resamples + 1) *
    (1 - confidence) / 2), times the sample's standard error (Efron, Canadian J. Stat. 9, 1981; Davison and Hinkley,
    *Bootstrap Methods*, 1997, 5.2). The plain percentile interval is too narrow at the row counts of a table (at 14 it
    covers with 0.92 and not 0.95); this one covers what it says within a per cent where logarithms are normal;
    skewed ones (exponential) and heavy tails (Student's t, 3 degrees) cost it up to three.

    It says how the geomean would move with other rows *like these*: suites are chosen, not drawn, and the rows' own
    noise is in it only as far as it spreads them. It takes the rows for independent.

    Parameters
    ----------
    ratios
        Positive; one a row.
    seed
        Of PCG64, >= 0. The caller stores it.
    confidence
        Probability to cover, between 0 and 1.
    resamples
        At least 2 / (1 - confidence).

    Returns
    -------
    Interval
        ``low`` is 0 where k resamples or more hold one ratio alone, above the geomean: their t is infinite. ``high`` is
        infinity where k do so below it. Of n rows, c equal ones do it in a share (c / n)^n of resamples; so at 0.95 one
        row to three give both, four or more unequal ones neither, four with a tie at least one. Nearly equal ratios
        give an end that is as good as none. Ratios that are all equal give that ratio at both ends, but for
        one row. Does not depend on the order of the rows; bitwise repeatable for one seed, one numpy and one machine.

    Raises
    ------
    StatisticsError
        There is no row, a ratio is not positive and finite, the confidence is no probability, the seed is no integer
        >= 0, or there are too few resamples.
    """
    # Here: numpy takes a tenth of a second to import, and most of what reads a run needs none.
    import numpy as np

    require_positive("geomean_interval", "ratios", ratios)
    require_confidence("geomean_interval", confidence)
    require_integer("geomean_interval", "seed", seed, 0)
    require_integer("geomean_interval", "resamples", resamples, 1)
    depth = math.floor((resamples + 1) * (1 - Fraction(str(confidence))) / 2)
    if depth < 1:
        raise StatisticsError(
            f"geomean_interval: resamples must be at least 2 / (1 - confidence), got {resamples} for {confidence}"
        )
    estimate = geomean(ratios)
    if len(ratios) == 1:
        return Interval(estimate=estimate, low=0.0, high=math.inf, confidence=confidence)
    logs = np.log(np.sort(np.asarray(ratios, dtype=np.float64)))
    if logs[0] == logs[-1]:
        return Interval(estimate=estimate, low=estimate, high=estimate, confidence=confidence)

    drawn = np.random.Generator(np.random.PCG64(seed)).choice(logs, size=(resamples, len(logs)))
    away = drawn.mean(axis=1) - logs.mean()
    # One row again and again has no standard error, whatever the rounding of its mean says.
    varies = drawn.min(axis=1) < drawn.max(axis=1)
    t = np.divide(away, drawn.std(axis=1), out=np.copysign(np.inf, away), where=varies)
    t.sort()
    with np.errstate(over="ignore"):
        low, high = np.exp(math.log(estimate) - logs.std() * t[[-depth, depth - 1]])
    # At a confidence of a few per cent both ends can lie on one side of the estimate.
    return Interval(
        estimate=estimate, low=min(float(low), estimate), high=max(float(high), estimate), confidence=confidence
    )
