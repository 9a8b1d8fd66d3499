"""The tile walk: examples by hand, and the device header, run on the CPU, against the Python model."""

import ctypes
import random
import shutil
from functools import cache
from itertools import accumulate

import pytest

from cake_kernels.grouped_gemm.sm90.config import MAX_EXPERTS, MAX_EXTENT
from cake_kernels.grouped_gemm.sm90.walk import Area, Tile, Walk, walk
from cake_kernels.offsets import ends_within

from .sm90_emulation import CHECKED, compiled

# Both for the device and for the CPU: one warp makes the tables, and writes them and the tiles of a cluster.
DUMP = """
#include "tile_walk.cuh"

using Walk = TileWalk<bool(ROWS_ARE_GROUPED), TILE_ROWS, BAND>;

struct Launch {
    const int* offs;
    int* groups;  // [num_groups, 4]: expert, where its rows begin and end, first tile
    int* tiles;   // [num_tiles, 3]: group, row, column
    int num_experts, total_rows, rows, columns;
};

__device__ void dump(const Launch& l, const Walk& walk, int cluster, int clusters) {
    walk.plan(l.offs, l.num_experts, l.total_rows);
    __syncwarp();
    if (threadIdx.x != 0) return;
    for (int i = cluster; i < walk.num_groups; i += clusters) {
        int* to = l.groups + 4 * i;
        to[0] = walk.expert_of(i), to[1] = walk.begin_of(i), to[2] = walk.end_of(i), to[3] = walk.first_tile[i];
    }
    ClusterTile t{};
    for (int number = cluster; number < walk.num_tiles(); number += clusters) {
        t = walk.at(number, t.group);
        int* to = l.tiles + 3 * number;
        to[0] = t.group, to[1] = t.row, to[2] = t.column;
    }
}
"""

RUN = """
extern "C" const char* run(const Launch* launch) {
    static int ends[MAX_EXPERTS + 2], first_tile[MAX_EXPERTS + 2], experts[MAX_EXPERTS + 2];
    int* const tables[] = {ends, first_tile, experts};
    for (int* table : tables) __builtin_memset(table, 0x55, sizeof ends);
    const Launch& l = *launch;
    const Walk walk{ends, first_tile, experts, l.num_experts + ROWS_ARE_GROUPED, l.rows, l.columns};
    const auto kernel = [&] {
        if (threadIdx.x < 32) dump(l, walk, 0, 1);
    };
    static u32 seed;
    const u32 cluster = 0;
    return emulator::run(kernel, &cluster, 1, 1, seed++, false);
}
"""


