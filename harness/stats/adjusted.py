"""P-values adjusted for how many were tested: false discoveries (Benjamini-Hochberg), any error at all (Holm)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.stats.errors import StatisticsError, is_finite, require_collection


def benjamini_hochberg(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return the q-value of each p-value: naming all rows with q <= 0.05 makes 5 % of the named ones false, on average.

    The i-th lowest p of m becomes the least of p * m / j over all j >= i, at most 1 (Benjamini and Hochberg, J. Royal
    Stat. Soc. B 57, 1995). Holds for independent rows and for rows that move together; rows that move against one
    another can make more of the named ones false (Benjamini and Yekutieli, Ann. Stat. 29, 2001).

    ``p_values`` are those of all rows tested, also those that show nothing: to leave these out makes every q too small.
    The result is in their order, never below its p, and bitwise repeatable; of no p-values it is empty.

    Raises
    ------
    StatisticsError
        A p-value is no real number, NaN, not above 0, or above 1.
    """
    listed = _p_values("benjamini_hochberg", p_values)
    m = len(listed)
    adjusted = [1.0] * m
    least = 1.0
    for place, index in enumerate(sorted(range(m), key=listed.__getitem__, reverse=True)):
        least = adjusted[index] = min(least, listed[index] * (m / (m - place)))
    return tuple(adjusted)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's adjusted p-values: naming all cells with one <= 0.05 names a false one in 5 % of tables at most.

    The i-th lowest p of m becomes the largest of p * (m - j + 1) over all j <= i, at most 1 (Holm, Scandinavian J.
    Stat. 6, 1979). Holds whatever the dependence.

    ``p_values`` are those of all cells tested. The result is in their order, never below its p, and bitwise repeatable;
    of no p-values it is empty.

    Raises
    ------
    StatisticsError
        A p-value is no real number, NaN, not above 0, or above 1.
    """
    listed = _p_values("holm", p_values)
    m = len(listed)
    adjusted = [1.0] * m
    largest = 0.0
    for rank, index in enumerate(sorted(range(m), key=listed.__getitem__)):
        largest = adjusted[index] = max(largest, min(1.0, listed[index] * (m - rank)))
    return tuple(adjusted)


def _p_values(of: str, p_values: object) -> list[float]:
    listed = []
    for index, p in enumerate(require_collection(of, "p_values", p_values)):
        if not (is_finite(p, of, f"p_values[{index}]") and 0 < p <= 1):
            raise StatisticsError(
                f"{of}: p_values[{index}] must be above 0 and at most 1, got {p!r}; "
                "a row without a test is listed apart, and an exact p is never 0"
            )
        listed.append(float(p))
    return listed
