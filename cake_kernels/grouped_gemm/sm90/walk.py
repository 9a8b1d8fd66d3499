"""The tile walk in plain integers: which cluster computes which tile, and when. The device header computes the same.

A cluster's tile is ``cluster_rows`` x ``cluster_columns`` elements of the output. Tiles are numbered group after group.
Inside a group they are numbered in bands of ``band`` cluster rows, in a band column by column, in odd bands from the
last column to the first, so that a band begins with the column where the one before it ended. Of C clusters, cluster c
takes the tiles c, c + C, c + 2 C, ... and waits for no other.

In wgrad the groups of most k-blocks come first, ties in the order of the experts. Clusters that begin a wave of C tiles
together find each other's operands in the L2, but the wave lasts as long as its longest tile. With k-blocks that never
rise, the longest is always the first one, cluster 0's: so all waves together last as long as what cluster 0 has to do
anyway, and keeping together costs nothing. The last tiles, which may not fill a wave, are the shortest.

==========  ==========================================  ==========================================
op          groups                                      k-blocks of each tile
==========  ==========================================  ==========================================
fwd, dgrad  each expert's rows; one more has the rows   ceil(reduction / 64); of the rows of
            past the last end, which nobody owns        nobody 0, which makes exact zeros
wgrad       each expert's whole [N, K]                  ceil(rows / 64); of an empty group 0
==========  ==========================================  ==========================================
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...offsets import ends_within
from ...registry import Op

BLOCK_K = 64
"""Elements of the reduction in one k-block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A rectangle of the output: of Y [M, N], of dX [M, K], of one expert's dW [N, K]."""

    rows: range
    columns: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The tiles of one expert, or of the rows of nobody.

    Attributes
    ----------
    expert
        Number of the expert; E for the rows of nobody.
    area
        What they cover together.
    first_tile
        Number of the first one.
    rows, columns
        Cluster rows and cluster columns; a group without rows of output has no tile.
    k_blocks
        Of each tile.
    """

    expert: int
    area: Area
    first_tile: int
    rows: int
    columns: int
    k_blocks: int

    @property
    def end_tile(self) -> int:
        """Number after the last tile's."""
        return self.first_tile + self.rows * self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """What a cluster computes at a time.

    ``group`` is a place in :attr:`Walk.groups`; ``row`` and ``column`` count cluster tiles from the group's first.
    """

    group: int
    row: int
    column: int
    k_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Every tile of one launch; :func:`walk` makes it.

    Attributes
    ----------
    groups
        In the order of their tiles. E + 1 in fwd and dgrad, the experts' in their order and then the rows of nobody; E
        in wgrad, k-blocks descending, then experts ascending.
    cluster_rows, cluster_columns
        Elements of a cluster's tile.
    band
        Cluster rows of a band.
    """

    groups: tuple[Group, ...]
    cluster_rows: int
    cluster_columns: int
    band: int

    @property
    def num_tiles(self) -> int:
        """Tiles of all groups."""
        return self.groups[-1].end_tile if self.groups else 0

    def tile(self, number: int) -> Tile:
        """Return the tile of a number in 0..num_tiles - 1."""
        # The last group that begins at or before the number: groups without tiles begin where the next one does.
        index = bisect_right(self.groups, number, key=lambda group: group.first_tile) - 1
        group = self.groups[index]
        band, inside = divmod(number - group.first_tile, self.band * group.columns)
        height = min(self.band, group.rows - band * self.band)
        column, row = divmod(inside, height)
        if band % 2:
            column = group.columns - 1 - column
        return Tile(group=index, row=band * self.band + row, column=column, k_blocks=group.k_blocks)

    def area(self, tile: Tile) -> Area:
        """Return the elements that ``tile`` owns: its rectangle, clipped to the group's."""
        group = self.groups[tile.group].area
        return Area(
            rows=_step(group.rows, tile.row, self.cluster_rows),
            columns=_step(group.columns, tile.column, self.cluster_columns),
        )

    def tiles_of(self, cluster: int, clusters: int) -> range:
        """Return the numbers of the tiles that one of ``clusters`` clusters takes, in its order."""
        return range(cluster, self.num_tiles, clusters)


def walk(
    op: Op,
    ends: Sequence[int],
    *,
    M: int,
    N: int,
    K: int,
    cluster_rows: int,
    cluster_columns: int,
    band: int,
) -> Walk:
    """Return the walk of one launch.

    Parameters
    ----------
    op
        Decides which tensor is tiled: Y [M, N], dX [M, K] or dW [E, N, K].
    ends
        The values of ``offs``; any integers, read as :func:`cake_kernels.offsets.ends_within` does.
    cluster_rows, cluster_columns
        Elements of a cluster's tile.
    band
        Cluster rows of a band.
    """
    groups: list[Group] = []
    first_tile = 0
    problems = enumerate(_problems(op, ends_within(ends, M), M, N, K))
    # By k-blocks; the sort is stable, so ties stay in the order of the experts, as all groups of fwd and dgrad do.
    for expert, (area, k_blocks) in sorted(problems, key=lambda problem: -problem[1][1]):
        group = Group(
            expert=expert,
            area=area,
            first_tile=first_tile,
            rows=_ceil_div(len(area.rows), cluster_rows),
            columns=_ceil_div(len(area.columns), cluster_columns),
            k_blocks=k_blocks,
        )
        groups.append(group)
        first_tile = group.end_tile
    return Walk(groups=tuple(groups), cluster_rows=cluster_rows, cluster_columns=cluster_columns, band=band)


def _problems(op: Op, ends: Sequence[int], M: int, N: int, K: int) -> Iterator[tuple[Area, int]]:
    """Yield each group's part of the output, and its k-blocks."""
    if op == "wgrad":
        for start, end in pairwise((0, *ends)):
            yield Area(rows=range(N), columns=range(K)), _ceil_div(end - start, BLOCK_K)
        return
    columns, reduction = (N, K) if op == "fwd" else (K, N)
    for start, end in pairwise((0, *ends)):
        yield Area(rows=range(start, end), columns=range(columns)), _ceil_div(reduction, BLOCK_K)
    yield Area(rows=range((0, *ends)[-1], M), columns=range(columns)), 0


def _step(whole: range, index: int, size: int) -> range:
    start = whole.start + index * size
    return range(start, min(start + size, whole.stop))


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