class Launch(ctypes.Structure):
    """``Launch`` of DUMP; addresses are of the memory where it runs."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("offs", "groups", "tiles")),
        *((name, ctypes.c_int) for name in ("num_experts", "total_rows", "rows", "columns")),
    )


def launch_of(made: Walk, ends, M) -> Launch:
    """Return the numbers of a launch, without addresses; ``rows`` is not read where rows are grouped."""
    return Launch(num_experts=len(ends), total_rows=M, rows=made.groups[0].rows, columns=made.groups[0].columns)


def dumped(made: Walk, ends, M):
    """Return what DUMP writes of a walk that is ``made``: groups, and tiles."""
    bounds = (0, *ends_within(ends, M), M)
    tiles = map(made.tile, range(made.num_tiles))
    return (
        [[g.expert, bounds[g.expert], bounds[g.expert + 1], g.first_tile] for g in made.groups],
        [[tile.group, tile.row, tile.column] for tile in tiles],
    )


@cache
def library(op, cluster_rows, band):
    macros = {"ROWS_ARE_GROUPED": int(op != "wgrad"), "TILE_ROWS": cluster_rows, "BAND": band}
    loaded = compiled(DUMP + RUN, macros | {"MAX_EXPERTS": MAX_EXPERTS}, CHECKED)
    loaded.run.restype = ctypes.c_char_p
    return loaded


def on_the_cpu(made, op, ends, M):
    launch = launch_of(made, ends, M)
    offs = (ctypes.c_int * len(ends))(*ends)
    groups, tiles = (ctypes.c_int * 4 * len(made.groups))(), (ctypes.c_int * 3 * made.num_tiles)()
    for name, array in {"offs": offs, "groups": groups, "tiles": tiles}.items():
        setattr(launch, name, ctypes.addressof(array))
    error = library(op, made.cluster_rows, made.band).run(ctypes.byref(launch))
    assert error is None, error
    return [list(group) for group in groups], [list(tile) for tile in tiles]


def ragged_ends(draw: random.Random, experts, side):
    """Return ends and M: cumulative ends of sizes about ``side``."""
    ends = list(accumulate(draw.choice((0, 0, 1, side - 1, side, side + 1, 3 * side + 1)) for _ in range(experts)))
    return ends, max(0, ends[-1] + draw.choice((-5 * side, 0, 0, 2 * side + 1)))


def any_ends(draw: random.Random, experts, side):
    """Return ends and M: numbers of which any may be out of order or out of range."""
    M = draw.randint(0, experts * side)
    extremes = (-(2**31), -1, 0, M, M + 1, 2**31 - 1)
    return [draw.choice(extremes) if draw.random() < 0.1 else draw.randint(-50, M + 50) for _ in range(experts)], M


def far_ends(draw: random.Random, experts, side):
    """Return ends and M: up to the most rows that there can be, of sizes that differ by orders of magnitude."""
    weights = [2 ** draw.uniform(0, 24) for _ in range(experts)]
    sums = list(accumulate(weights))
    return [int(MAX_EXTENT * sum_ / sums[-1]) for sum_ in sums], MAX_EXTENT


def ends_of_sizes(sizes):
    ends = list(accumulate(sizes))
    return ends, ends[-1]


RAGGED = {"cumulative": ragged_ends, "anything": any_ends}
SIZES = {
    "equal": lambda experts: [640] * experts,
    "nearly equal": lambda experts: [640 + (e % 3 == 1) for e in range(experts)],
    "one filled": lambda experts: [100 * (e == experts // 2) for e in range(experts)],
    "none filled": lambda experts: [0] * experts,
    "ascending": lambda experts: [64 * e for e in range(experts)],
    "descending": lambda experts: [64 * (experts - e) for e in range(experts)],
}
EXPERTS = (1, 2, 3, 31, 32, 33, 64, 100, 1000, MAX_EXPERTS)

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which compiles the device code")


@needs_gxx
@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("ends_of", RAGGED.values(), ids=RAGGED)
@pytest.mark.parametrize("op", ["fwd", "wgrad"])
def test_the_device_header_walks_as_the_model_does(op, ends_of, experts):
    draw = random.Random(experts)
    for _ in range(3):
        ends, M = ends_of(draw, experts, 64)
        N, K = draw.randint(1, 200), draw.randint(1, 200)
        made = walk(op, ends, M=M, N=N, K=K, cluster_rows=64, cluster_columns=64, band=2)

        assert on_the_cpu(made, op, ends, M) == dumped(made, ends, M)


@needs_gxx
@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("sizes_of", SIZES.values(), ids=SIZES)
def test_the_device_header_orders_groups_as_the_model_does(sizes_of, experts):
    ends, M = ends_of_sizes(sizes_of(experts))
    made = walk("wgrad", ends, M=M, N=100, K=64, cluster_rows=64, cluster_columns=64, band=2)

    assert on_the_cpu(made, "wgrad", ends, M) == dumped(made, ends, M)


@needs_gxx
@pytest.mark.parametrize("experts", EXPERTS)
def test_the_device_header_orders_groups_of_very_different_sizes_as_the_model_does(experts):
    ends, M = far_ends(random.Random(experts), experts, 64)
    made = walk("wgrad", ends, M=M, N=100, K=64, cluster_rows=64, cluster_columns=64, band=2)

    assert on_the_cpu(made, "wgrad", ends, M) == dumped(made, ends, M)


# k-blocks, and the experts in the order of their tiles.
ORDERS = [
    ([2, 0, 1, 1, 4, 2, 0], [4, 0, 5, 2, 3, 1, 6]),
    ([1, 2, 3, 4], [3, 2, 1, 0]),
    ([4, 3, 2, 1], [0, 1, 2, 3]),
    ([5, 5, 5, 5], [0, 1, 2, 3]),
    ([0, 0, 7, 0], [2, 0, 1, 3]),
    ([31, 1, 32, 0, 33, 64, 1024, 1025], [7, 6, 5, 4, 2, 0, 1, 3]),
    ([k % 2 for k in range(40)], [*range(1, 40, 2), *range(0, 40, 2)]),
]


@pytest.mark.parametrize("rows_in_the_last_block", [1, 64])
@pytest.mark.parametrize(("k_blocks", "experts"), ORDERS)
def test_wgrad_walks_the_longest_reductions_first_and_ties_in_the_order_of_the_experts(
    k_blocks, experts, rows_in_the_last_block
):
    ends, M = ends_of_sizes([64 * (k - 1) + rows_in_the_last_block if k else 0 for k in k_blocks])
    made = walk("wgrad", ends, M=M, N=100, K=64, cluster_rows=64, cluster_columns=64, band=2)

    assert [group.expert for group in made.groups] == experts
    assert [group.k_blocks for group in made.groups] == sorted(k_blocks, reverse=True)
    assert [group.first_tile for group in made.groups] == [2 * place for place in range(len(k_blocks))]


@needs_gxx
@pytest.mark.parametrize(("k_blocks", "experts"), ORDERS)
def test_the_device_header_walks_the_longest_reductions_first(k_blocks, experts):
    ends, M = ends_of_sizes([64 * k for k in k_blocks])
    made = walk("wgrad", ends, M=M, N=100, K=64, cluster_rows=64, cluster_columns=64, band=2)

    groups, _ = on_the_cpu(made, "wgrad", ends, M)

    assert [group[0] for group in groups] == experts
    assert [group[2] - group[1] for group in groups] == [64 * k_blocks[expert] for expert in experts]


def places(made):
    return [(tile.group, tile.row, tile.column) for tile in map(made.tile, range(made.num_tiles))]


@pytest.fixture
def forward():
    """Groups of 300, 0 and 130 rows, 70 rows of nobody, in tiles of 128 x 256."""
    return walk("fwd", [300, 300, 430], M=500, N=520, K=65, cluster_rows=128, cluster_columns=256, band=2)


def test_forward_goes_band_by_band_and_turns_in_odd_bands(forward):
    assert places(forward) == [
        *((0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (0, 0, 2), (0, 1, 2)),
        *((0, 2, 2), (0, 2, 1), (0, 2, 0)),
        *((2, 0, 0), (2, 1, 0), (2, 0, 1), (2, 1, 1), (2, 0, 2), (2, 1, 2)),
        *((3, 0, 0), (3, 0, 1), (3, 0, 2)),
    ]


def test_a_tile_is_clipped_to_its_group_and_to_the_columns(forward):
    assert forward.area(forward.tile(6)) == Area(rows=range(256, 300), columns=range(512, 520))


def test_a_group_starts_a_tile_of_its_own(forward):
    assert forward.area(forward.tile(9)) == Area(rows=range(300, 428), columns=range(256))


def test_rows_of_nobody_have_no_k_blocks(forward):
    assert [group.k_blocks for group in forward.groups] == [2, 2, 2, 0]
    assert forward.area(forward.tile(15)).rows == range(430, 500)


def test_dgrad_has_k_columns_and_reduces_over_n():
    made = walk("dgrad", [10], M=10, N=129, K=300, cluster_rows=128, cluster_columns=256, band=1)

    assert [made.tile(0), made.tile(1)] == [
        Tile(group=0, row=0, column=0, k_blocks=3),
        Tile(group=0, row=0, column=1, k_blocks=3),
    ]


def test_wgrad_tiles_every_expert_and_reduces_over_its_rows():
    made = walk("wgrad", [65, 65, 70], M=100, N=130, K=10, cluster_rows=128, cluster_columns=256, band=8)

    assert places(made) == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (2, 0, 0), (2, 1, 0)]
    assert [(group.expert, group.k_blocks) for group in made.groups] == [(0, 2), (2, 1), (1, 0)]


def test_groups_of_forward_keep_their_order(forward):
    assert [group.expert for group in forward.groups] == [0, 1, 2, 3]


def test_ends_that_fall_or_leave_the_rows_are_clamped():
    made = walk("fwd", [-4, 5, 2, 99], M=8, N=1, K=1, cluster_rows=64, cluster_columns=64, band=1)

    rows = [group.area.rows for group in made.groups]
    assert rows == [range(0, 0), range(0, 5), range(5, 5), range(5, 8), range(8, 8)]


def test_without_rows_there_is_nothing_to_do():
    made = walk("fwd", [0, 0], M=0, N=64, K=64, cluster_rows=64, cluster_columns=64, band=1)

    assert made.num_tiles == 0
    assert list(made.tiles_of(0, 66)) == []


def test_a_cluster_takes_every_nth_tile(forward):
    assert list(forward.tiles_of(3, 7)) == [3, 10, 17]
    assert list(forward.tiles_of(18, 66)) == []
