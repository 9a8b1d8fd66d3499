"""Shape: one grouped GEMM's sizes, named as in published tables."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import ShapesError


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
        for dim, value in (("N", self.N), ("K", self.K)):
            if value < 1:
                raise ShapesError(f"{dim} of {self.name!r} must be >= 1, got {value}")
        for expert, size in enumerate(self.group_sizes):
            if size < 0:
                raise ShapesError(f"group_sizes[{expert}] of {self.name!r} must be >= 0, got {size}")

    @property
    def E(self) -> int:
        """Experts (groups), the empty ones too."""
        return len(self.group_sizes)

    @property
    def M(self) -> int:
        """Rows over all experts."""
        return sum(self.group_sizes)
