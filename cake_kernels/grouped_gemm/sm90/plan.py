"""The plan of the tail in plain integers: which cluster computes which k-blocks of the last tiles. No device, no torch.

C clusters walk over full waves of C tiles each (:mod:`.walk`). The tail is what is left of the tiles that have
k-blocks: fewer than C. Its tiles are placed whole, or split along the reduction. Tiles without k-blocks that come after
it (an empty group at the end, rows of nobody) are walked on as before.

Everything is counted in k-blocks, and a plan follows from the walk and the number of clusters alone: no clock, no
order of arrival. The device header ``tail_plan.cuh`` computes the same. docs/tail.md has the rule in words.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from typing import Literal

from ...errors import ArgumentError
from .walk import Group, Walk

MIN_CHUNK = 8
"""Fewest k-blocks of a chunk of a split tile; CUTLASS' stream-K has the same (``min_iters_per_sk_unit_``)."""

MAX_CHUNKS = 8
"""Most chunks of a split tile, 3 at least: the last to arrive reads all their partial sums.

A chunk costs its cluster some 10 k-blocks (NOTES.md, "what a split costs"); other numbers of chunks are not measured.
"""

FIXUP = 8
"""k-blocks that a launch may lose by splitting: a split must gain more.

Chosen by estimate, 5 to 10 us for storing partial sums and loading them again. Measured since, each chunk costs its
cluster some 10 k-blocks, 13.7 with 132 clusters: NOTES.md, "what a split costs". This counts for all of them together.
"""

MAX_CLUSTERS = 144
"""Clusters of a launch: the tables of the device header have room for as many. A full GH100 has 144 SMs."""

