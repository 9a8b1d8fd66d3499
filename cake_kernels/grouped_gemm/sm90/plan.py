"""The plan of the tail in plain integers: which cluster computes which k-blocks of the last tiles. No device, no torch.

C clusters walk over full waves of C tiles each (:mod:`.walk`). The tail is what is left of the tiles that have
k-blocks: fewer than C. Its tiles are placed whole, or split along the reduction. Tiles without k-blocks that come after
it (an empty group at the end, rows of nobody) are walked on as before.

Everything is counted in k-blocks, and a plan follows from the walk and the number of clusters alone: no clock, no
order of arrival. The device header ``tail_plan.cuh`` computes the same. docs/tail.md has the rule in words.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from ...errors import ArgumentError
from .walk import Group, Walk

MIN_CHUNK = 8
"""Fewest k-blocks of a chunk of a split tile; CUTLASS' stream-K has the same (``min_iters_per_sk_unit_``)."""

FIXUP = 8
"""k-blocks that a launch may lose by splitting: a split must gain more.

Storing partial sums, the ticket, and loading them again take 5 to 10 us by estimate; a k-block of a 256 x 192 tile is
1536 cycles of wgmma at its full rate, 0.9 us at 1.7 GHz. Not measured: once it is, this is the constant to set.
"""

MAX_CLUSTERS = 144
"""Clusters of a launch: the tables of the device header have room for as many. A full GH100 has 144 SMs."""

MAX_K_BLOCKS = 2**30
"""Of all tiles of a launch: the device header counts in int32. On 66 clusters they are 15 seconds of work."""

SplitWhen = Literal["never", "no_room", "gain"]
"""When the tail is split: never; where less-loaded clusters have no room for whole tiles; wherever it gains."""

