"""The order of arms in paired groups: a Williams design, balanced in position and in predecessor."""

from __future__ import annotations

import math


def design_size(n_arms: int) -> int:
    """Return how many groups a Williams design of ``n_arms`` has: n for an even number, 2 n for an odd one."""
    return n_arms if n_arms % 2 == 0 else 2 * n_arms


def group_count(n_arms: int, at_least: int) -> int:
    """Return the least number of groups, ``at_least`` or more, over which the orders balance."""
    size = max(1, design_size(n_arms))
    return size * math.ceil(at_least / size)


def orders(n_arms: int, groups: int) -> list[tuple[int, ...]]:
    """Return the order of the arms 0..n-1 in each of ``groups`` groups.

    In every full design each arm stands at each position equally often, and follows each other arm equally often, so
    that neither drift nor what a predecessor leaves behind (heat, power, dirty lines) is charged to one arm.

    Source: E. J. Williams, "Experimental designs balanced for the estimation of residual effects of treatments",
    Australian Journal of Scientific Research A 2 (1949). First row 0, 1, n-1, 2, n-2, ...; the others add a constant
    modulo n; for odd n the mirrored rows follow.

    Raises
    ------
    ValueError
        ``groups`` does not balance: it must be a multiple of :func:`design_size`.
    """
    size = design_size(n_arms)
    if n_arms < 1 or groups % size:
        raise ValueError(f"groups must be a multiple of {size} for {n_arms} arms, got {groups}")
    first = [0] + [(i + 1) // 2 if i % 2 else n_arms - i // 2 for i in range(1, n_arms)]
    rows = [tuple((arm + shift) % n_arms for arm in first) for shift in range(n_arms)]
    if n_arms % 2:
        rows += [tuple(reversed(row)) for row in rows]
    return [rows[i % size] for i in range(groups)]
