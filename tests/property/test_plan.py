"""The plan of the tail computes every k-block once, within its bound, whatever the groups and the clusters."""

from itertools import accumulate, chain
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cake_kernels.grouped_gemm.sm90.config import SMS, choose
from cake_kernels.grouped_gemm.sm90.plan import (
    FIXUP,
    MAX_CHUNKS,
    MAX_CLUSTERS,
    MIN_CHUNK,
    Chunk,
    Plan,
    cost,
    max_slots,
    plan,
)
from cake_kernels.grouped_gemm.sm90.walk import Walk, walk
from harness import cases, shapes
from harness.model.case import Case
from harness.paths import data

OPS = {"fwd": "fwd", "dX": "dgrad", "dW": "wgrad"}
PUBLISHED = [
    case
    for case in cases.cases(shapes.load(data("shapes.yaml")), "moe-training")
    if case.op in OPS and case.out_dtype == "bf16"
]
# Makespan and ideal of the published rows that are launched with more than 2 % between them, 2.1 %: fwd and dX take the
# plain walk. In the other three rows of dX down E4 M136064 it is 1.96 %.
MORE_THAN_2_PERCENT = {
    "dX down E4 M136064 1-empty": (4224, 4137),
    "dX down E4 M136064 1-empty asc": (4224, 4137),
}


@st.composite
def short_tiles(draw: st.DrawFn) -> Walk:
    """Tiles of 64 x 64, of many k-blocks or few, of groups that are even, uneven or empty."""
    op = draw(st.sampled_from(sorted(OPS.values())))
    sizes = draw(st.lists(st.sampled_from([0, 0, 1, 64, 500, 1000]) | st.integers(0, 4000), min_size=1, max_size=24))
    ends = list(accumulate(sizes))
    M = ends[-1] + draw(st.sampled_from([0, 0, 150]))
    N, K = draw(st.integers(1, 400)), draw(st.integers(1, 400) | st.just(4000))
    return walk(op, ends, M=M, N=N, K=K, cluster_rows=64, cluster_columns=64, band=draw(st.integers(1, 4)))  # type: ignore[arg-type]


@st.composite
def long_tiles(draw: st.DrawFn) -> Walk:
    """Few groups of dW, whose tiles are worth splitting."""
    k_blocks = draw(st.lists(st.sampled_from([100, 1000]) | st.integers(0, 2000), min_size=1, max_size=6))
    ends = [64 * end for end in accumulate(k_blocks)]
    extents = {"M": ends[-1], "N": 64 * draw(st.integers(1, 200)), "K": 64}
    return walk("wgrad", ends, **extents, cluster_rows=64, cluster_columns=64, band=4)


walks = st.one_of(short_tiles(), long_tiles())


