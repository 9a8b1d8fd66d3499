"""Distributions: how M rows spread over E experts. One rule a file; this file holds what a distribution is.

A module ``harness/distributions/<name>.py`` has one class ``Sizes``, a :class:`Distribution`: its fields are the
parameters, its first field is the one that a short form names (``zipf:1.2``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Self

from harness import plugins
from harness.errors import PluginError, ShapesError
from harness.model.shape import refuse_dim
from harness.strict import Strict


class Distribution(Strict, ABC):
    """A rule with its parameters. Integers in, integers out; the same ones every time."""

    @abstractmethod
    def group_sizes(self, *, E: int, M: int) -> tuple[int, ...]:
        """Return E sizes >= 0 that sum to M; E >= 1, M >= 0.

        Raises
        ------
        ShapesError
            The rule has no such sizes.
        """

    def dims(self) -> tuple[int, int] | None:
        """Return (E, M) where the distribution itself fixes them, as a recorded trace does; else None."""
        return None

    def beside(self, folder: Path) -> Self:
        """Return the same rule with file names taken from ``folder``."""
        del folder
        return self

    def words(self) -> str:
        """Return what reproduces the sizes, without any path: ``lognormal(cv=0.35, seed=0)``."""
        parameters = ", ".join(f"{name}={value}" for name, value in self)
        return f"{self.stem()}({parameters})" if parameters else self.stem()

    def short(self) -> str:
        """Return the short form: the name, and the first parameter after a colon: ``zipf:1.2``."""
        first = next((value for _, value in self), None)
        return self.stem() if first is None else f"{self.stem()}:{number_text(first)}"

    @classmethod
    def stem(cls) -> str:
        """Return the rule's name, its file's stem."""
        return cls.__module__.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Group sizes, and the words that reproduce them."""

    group_sizes: tuple[int, ...]
    words: str


def load(name: str) -> type[Distribution]:
    """Return the class of the distribution ``name``; its fields are the parameters.

    Raises
    ------
    UnknownName
        The message lists the known ones.
    PluginError
        Its import fails, or it has no class ``Sizes``.
    """
    found: object = getattr(plugins.load("distributions", name), "Sizes", None)
    if not (isinstance(found, type) and issubclass(found, Distribution)):
        raise PluginError(f"distribution {name!r} must have a class Sizes(Distribution), got {found!r}")
    return found


def draw(distribution: Distribution, *, E: int | None, M: int | None, ascending: bool = False) -> Drawn:
    """Return the sizes of E experts with M rows together; ``ascending`` reverses their order.

    E and M may be ``None`` where the distribution itself fixes them, and must agree with it where they are given.

    Raises
    ------
    ShapesError
        E or M is missing, out of range or differs from the trace's, or the rule has no such sizes.
    PluginError
        The rule gave sizes that are not E integers >= 0 with the sum M.
    """
    E, M = _settle(distribution, E, M)
    sizes = distribution.group_sizes(E=E, M=M)
    if len(sizes) != E or sum(sizes) != M or any(type(size) is not int or size < 0 for size in sizes):
        raise PluginError(
            f"distribution {distribution.stem()!r} must give {E} integers >= 0 with the sum {M}, got"
            f" {len(sizes)} with the sum {sum(sizes)}"
        )
    words = distribution.words()
    return (
        Drawn(group_sizes=sizes[::-1], words=f"{words}, ascending")
        if ascending
        else Drawn(group_sizes=sizes, words=words)
    )


def largest_remainder(weights: Sequence[int | float | Fraction], M: int) -> tuple[int, ...]:
    """Return integers in proportion to ``weights`` that sum to M, each less than 1 away from its exact share.

    Each gets its share rounded down; what is left goes by ones to the largest remainders, of equal ones to the
    first. Fractions throughout, so no M is too large.

    Parameters
    ----------
    weights
        Finite and >= 0, with a sum > 0. A float counts as the binary fraction that it is.
    M
        Sum of the result, >= 0.
    """
    exact = [Fraction(weight) for weight in weights]
    # One denominator for all turns the shares into integers: share = whole * M / total.
    denominator = math.lcm(*(weight.denominator for weight in exact))
    whole = [weight.numerator * (denominator // weight.denominator) for weight in exact]
    total = sum(whole)
    floors = [weight * M // total for weight in whole]
    remainders = [weight * M % total for weight in whole]
    by_remainder = sorted(range(len(whole)), key=lambda index: -remainders[index])
    lucky = set(by_remainder[: M - sum(floors)])
    return tuple(floor + (index in lucky) for index, floor in enumerate(floors))


def number_text(value: object) -> str:
    """Return a parameter as a name writes it: 1.2, 3, and 1 for 1.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _settle(distribution: Distribution, E: int | None, M: int | None) -> tuple[int, int]:
    own = distribution.dims()
    for name, given, fixed in (("E", E, own and own[0]), ("M", M, own and own[1])):
        if own is None and given is None:
            raise ShapesError(f"{name} is missing; only a trace says it itself, {distribution.stem()} does not")
        if own is not None and given not in (None, fixed):
            raise ShapesError(f"{name} must be {fixed} as in {distribution.short()}, or left out; got {given}")
    E, M = own if own is not None else (E or 0, M or 0)
    # Before anything is drawn: sizes of a billion experts would take all of the memory.
    refuse_dim("E", E)
    refuse_dim("M", M)
    return E, M
