"""The tile walk covers the output once, whatever the offs, the sizes and the tiles."""

from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cake_kernels.grouped_gemm.sm90.walk import Area, Tile, Walk, walk
from cake_kernels.offsets import ends_within

OPS = ("fwd", "dgrad", "wgrad")
# Tiny tiles make many of them out of few elements; the others are what the programs use.
SIDES = st.integers(1, 40) | st.sampled_from([128, 192, 256, 384, 512])
MOST_TILES = 12
"""Along N or K of the output, enough for several bands: a thousand an expert show no more, for seconds an example."""


@st.composite
def launches(draw: st.DrawFn, ops: tuple[str, ...] = OPS) -> dict[str, Any]:
    """Arguments of ``walk``; half of the time the ends are cumulative sizes, half of the time anything."""
    op = draw(st.sampled_from(ops))
    rows, columns = draw(SIDES), draw(SIDES)
    along = {"fwd": {"N": columns}, "dgrad": {"K": columns}, "wgrad": {"N": rows, "K": columns}}[op]
    M = draw(st.integers(0, 200))
    experts = draw(st.integers(1, 64))
    sizes = st.lists(st.sampled_from([0, 0, 1, 7, 31, 64, 65]), min_size=experts, max_size=experts)
    anything = st.lists(st.integers(-50, 300), min_size=experts, max_size=experts)
    ends = draw(sizes.map(lambda drawn: np.cumsum(drawn).tolist()) | anything)
    return {
        "op": op,
        "ends": ends,
        "M": M,
        **{name: draw(st.integers(1, min(140, MOST_TILES * along.get(name, 140)))) for name in "NK"},
        "cluster_rows": rows,
        "cluster_columns": columns,
        "band": draw(st.integers(1, 9)),
    }


def made_of(launch: dict[str, Any]) -> Walk:
    return walk(**launch)


def tiles(made: Walk) -> list[Tile]:
    return [made.tile(number) for number in range(made.num_tiles)]


def outputs(launch: dict[str, Any]) -> list[np.ndarray]:
    """Return a zero for each element of the output, one array an address space: Y, dX, or each expert's dW."""
    M, N, K = (launch[name] for name in "MNK")
    if launch["op"] == "wgrad":
        return [np.zeros((N, K), dtype=int) for _ in launch["ends"]]
    return [np.zeros((M, N if launch["op"] == "fwd" else K), dtype=int)]


def part(counts: list[np.ndarray], launch: dict[str, Any], expert: int, area: Area) -> np.ndarray:
    rows, columns = area.rows, area.columns
    return counts[expert if launch["op"] == "wgrad" else 0][rows.start : rows.stop, columns.start : columns.stop]


@given(launches())
def test_every_element_of_the_output_has_exactly_one_tile(launch: dict[str, Any]) -> None:
    made, counts = made_of(launch), outputs(launch)
    for tile in tiles(made):
        part(counts, launch, made.groups[tile.group].expert, made.area(tile))[...] += 1

    assert all((count == 1).all() for count in counts)


@given(launches())
def test_a_tile_lies_in_its_group_in_the_output_and_in_its_own_rectangle(launch: dict[str, Any]) -> None:
    made, counts = made_of(launch), outputs(launch)
    for tile in tiles(made):
        group, area = made.groups[tile.group], made.area(tile)

        assert 0 <= tile.row < group.rows
        assert 0 <= tile.column < group.columns
        assert group.area.rows.start <= area.rows.start < area.rows.stop <= group.area.rows.stop
        assert group.area.columns.start <= area.columns.start < area.columns.stop <= group.area.columns.stop
        assert len(area.rows) <= launch["cluster_rows"]
        assert len(area.columns) <= launch["cluster_columns"]
        assert part(counts, launch, group.expert, area).shape == (len(area.rows), len(area.columns))


@given(launches())
def test_tiles_come_in_bands_whose_odd_ones_go_backwards(launch: dict[str, Any]) -> None:
    made, band = made_of(launch), launch["band"]
    expected = [
        Tile(group=index, row=row, column=column, k_blocks=group.k_blocks)
        for index, group in enumerate(made.groups)
        for number, first in enumerate(range(0, group.rows, band))
        for column in (reversed(range(group.columns)) if number % 2 else range(group.columns))
        for row in range(first, min(first + band, group.rows))
    ]

    assert tiles(made) == expected