Placement = Literal["plain", "slack", "split"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """k-blocks of one tile that one cluster computes in one go.

    Attributes
    ----------
    tile
        Number of the tile in the walk.
    k
        The k-blocks, ascending; empty for a tile that has none.
    index, of
        This is chunk ``index`` of ``of`` of its tile, ascending in k. 0 of 1: the tile is whole, nobody shares it.
    slot
        Where the tile's ``of`` partial sums lie, one after the other, among those of the launch: the first one's place.
        0 of a whole tile.
    """

    tile: int
    k: range
    index: int
    of: int
    slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Who computes what in one launch; :func:`plan` makes it.

    Attributes
    ----------
    walk
        Whose tiles these are.
    clusters
        C.
    tail
        Numbers of the tail's tiles. Before them lie full waves, after them tiles without k-blocks.
    loads
        [C] k-blocks of each cluster without the tail. See :func:`cost`.
    placement
        ``plain``: each tail tile stays where the plain walk takes it. ``slack``: whole, on the least-loaded clusters.
        ``split``: cut along the reduction.
    chunks
        [C] what each cluster computes of the tail, in ascending order of tiles.
    bound
        No cluster has more k-blocks than this.
    """

    walk: Walk
    clusters: int
    tail: range
    loads: tuple[int, ...]
    placement: Placement
    chunks: tuple[tuple[Chunk, ...], ...]
    bound: int

    @property
    def makespan(self) -> int:
        """k-blocks of the cluster that has most."""
        return max(
            load + sum(max(len(chunk.k), 1) for chunk in chunks)
            for load, chunks in zip(self.loads, self.chunks, strict=True)
        )

    @property
    def ideal(self) -> int:
        """k-blocks of a cluster if all were shared evenly, rounded up: no plan has less."""
        return _ceil_div(sum(len(_numbers(group)) * cost(group) for group in self.walk.groups), self.clusters)

    @property
    def tickets(self) -> dict[int, int]:
        """Split tile -> arrivals that its ticket counts, which are its chunks: the last one to arrive finishes it."""
        return {chunk.tile: chunk.of for chunks in self.chunks for chunk in chunks if chunk.of > 1}

    def work_of(self, cluster: int) -> tuple[Chunk, ...]:
        """Return all that a cluster computes, in its order: full waves, its part of the tail, tiles without k-blocks.

        Tile numbers ascend, as the device's search of a tile's group needs.
        """
        before = range(cluster, self.tail.start, self.clusters)
        first_after = self.tail.start + cluster
        if first_after < self.tail.stop:
            first_after += self.clusters
        after = range(first_after, self.walk.num_tiles, self.clusters)
        return (
            *(_whole(self.walk, number) for number in before),
            *self.chunks[cluster],
            *(_whole(self.walk, number) for number in after),
        )


def cost(group: Group) -> int:
    """Return the k-blocks that a tile of ``group`` counts for.

    Those that it has, in fwd and dgrad also of a tile that the group's last rows fill in part: its stages are loaded
    whole, and wgmma has one width. A tile without k-blocks is stored all the same and counts for one.
    """
    return max(group.k_blocks, 1)


def plan(walk: Walk, clusters: int, *, split: SplitWhen) -> Plan:
    """Return the plan of one launch.

    Parameters
    ----------
    walk
        The launch's tiles.
    clusters
        C, 1..MAX_CLUSTERS.
    split
        ``never``: every tile is whole, and its bits are those of the plain walk. ``no_room``: the tail is split if its
        tiles do not fit whole, that is if a cluster had more than the largest load and one tail share (the tail's
        k-blocks over C). ``gain``: it is split whether they fit or not. Both split only for a gain of more than FIXUP
        k-blocks, and the bits of split tiles depend on ``offs`` and C too.

    Raises
    ------
    ArgumentError
        ``clusters`` is out of range, or the k-blocks of all tiles are more than MAX_K_BLOCKS.
    """
    total = sum(len(_numbers(group)) * cost(group) for group in walk.groups)
    _check(clusters, total)
    tail = _tail(walk, clusters)
    costs = [cost(walk.groups[walk.tile(number).group]) for number in tail]
    loads = _loads(walk, clusters, tail)

    plain, slack = range(len(tail)), _homes_by_slack(loads, costs)
    by_slack = _makespan(loads, costs, slack) < _makespan(loads, costs, plain)
    homes = slack if by_slack else plain
    makespan = _makespan(loads, costs, homes)
    fits = makespan <= max(loads) + _ceil_div(sum(costs), clusters)

    cut = None if split == "never" or (split == "no_room" and fits) else _Cut.of(loads, costs)
    if cut is not None and makespan - cut.makespan(loads) > FIXUP:
        placement: Placement = "split"
        chunks = cut.chunks(walk, tail, costs, clusters)
        bound = cut.level + 2 * (MIN_CHUNK - 1)
    else:
        placement = "slack" if by_slack else "plain"
        chunks = tuple(
            tuple(_whole(walk, number) for number, home in zip(tail, homes, strict=True) if home == cluster)
            for cluster in range(clusters)
        )
        # Whoever gets a tile by its slack had no more than the mean before.
        bound = total // clusters + max(costs, default=0)
    return Plan(
        walk=walk,
        clusters=clusters,
        tail=tail,
        loads=loads,
        placement=placement,
        chunks=chunks,
        bound=max(*loads, bound),
    )


def max_slots(clusters: int, tiles: int) -> int:
    """Return how many partial sums a launch of at most ``tiles`` tiles can have: a slot each holds them all.

    The tail has less than C tiles, and C clusters make less than C cuts.
    """
    return min(tiles, clusters - 1) + clusters - 1


def _check(clusters: int, k_blocks: int) -> None:
    if not 1 <= clusters <= MAX_CLUSTERS:
        raise ArgumentError(
            f"clusters must be in 1..{MAX_CLUSTERS}, for which the device's tables have room, got {clusters};"
            " launch fewer"
        )
    if k_blocks > MAX_K_BLOCKS:
        raise ArgumentError(
            f"k-blocks of all tiles must be at most {MAX_K_BLOCKS}, so that int32 counts them, got {k_blocks};"
            " compute fewer rows a call"
        )


def _tail(walk: Walk, clusters: int) -> range:
    """Return the tiles after the last full wave of those up to the last one with k-blocks."""
    end = max((group.end_tile for group in walk.groups if group.k_blocks), default=0)
    return range(end - end % clusters, end)


def _loads(walk: Walk, clusters: int, tail: range) -> tuple[int, ...]:
    """Return each cluster's k-blocks without the tail.

    Of n consecutive tiles each cluster has n // C, and n % C clusters that follow each other (the last one is followed
    by the first) have one more: the differences between neighbours say it in at most four numbers a group.
    """
    everyone = 0
    steps = [0] * (clusters + 1)
    for group in walk.groups:
        numbers = _numbers(group)
        before = range(numbers.start, min(numbers.stop, tail.start))
        after = range(max(numbers.start, tail.stop), numbers.stop)
        for part in (before, after):
            rounds, more = divmod(len(part), clusters)
            begin = part.start % clusters
            end = begin + more
            everyone += rounds * cost(group)
            steps[begin] += cost(group)
            if end > clusters:
                steps[0] += cost(group)
                end -= clusters
            steps[end] -= cost(group)
    return tuple(everyone + more for more in accumulate(steps[:clusters]))


def _makespan(loads: Sequence[int], costs: Sequence[int], homes: Sequence[int]) -> int:
    """Return the k-blocks of the cluster that has most, once every tail tile is at home, whole."""
    placed = list(loads)
    for home, k_blocks in zip(homes, costs, strict=True):
        placed[home] += k_blocks
    return max(placed)


def _homes_by_slack(loads: Sequence[int], costs: Sequence[int]) -> list[int]:
    """Return each tail tile's cluster: the costliest tile first, each to the cluster that has least so far.

    Ties go to the first tile and to the first cluster. If all tiles cost the same, no other choice ends earlier.
    """
    placed = list(loads)
    homes = [0] * len(costs)
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        homes[index] = placed.index(min(placed))
        placed[homes[index]] += costs[index]
    return homes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """The tail's k-blocks in a row, tile after tile, dealt to the least-loaded clusters in order of their loads.

    Attributes
    ----------
    order
        The clusters that get some.
    level
        Up to which the tail would fill them if it could be cut anywhere.
    cuts
        [len(order) + 1] ``order[r]`` gets the k-blocks ``cuts[r]:cuts[r + 1]`` of the row.
    """

    order: tuple[int, ...]
    level: int
    cuts: tuple[int, ...]

    @classmethod
    def of(cls, loads: Sequence[int], costs: Sequence[int]) -> _Cut | None:
        """Return the cut, or None: the tail has less than a chunk."""
        filled = sum(costs)  # the tail, and what the clusters of `order` have
        order: list[int] = []
        for cluster in sorted(range(len(loads)), key=lambda cluster: loads[cluster]):
            # The level with this one too must leave it a chunk. After one that gets none, none does.
            if filled + loads[cluster] < (len(order) + 1) * (loads[cluster] + MIN_CHUNK):
                break
            order.append(cluster)
            filled += loads[cluster]
        if not order:
            return None
        level = _ceil_div(filled, len(order))
        starts = list(accumulate(costs, initial=0))
        ends = accumulate((level - loads[cluster] for cluster in order), initial=0)
        return cls(order=tuple(order), level=level, cuts=tuple(_legal_cut(starts, end) for end in ends))

    def makespan(self, loads: Sequence[int]) -> int:
        """Return the k-blocks of the cluster that has most."""
        parts = zip(self.order, pairwise(self.cuts), strict=True)
        return max(*loads, *(loads[cluster] + end - begin for cluster, (begin, end) in parts))

    def chunks(self, walk: Walk, tail: range, costs: Sequence[int], clusters: int) -> tuple[tuple[Chunk, ...], ...]:
        """Return each cluster's part of the tail."""
        spans = list(zip(tail, pairwise(accumulate(costs, initial=0)), strict=True))
        chunks: list[tuple[Chunk, ...]] = [()] * clusters
        for cluster, (begin, end) in zip(self.order, pairwise(self.cuts), strict=True):
            chunks[cluster] = tuple(
                self._chunk(walk, tail, number, start, stop, max(begin, start), min(end, stop))
                for number, (start, stop) in spans
                if max(begin, start) < min(end, stop)
            )
        return tuple(chunks)

    def _chunk(self, walk: Walk, tail: range, number: int, start: int, stop: int, begin: int, end: int) -> Chunk:
        inside = [cut for cut in self.cuts if start < cut < stop]
        if not inside:
            return _whole(walk, number)
        return Chunk(
            tile=number,
            k=range(begin - start, end - start),
            index=sum(cut <= begin for cut in inside),
            of=1 + len(inside),
            # A chunk before it for each tile and each cut before it.
            slot=number - tail.start + sum(cut <= start for cut in self.cuts[1:]),
        )


def _legal_cut(starts: Sequence[int], at: int) -> int:
    """Return ``at``, or the nearer end of the tile that it would cut into a chunk of less than MIN_CHUNK."""
    if at >= starts[-1]:
        return starts[-1]
    index = bisect_right(starts, at) - 1
    before, after = at - starts[index], starts[index + 1] - at
    if min(before, after) >= MIN_CHUNK:
        return at
    return starts[index] if before < after else starts[index + 1]


def _whole(walk: Walk, number: int) -> Chunk:
    return Chunk(tile=number, k=range(walk.tile(number).k_blocks), index=0, of=1)


def _numbers(group: Group) -> range:
    return range(group.first_tile, group.end_tile)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