@st.composite
def equal_loads(draw: st.DrawFn) -> tuple[Walk, int]:
    """Full waves of tiles that are alike, and a tail of at least half a wave of them; the clusters."""
    count = draw(st.integers(2, MAX_CLUSTERS))
    tiles = draw(st.integers(1, 3)) * count + draw(st.integers(-(-count // 2), count - 1))
    k_blocks = draw(st.integers(20, 5000))
    ends, extents = [64 * k_blocks], {"M": 64 * k_blocks, "N": 64 * tiles, "K": 64}
    return walk("wgrad", ends, **extents, cluster_rows=64, cluster_columns=64, band=4), count


clusters = st.sampled_from([1, 2, 66, MAX_CLUSTERS]) | st.integers(1, MAX_CLUSTERS)
plans = st.builds(lambda made, count, split: plan(made, count, split=split), walks, clusters, st.booleans())


def plain_makespan(made: Walk, count: int) -> int:
    """Return how long the plain walk takes: a wave, which all begin together, as long as its longest tile."""
    k_blocks = [made.tile(number).k_blocks for number in range(made.num_tiles)]
    return sum(max(k_blocks[begin : begin + count]) for begin in range(0, len(k_blocks), count))


@given(plans)
def test_the_chunks_of_a_tile_are_its_k_blocks_in_order(made: Plan) -> None:
    chunks: dict[int, dict[int, Any]] = {}
    for chunk in chain.from_iterable(made.work_of(cluster) for cluster in range(made.clusters)):
        assert chunk.index not in chunks.setdefault(chunk.tile, {})
        chunks[chunk.tile][chunk.index] = chunk

    assert sorted(chunks) == list(range(made.walk.num_tiles))
    for tile, parts in chunks.items():
        assert {part.of for part in parts.values()} == {len(parts)}
        in_order = [parts[index] for index in range(len(parts))]
        k = list(chain.from_iterable(part.k for part in in_order))
        assert k == list(range(made.walk.tile(tile).k_blocks))


@given(plans)
def test_a_ticket_counts_the_clusters_of_its_tile(made: Plan) -> None:
    arrivals: dict[int, set[int]] = {}
    for cluster in range(made.clusters):
        for chunk in made.work_of(cluster):
            arrivals.setdefault(chunk.tile, set()).add(cluster)

    assert made.tickets == {tile: len(owners) for tile, owners in arrivals.items() if len(owners) > 1}
    assert made.tickets == {} or made.placement == "split"


@given(plans)
def test_every_chunk_of_a_split_tile_has_a_slot_of_its_own_among_those_of_the_launch(made: Plan) -> None:
    parts = [chunk for chunks in made.chunks for chunk in chunks if chunk.of > 1]
    slots = [part.slot + part.index for part in parts]

    assert len(set(slots)) == len(slots)
    assert all(0 <= slot < max_slots(made.clusters, made.walk.num_tiles) for slot in slots)
    assert len({(part.tile, part.slot) for part in parts}) == len(made.tickets)


@given(plans)
def test_a_chunk_of_a_split_tile_has_the_fewest_k_blocks_or_more(made: Plan) -> None:
    parts = [chunk for chunks in made.chunks for chunk in chunks if chunk.of > 1]

    assert all(len(chunk.k) >= MIN_CHUNK for chunk in parts)


@given(plans)
def test_a_tile_has_no_more_than_the_most_chunks(made: Plan) -> None:
    assert max(made.tickets.values(), default=0) <= MAX_CHUNKS


def owned(made: Plan) -> list[tuple[int, tuple[Chunk, ...]]]:
    """Return each tail tile and what its owner computes of the tail; the least-loaded cluster owns the first one."""
    order = sorted(range(made.clusters), key=lambda cluster: made.loads[cluster])
    return [(tile, made.chunks[cluster]) for tile, cluster in zip(made.tail, order, strict=False)]


@given(plans)
def test_the_owner_of_a_split_tile_computes_its_head_and_nothing_else_of_the_tail(made: Plan) -> None:
    for tile, chunks in owned(made):
        if tile in made.tickets:
            # An owner that is as full as the fullest has no room for a head.
            assert [(chunk.tile, chunk.k.start, chunk.index) for chunk in chunks] in ([(tile, 0, 0)], [])


@given(equal_loads())
def test_with_equal_loads_owners_and_helpers_are_in_step(launch: tuple[Walk, int]) -> None:
    made = plan(*launch, split=True)
    assume(made.placement == "split")

    heads = {(len(chunks), chunks[0].k.start, chunks[0].k.stop) for _, chunks in owned(made)}
    begins = {chunks[0].k.start for chunks in made.chunks[len(made.tail) :] if chunks}
    assert len(heads) == 1
    assert heads == {(1, 0, begin) for begin in begins}


@given(plans)
def test_every_clusters_tiles_ascend(made: Plan) -> None:
    for cluster in range(made.clusters):
        tiles = [chunk.tile for chunk in made.work_of(cluster)]
        assert tiles == sorted(set(tiles))


@given(plans)
def test_the_tail_is_less_than_a_wave_and_begins_after_full_waves(made: Plan) -> None:
    assert len(made.tail) < made.clusters
    assert made.tail.start % made.clusters == 0
    assert all(made.walk.tile(number).k_blocks == 0 for number in range(made.tail.stop, made.walk.num_tiles))


@given(plans)
def test_no_cluster_has_more_than_the_bound_or_the_makespan_says(made: Plan) -> None:
    last = [load + sum(len(c.k) for c in chunks) for load, chunks in zip(made.loads, made.chunks, strict=True)]
    work = sum(len(chunk.k) for cluster in range(made.clusters) for chunk in made.work_of(cluster))

    assert max(last) <= made.bound
    assert made.before + max(last) == made.makespan
    assert made.ideal <= made.makespan
    assert work <= made.ideal * made.clusters < work + made.clusters


@given(plans)
def test_the_first_tile_of_a_full_wave_is_its_longest_one(made: Plan) -> None:
    k_blocks = [made.walk.tile(number).k_blocks for number in range(made.tail.start)]

    for begin in range(0, made.tail.start, made.clusters):
        assert k_blocks[begin] == max(k_blocks[begin : begin + made.clusters])


@given(plans)
def test_a_split_exceeds_the_largest_load_or_the_ideal_by_no_more_than_rounding(made: Plan) -> None:
    longest = max((cost(made.walk.groups[made.walk.tile(number).group]) for number in made.tail), default=0)
    between_cuts = max(MIN_CHUNK, -(-longest // (MAX_CHUNKS - 2)))

    if made.placement == "split":
        mean = -(-(sum(made.loads) + sum(made.walk.tile(number).k_blocks for number in made.tail)) // made.clusters)
        assert made.bound <= max(*made.loads, mean) + between_cuts - 1 + 2 * (MIN_CHUNK - 1)


@given(walks, clusters)
def test_a_plan_has_no_more_k_blocks_than_the_plain_walk_and_a_split_saves_more_than_fixup(
    made: Walk, count: int
) -> None:
    plain = plain_makespan(made, count)
    whole, split = (plan(made, count, split=split) for split in (False, True))

    assert split.makespan <= whole.makespan <= plain
    assert (whole.makespan == plain) == (whole.placement == "plain")
    if split.placement == "split":
        assert split.makespan + FIXUP < whole.makespan
    else:
        assert split == whole


@given(plans)
def test_what_is_placed_plain_is_where_the_walk_takes_it(made: Plan) -> None:
    if made.placement == "plain":
        for cluster in range(made.clusters):
            tiles = [chunk.tile for chunk in made.work_of(cluster)]
            assert tiles == list(made.walk.tiles_of(cluster, made.clusters))


@given(walks, clusters)
def test_a_tail_is_split_only_where_a_cluster_had_more_than_the_largest_load_and_a_share(
    made: Walk, count: int
) -> None:
    whole, split = plan(made, count, split=False), plan(made, count, split=True)
    tail = sum(cost(made.groups[made.tile(number).group]) for number in whole.tail)

    if split.placement == "split":
        assert whole.makespan - whole.before > max(whole.loads) + tail / count


@given(walks, clusters)
def test_where_all_tiles_cost_the_same_slack_finds_room_if_there_is_any(made: Walk, count: int) -> None:
    whole = plan(made, count, split=False)
    costs = {cost(made.groups[made.tile(number).group]) for number in whole.tail}
    if len(costs) != 1:
        return
    (each,) = costs

    fewer = whole.makespan - whole.before - 1
    room = sum((fewer - load) // each for load in whole.loads if load <= fewer)
    assert fewer < max(whole.loads) or room < len(whole.tail)


@given(walks, clusters, st.booleans())
def test_a_plan_follows_from_the_walk_and_the_clusters_alone(made: Walk, count: int, split: bool) -> None:
    again = Walk(
        groups=tuple(made.groups),
        cluster_rows=made.cluster_rows,
        cluster_columns=made.cluster_columns,
        band=made.band,
    )

    assert plan(again, count, split=split) == plan(made, count, split=split)


def launched(case: Case) -> tuple[int, int]:
    """Return makespan and ideal of a published row as it is launched on all SMs: as planned, or by the plain walk."""
    shape = case.shape
    op, extents = OPS[case.op], {"M": shape.M, "N": shape.N, "K": shape.K}
    config = choose(op, **extents, E=len(shape.group_sizes))  # type: ignore[arg-type]
    tiles = walk(
        op,  # type: ignore[arg-type]
        list(accumulate(shape.group_sizes)),
        **extents,
        cluster_rows=config.tile_rows * config.cluster_rows,
        cluster_columns=config.tile_cols * config.cluster_cols,
        band=config.band,
    )
    count = SMS // config.cluster_size
    planned = plan(tiles, count, split=config.splits)
    return (plain_makespan(tiles, count) if config.tail == "plain" else planned.makespan), planned.ideal


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.case_id)
def test_published_rows_as_launched_are_within_2_percent_of_the_ideal_but_for_two(case: Case) -> None:
    makespan, ideal = launched(case)

    if case.case_id in MORE_THAN_2_PERCENT:
        assert (makespan, ideal) == MORE_THAN_2_PERCENT[case.case_id]
    else:
        assert 100 * makespan <= 102 * ideal
