"""How many rows look clear by chance alone."""

from __future__ import annotations

import math
from collections.abc import Iterable


def rows_by_chance(groups: Iterable[int]) -> float:
    """Return how many rows are expected to have all their ratios above 1 where new and baseline are equally fast.

    ``groups`` holds the count of ratios of each row; the result is the sum of 0.5^n (the sign test's smallest
    one-sided p, summed over the rows): six groups lie wholly above 1 once in 64 rows. The same number holds for
    "wholly below". It takes the groups for independent; drift that groups share makes the true count larger.

    Raises
    ------
    ValueError
        A row has no group.
    """
    counts = tuple(groups)
    for row, count in enumerate(counts):
        if count < 1:
            raise ValueError(f"rows_by_chance: groups[{row}] must be >= 1, got {count}")
    return math.fsum(0.5**count for count in counts)