@given(launches())
def test_successive_tiles_of_a_group_are_at_most_a_column_apart_and_none_at_the_turn(launch: dict[str, Any]) -> None:
    made, band = made_of(launch), launch["band"]
    for one, other in pairwise(tiles(made)):
        if one.group != other.group:
            assert other.group > one.group
        elif one.row // band == other.row // band:
            assert abs(other.column - one.column) <= 1
        else:
            assert other.column == one.column


@given(launches(), st.integers(1, 200))
def test_clusters_share_the_tiles_evenly_and_take_each_once(launch: dict[str, Any], clusters: int) -> None:
    made = made_of(launch)
    lists = [list(made.tiles_of(cluster, clusters)) for cluster in range(clusters)]

    assert sorted(chain.from_iterable(lists)) == list(range(made.num_tiles))
    assert all(numbers == sorted(numbers) for numbers in lists)
    assert max(map(len, lists)) - min(map(len, lists)) <= 1


@given(launches(ops=("fwd", "dgrad")))
def test_a_group_owns_its_rows_and_one_more_the_rows_of_nobody(launch: dict[str, Any]) -> None:
    ends = ends_within(launch["ends"], launch["M"])
    made = made_of(launch)
    reduction = launch["K" if launch["op"] == "fwd" else "N"]

    owned, nobody = made.groups[:-1], made.groups[-1]

    assert [group.area.rows for group in owned] == [range(*pair) for pair in pairwise((0, *ends))]
    assert nobody.area.rows == range(ends[-1], launch["M"])
    assert nobody.k_blocks == 0
    assert all(64 * (group.k_blocks - 1) < reduction <= 64 * group.k_blocks for group in owned)


@given(launches(ops=("fwd", "dgrad")))
def test_a_group_without_rows_has_no_tile(launch: dict[str, Any]) -> None:
    made = made_of(launch)
    with_tiles = {tile.group for tile in tiles(made)}

    assert with_tiles == {index for index, group in enumerate(made.groups) if group.area.rows}


@given(launches(ops=("wgrad",)))
def test_wgrad_gives_every_expert_the_same_tiles_and_k_blocks_of_its_own_rows(launch: dict[str, Any]) -> None:
    made = made_of(launch)
    ends = ends_within(launch["ends"], launch["M"])
    each = made.num_tiles // len(ends)

    assert [group.first_tile for group in made.groups] == [each * expert for expert in range(len(ends))]
    starts_and_ends = list(pairwise((0, *ends)))
    for group in made.groups:
        assert group.k_blocks == len(range(*starts_and_ends[group.expert], 64))


@given(launches())
def test_groups_come_in_descending_order_of_k_blocks_and_ties_in_that_of_the_experts(launch: dict[str, Any]) -> None:
    made = made_of(launch)
    keys = [(-group.k_blocks, group.expert) for group in made.groups]

    assert keys == sorted(keys)
    assert sorted(group.expert for group in made.groups) == list(range(len(made.groups)))


@given(launches(ops=("fwd", "dgrad")))
def test_groups_of_rows_keep_the_order_of_the_experts(launch: dict[str, Any]) -> None:
    made = made_of(launch)

    assert [group.expert for group in made.groups] == list(range(len(launch["ends"]) + 1))


@given(launches(ops=("wgrad",)), st.integers(1, 40))
def test_waves_of_wgrad_that_wait_for_their_longest_tile_last_as_long_as_the_busiest_cluster(
    launch: dict[str, Any], clusters: int
) -> None:
    k_blocks = [tile.k_blocks for tile in tiles(made_of(launch))]
    waves = [k_blocks[first : first + clusters] for first in range(0, len(k_blocks), clusters)]

    assert sum(map(max, waves)) == max(sum(k_blocks[cluster::clusters]) for cluster in range(clusters))


@pytest.mark.parametrize("op", OPS)
def test_the_walk_of_2_to_the_31_elements_and_more_is_found_by_arithmetic(op: str) -> None:
    ends = [360_000 * (expert + 1) for expert in range(1024)]
    made = walk(op, ends, M=ends[-1], N=14336, K=6144, cluster_rows=256, cluster_columns=384, band=4)
    last = made.area(made.tile(made.num_tiles - 1))

    assert last.rows.stop == {"fwd": ends[-1], "dgrad": ends[-1], "wgrad": 14336}[op]
