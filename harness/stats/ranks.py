"""Mid-ranks, doubled: integers also where values tie."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def doubled_ranks(values: Sequence[float]) -> tuple[int, ...]:
    """Return twice the rank of each value, from 2; equal values share the mean of their ranks.

    The mean of the ranks first to last is (first + last) / 2, so that its double is an integer. The values are compared
    as they are: integers above 2^53 are not rounded.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0] * len(values)
    before = 0
    for _, same in itertools.groupby(order, key=values.__getitem__):
        tied = tuple(same)
        for index in tied:
            ranks[index] = 2 * before + 1 + len(tied)
        before += len(tied)
    return tuple(ranks)
