"""What chance gives where new and baseline are equally fast: rows that look clear, and how far off the furthest is."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence

from harness.stats.errors import StatisticsError, require_collection, require_integer, require_positive
from harness.stats.median import median

DRAWS = 1000
"""Draws behind the furthest row; it is printed to three decimals, and its error is a few per cent of its distance."""


def rows_by_chance(groups: Iterable[int]) -> float:
    """Return how many rows are expected to have all their ratios above 1 where new and baseline are equally fast.

    ``groups`` holds the count of ratios of each row; the result is the sum of 0.5^n (the sign test's smallest
    one-sided p, summed over the rows): six groups lie wholly above 1 once in 64 rows. The same number holds for
    "wholly below". It takes the groups for independent; drift that groups share makes the true count larger.

    Raises
    ------
    StatisticsError
        A count is no integer >= 1.
    """
    counts = tuple(groups)
    for row, count in enumerate(counts):
        require_integer("rows_by_chance", f"groups[{row}]", count, 1)
    return math.fsum(0.5**count for count in counts)


def highest_by_chance(rows: Iterable[Sequence[Sequence[float]]]) -> float:
    """Return how high the highest row is expected to be where new and baseline are equally fast.

    Each row is the group ratios of its cards. What is left of their logarithms once the card's median is taken away is
    the row's noise; its signs are drawn anew, and the row is the median of that, then over the cards. The result is the
    mean over 1000 draws of the highest row; the lowest is expected at its reciprocal. Residuals are widened by
    sqrt(n / (n - 1)), because a median follows its own sample. The draws are seeded, and do not depend on the order of
    rows, cards or groups.

    The noise is taken for symmetric and the groups for independent: drift that groups share makes the true one larger.
    (Signs of the ratios themselves, not of the residuals, would count the effect as noise.)

    Raises
    ------
    StatisticsError
        There is no row, a card has fewer than two ratios, or one is no real number, or not positive and finite.
    """
    residuals = sorted(tuple(sorted(map(_residuals, cards))) for cards in rows)
    if not residuals:
        raise StatisticsError("highest_by_chance: rows must hold at least one row, got none; say nothing of chance")
    source = random.Random(0)
    highest = [-math.inf] * DRAWS
    for cards in residuals:
        drawn = [_draws(card, source) for card in cards]
        row = drawn[0] if len(drawn) == 1 else [_middle(sorted(medians)) for medians in zip(*drawn, strict=True)]
        highest = list(map(max, highest, row))
    return math.exp(math.fsum(highest) / DRAWS)


def _residuals(ratios: Sequence[float]) -> tuple[float, ...]:
    n = len(require_collection("highest_by_chance", "a card's ratios", ratios))
    if n < 2:
        raise StatisticsError(
            f"highest_by_chance: a card must have two ratios at least, got {n}; leave the row out: it shows no noise"
        )
    require_positive("highest_by_chance", "a card's ratios", ratios)
    logs = [math.log(ratio) for ratio in ratios]
    middle = median(logs)
    return tuple(sorted(abs(log - middle) * math.sqrt(n / (n - 1)) for log in logs))


def _draws(residuals: Sequence[float], source: random.Random) -> list[float]:
    """Return the median under random signs, draw by draw; of six residuals there are 64 such medians."""
    patterns = [source.getrandbits(len(residuals)) for _ in range(DRAWS)]
    medians = {signs: _signed_median(residuals, signs) for signs in set(patterns)}
    return [medians[signs] for signs in patterns]


def _signed_median(residuals: Sequence[float], signs: int) -> float:
    """Return the median of the residuals, each negative where its bit is set."""
    return _middle(sorted(-r if signs >> place & 1 else r for place, r in enumerate(residuals)))


def _middle(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return (ordered[half] + ordered[~half]) / 2
