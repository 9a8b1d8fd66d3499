"""The paired groups of many rows: each row's exact tests, and its q among the rows tested."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.stats.adjusted import benjamini_hochberg
from harness.stats.errors import require_positive
from harness.stats.sign import sign_test
from harness.stats.signed_rank import signed_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """What the paired groups of a row say; two-sided, and whatever the size of the effect.

    Attributes
    ----------
    n
        Groups whose ratio is not 1.
    faster
        Of these, groups whose ratio is above 1.
    sign_p, sign_q
        Of ``sign_test``, and q by ``benjamini_hochberg`` over the rows tested.
    signed_rank_p, signed_rank_q
        Of ``signed_rank`` likewise.
    p_in_reach
        The smallest p that ``n`` groups can have, of either test: 2 / 2^n, 0.03125 for six. Both tests reach it where
        all groups lie on one side of 1, and only there.
    """

    n: int
    faster: int
    sign_p: float
    sign_q: float
    signed_rank_p: float
    signed_rank_q: float
    p_in_reach: float

    @property
    def at_its_smallest(self) -> bool:
        """Whether no result of so many groups could have a smaller p."""
        return self.n > 0 and self.faster in (0, self.n)


def paired_tests(rows: Sequence[Sequence[float]]) -> tuple[PairedTest, ...]:
    """Return the exact sign and signed-rank tests of each row's ratios, with q over all ``rows``.

    The tests are made of the logarithms, so that twice and half as fast weigh alike. Each takes the groups of a row for
    independent; the signed rank also takes the noise for symmetric.

    Parameters
    ----------
    rows
        For each row tested the ratio baseline / new of each paired group; at most 200 a row. Whether a row is tested
        must not depend on its ratios.

    Raises
    ------
    StatisticsError
        A row has no ratio, more than 200, or one that is not positive and finite.
    """
    for ratios in rows:
        require_positive("paired_tests", "ratios", ratios)
    logs = [[math.log(ratio) for ratio in ratios] for ratios in rows]
    signs = [sign_test(values) for values in logs]
    ranks = [signed_rank(values) for values in logs]
    sign_q = benjamini_hochberg([test.p_value for test in signs])
    rank_q = benjamini_hochberg([test.p_value for test in ranks])
    return tuple(
        PairedTest(
            n=sign.n,
            faster=sign.positive,
            sign_p=sign.p_value,
            sign_q=q_of_sign,
            signed_rank_p=rank.p_value,
            signed_rank_q=q_of_rank,
            p_in_reach=sign.min_p_value,
        )
        for sign, rank, q_of_sign, q_of_rank in zip(signs, ranks, sign_q, rank_q, strict=True)
    )
