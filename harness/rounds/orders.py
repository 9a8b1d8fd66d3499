"""Which arm is loaded first in each round: half and half, in two halves or in blocks of four."""

from __future__ import annotations

import random

from harness.rounds.model import Order, Role

_BLOCKS: tuple[tuple[Role, ...], ...] = (("baseline", "new", "new", "baseline"), ("new", "baseline", "baseline", "new"))


def first_roles(rounds: int, order: Order, *, seed: int) -> tuple[Role, ...]:
    """Return the role that is loaded first in each of ``rounds`` rounds; each role is first in exactly half of them.

    ``halves``: the first half of the rounds loads the baseline first, the second half the new, as published. What
    drifts over the run then falls on one load order. ``abba``: blocks of four rounds, the order of each drawn from
    ``seed``: baseline, new, new, baseline or its mirror image, in which a linear drift cancels; two rounds that are
    left are one each.

    Raises
    ------
    ValueError
        ``rounds`` is odd or below 2.
    """
    if rounds < 2 or rounds % 2:
        raise ValueError(f"rounds must be even and at least 2, half for each load order; got {rounds}")
    if order == "halves":
        halves: tuple[tuple[Role, ...], ...] = (("baseline",), ("new",))
        return tuple(role for half in halves for role in half * (rounds // 2))
    source = random.Random(seed)
    drawn: list[Role] = []
    while len(drawn) < rounds:
        drawn += source.choice(_BLOCKS)[: rounds - len(drawn)]
    return tuple(drawn)