MAX_K_BLOCKS = 2**30
"""Of all tiles of a launch: the device header counts in int32. On 132 SMs they are some 7 seconds of work."""

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
        [C] k-blocks of each cluster in the last full wave, which all begin together. See :func:`cost`.
    placement
        ``plain``: each tail tile stays where the plain walk takes it. ``slack``: whole, on the least-loaded clusters.
        ``split``: cut along the reduction.
    chunks
        [C] what each cluster computes of the tail, in ascending order of tiles.
    bound
        No cluster has more k-blocks than this in the last full wave and the tail.
    """

    walk: Walk
    clusters: int
    tail: range
    loads: tuple[int, ...]
    placement: Placement
    chunks: tuple[tuple[Chunk, ...], ...]
    bound: int

    @property
    def before(self) -> int:
        """k-blocks before the last full wave: of each wave those of its first tile, no other one of it has more."""
        firsts = range(0, self.tail.start - self.clusters, self.clusters)
        return sum(_cost_of(self.walk, number) for number in firsts)

    @property
    def makespan(self) -> int:
        """k-blocks until the last cluster has done the tail, if all begin each full wave together."""
        return self.before + max(
            load + sum(max(len(chunk.k), 1) for chunk in chunks)
            for load, chunks in zip(self.loads, self.chunks, strict=True)
        )

    @property
    def ideal(self) -> int:
        """k-blocks of a cluster if all were shared evenly, rounded up: no plan has less."""
        return _ceil_div(sum(len(_numbers(group)) * group.k_blocks for group in self.walk.groups), self.clusters)

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


def plan(walk: Walk, clusters: int, *, split: bool) -> Plan:
    """Return the plan of one launch.

    Parameters
    ----------
    walk
        The launch's tiles.
    clusters
        C, 1..MAX_CLUSTERS.
    split
        False: every tile is whole, and its bits are those of the plain walk. True: the tail is split if its tiles do
        not fit whole, that is if a cluster had more than the largest load and one tail share (the tail's k-blocks over
        C, rounded up), and if that gains more than FIXUP k-blocks. Then tiles that one cluster has room for stay whole
        all the same; the bits of the others depend on ``offs`` and C too.

    Raises
    ------
    ArgumentError
        ``clusters`` is out of range, or the k-blocks of all tiles are more than MAX_K_BLOCKS.
    """
    total = sum(len(_numbers(group)) * cost(group) for group in walk.groups)
    _check(clusters, total)
    tail = _tail(walk, clusters)
    costs = [_cost_of(walk, number) for number in tail]
    loads = _loads(walk, clusters, tail)

    plain, slack = range(len(tail)), _homes_by_slack(loads, costs)
    by_slack = _makespan(loads, costs, slack) < _makespan(loads, costs, plain)
    homes = slack if by_slack else plain
    makespan = _makespan(loads, costs, homes)
    fits = makespan <= max(loads) + _ceil_div(sum(costs), clusters)

    deal = _Deal.of(loads, costs) if split and not fits else None
    if deal is not None and makespan - deal.makespan(loads) > FIXUP:
        placement: Placement = "split"
        chunks = deal.chunks(walk, tail)
        bound = deal.level + 2 * (MIN_CHUNK - 1)
    else:
        placement = "slack" if by_slack else "plain"
        chunks = tuple(
            tuple(_whole(walk, number) for number, home in zip(tail, homes, strict=True) if home == cluster)
            for cluster in range(clusters)
        )
        # Whoever gets a tile by its slack had no more than the mean before.
        bound = (sum(loads) + sum(costs)) // clusters + max(costs, default=0)
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

    The tail has T tiles, less than C. Their chunks are at most T heads, and for each tile with a remainder one more and
    one for each cut into it. Cuts lie between clusters that own no such tile, so that these are less than C together.
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
    """Return each cluster's k-blocks in the last full wave; zeros if there is none."""
    wave = range(tail.start - clusters, tail.start) if tail.start else ()
    return tuple(_cost_of(walk, number) for number in wave) or (0,) * clusters


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
class _Deal:
    """The tail's k-blocks, dealt to the clusters in order of their loads. Of these, number r is *part* r.

    Part i owns tail tile i and gets its head. What heads leave of the tiles, the remainders, lies in a row, tile after
    tile: the first ones are dealt whole, what is left of the row is cut.

    Attributes
    ----------
    order
        [C] clusters, the least-loaded one first; ties in order.
    level
        Up to which the parts are filled.
    heads
        [T] k-blocks of tail tile i that part i gets.
    starts
        [T + 1] the remainder of tail tile i is ``starts[i]:starts[i + 1]`` of the row.
    whole
        [C + 1] part r gets the remainders of the tail tiles ``whole[r]:whole[r + 1]``.
    ends
        [C + 1] where the parts fill up: of the row after those, part r has room for ``ends[r]:ends[r + 1]``.
    """

    order: tuple[int, ...]
    level: int
    heads: tuple[int, ...]
    starts: tuple[int, ...]
    whole: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, loads: Sequence[int], costs: Sequence[int]) -> _Deal:
        """Return the deal up to a level at which nothing is left over, which bisection finds.

        The lowest one to try is the largest load, or the mean if that is more: no makespan is less. At the highest one
        nothing is left over: each part has room for what would fill it up to the lowest, and for the most that can be
        lost of that, less than the fewest k-blocks between two cuts.
        """
        low = max(*loads, _ceil_div(sum(loads) + sum(costs), len(loads)))
        high = low + _least_between_cuts(max(costs, default=0)) - 1
        while low < high:
            level = (low + high) // 2
            if cls.at(level, loads, costs).is_complete:
                high = level
            else:
                low = level + 1
        return cls.at(low, loads, costs)

    @classmethod
    def at(cls, level: int, loads: Sequence[int], costs: Sequence[int]) -> _Deal:
        """Return the deal up to ``level``, which no load exceeds."""
        tiles = len(costs)
        order = sorted(range(len(loads)), key=lambda cluster: loads[cluster])
        capacities = [level - loads[cluster] for cluster in order]
        capacities = [capacity if capacity >= MIN_CHUNK else 0 for capacity in capacities]
        owners = list(zip(costs, capacities[:tiles], strict=True))
        heads = [cost if cost - capacity < MIN_CHUNK else capacity for cost, capacity in owners]

        remainders = [cost - head for cost, head in zip(costs, heads, strict=True)]
        starts = list(accumulate(remainders, initial=0))
        longest = max(remainders, default=0)
        first = next((tile for tile, remainder in enumerate(remainders) if remainder), tiles)
        rooms = [max(capacity - head, 0) for capacity, head in zip_longest(capacities, heads, fillvalue=0)]
        counts = (min(room // max(longest, 1), tiles) for room in rooms)
        whole = [min(end, tiles) for end in accumulate(counts, initial=first)]

        filled = (starts[end] - starts[begin] for begin, end in pairwise(whole))
        left = (room - k_blocks for room, k_blocks in zip(rooms, filled, strict=True))
        least = _least_between_cuts(longest)
        ends = accumulate((room if room >= least else 0 for room in left), initial=starts[whole[-1]])
        return cls(
            order=tuple(order),
            level=level,
            heads=tuple(heads),
            starts=tuple(starts),
            whole=tuple(whole),
            ends=tuple(min(end, starts[-1]) for end in ends),
        )

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left over."""
        return self.ends[-1] == self.starts[-1]

    def makespan(self, loads: Sequence[int]) -> int:
        """Return the k-blocks of the cluster that has most."""
        placed = list(loads)
        for cluster, head in zip(self.order, self.heads, strict=False):
            placed[cluster] += head
        for cluster, spans in zip(self.order, self._spans(), strict=True):
            placed[cluster] += sum(map(len, spans))
        return max(placed)

    def chunks(self, walk: Walk, tail: range) -> tuple[tuple[Chunk, ...], ...]:
        """Return each cluster's part of the tail."""
        chunks: list[list[Chunk]] = [[] for _ in self.order]
        slot = 0
        for tile, pieces in zip(tail, self._pieces(), strict=True):
            for index, (cluster, k) in enumerate(pieces):
                shared = Chunk(tile=tile, k=k, index=index, of=len(pieces), slot=slot)
                chunks[cluster].append(shared if shared.of > 1 else _whole(walk, tile))
            slot += len(pieces)
        return tuple(map(tuple, chunks))

    def _pieces(self) -> Iterator[list[tuple[int, range]]]:
        """Yield each tail tile's clusters and their k-blocks, ascending in k."""
        spans = [(cluster, span) for cluster, both in zip(self.order, self._spans(), strict=True) for span in both]
        tiles = len(self.heads)
        for owner, head, start, stop in zip(self.order[:tiles], self.heads, self.starts, self.starts[1:], strict=False):
            overlaps = ((cluster, max(span.start, start), min(span.stop, stop)) for cluster, span in spans)
            yield [
                *([(owner, range(head))] if head else []),
                *((c, range(head + begin - start, head + end - start)) for c, begin, end in overlaps if begin < end),
            ]

    def _spans(self) -> Iterator[tuple[range, range]]:
        """Yield what each part gets of the row: remainders that are whole, and what lies between its cuts."""
        cuts = [_legal_cut(self.starts, end) for end in self.ends]
        for (first, last), (begin, end) in zip(pairwise(self.whole), pairwise(cuts), strict=True):
            yield range(self.starts[first], self.starts[last]), range(begin, end)


def _least_between_cuts(longest: int) -> int:
    """Return the fewest k-blocks between two cuts of remainders of at most ``longest``.

    A remainder then has room for 6 cuts, which leave 7 chunks; its tile has MAX_CHUNKS with the head.
    """
    return max(MIN_CHUNK, _ceil_div(longest, MAX_CHUNKS - 2))


def _legal_cut(starts: Sequence[int], at: int) -> int:
    """Return ``at``, or the nearer end of the tile that it would cut into a chunk of less than MIN_CHUNK."""
    if at >= starts[-1]:
        return starts[-1]
    index = bisect_right(starts, at) - 1
    before, after = at - starts[index], starts[index + 1] - at
    if min(before, after) >= MIN_CHUNK:
        return at
    return starts[index] if before < after else starts[index + 1]


def _cost_of(walk: Walk, number: int) -> int:
    return cost(walk.groups[walk.tile(number).group])


def _whole(walk: Walk, number: int) -> Chunk:
    return Chunk(tile=number, k=range(walk.tile(number).k_blocks), index=0, of=1)


def _numbers(group: Group) -> range:
    return range(group.first_tile, group.end_tile)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
