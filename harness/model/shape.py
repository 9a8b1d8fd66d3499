"""Shape: one grouped GEMM's sizes, named as in published tables."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import ShapesError

MAX_DIM = 2**31 - 1
"""Largest M, N and K: offs are int32, and libraries take sizes as int32."""

MAX_E = 65536
"""Most experts: far beyond any model, and few enough that sizes can be drawn and written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of one grouped GEMM.

    Attributes
    ----------
    name
        The row's name as published, without its output type: ``gate_up E4 M112576 1-empty asc``.
    row_class
        ``owner``, ``unsorted``, ``model``, ``smoke`` or ``adhoc``: the class whose geomean the row enters.
    N, K
        Columns of Y and of X: X [M, K], W [E, N, K], Y [M, N].
    group_sizes
        Rows of each expert, in order; their count is E and their sum is M.
    distribution
        How the sizes came about, in words that reproduce them: ``lognormal(cv=0.35, seed=0)``.
    source
        Where the sizes come from.
    """

    name: str
    row_class: str
    N: int
    K: int
    group_sizes: tuple[int, ...]
    distribution: str
    source: str

    def __post_init__(self) -> None:
        for expert, size in enumerate(self.group_sizes):
            if size < 0:
                raise ShapesError(f"group_sizes[{expert}] of {self.name!r} must be >= 0, got {size}")
        for dim, value in (("N", self.N), ("K", self.K), ("E", self.E), ("M", self.M)):
            refuse_dim(dim, value, f" of {self.name!r}")

    @property
    def E(self) -> int:
        """Experts (groups), the empty ones too."""
        return len(self.group_sizes)

    @property
    def M(self) -> int:
        """Rows over all experts."""
        return sum(self.group_sizes)


def refuse_dim(dim: str, value: int, of: str = "") -> None:
    """Raise if ``value`` can be no E, M, N or K; ``of`` says in the message whose it is."""
    least, most = {"E": (1, MAX_E), "M": (0, MAX_DIM)}.get(dim, (1, MAX_DIM))
    if not least <= value <= most:
        raise ShapesError(f"{dim}{of} must be in {least}..{most}, got {value}")
