"""The plan of the tail: examples by hand, and the device header, run on the CPU, against the Python model."""

import ctypes
import random
import shutil
from functools import cache
from itertools import accumulate

import pytest

from cake_kernels.errors import ArgumentError
from cake_kernels.grouped_gemm.sm90 import plan as model
from cake_kernels.grouped_gemm.sm90.config import MAX_EXPERTS, SOURCE
from cake_kernels.grouped_gemm.sm90.plan import FIXUP, MAX_CHUNKS, MAX_CLUSTERS, MIN_CHUNK, Chunk, Plan, plan
from cake_kernels.grouped_gemm.sm90.walk import BLOCK_K, Area, Group, Walk, walk

from .sm90_emulation import CHECKED, compiled

PLACEMENTS = ("plain", "slack", "split")

# Both for the device and for the CPU: one warp makes the plan, and writes what a cluster does with it.
DUMP = """
#include "tail_plan.cuh"

using Walk = TileWalk<bool(ROWS_ARE_GROUPED), TILE_ROWS, BAND>;

struct Launch {
    const int* offs;
    int* head;    // [2 + clusters]: placement, makespan, loads
    int* steps;   // [clusters]
    int* work;    // [clusters, max_steps, 6]
    int num_experts, total_rows, rows, columns, k_blocks, clusters, split, max_steps;
};

__device__ void make(const Launch& l, const Walk& walk, TailPlan<MAX_CLUSTERS>& plan) {
    walk.plan(l.offs, l.num_experts, l.total_rows);
    __syncwarp();
    plan.locate(walk, l.k_blocks, l.clusters);
    plan.make(walk, l.k_blocks, l.split);
}

__device__ void dump(const Launch& l, const Walk& walk, TailPlan<MAX_CLUSTERS>& plan, int cluster) {
    plan.take(walk, l.k_blocks, cluster);
    if (threadIdx.x != 0) return;
    l.head[0] = int(plan.placement);
    l.head[1] = plan.makespan;
    l.head[2 + cluster] = plan.load[cluster];
    int step = 0;
    for (Chunk c = plan.at(0, cluster); c.tile < walk.num_tiles() && step < l.max_steps; c = plan.at(++step, cluster)) {
        int* to = l.work + 6 * (cluster * l.max_steps + step);
        to[0] = c.tile, to[1] = c.k_begin, to[2] = c.k_end, to[3] = c.index, to[4] = c.of, to[5] = c.slot;
    }
    l.steps[cluster] = step;
}
"""

RUN = """
extern "C" const char* run(const Launch* launch) {
    static int ends[MAX_EXPERTS + 2], first_tile[MAX_EXPERTS + 2], experts[MAX_EXPERTS + 2];
    static TailPlan<MAX_CLUSTERS> plan;
    __builtin_memset(&plan, 0x55, sizeof plan);
    const Launch& l = *launch;
    const Walk walk{ends, first_tile, experts, l.num_experts + ROWS_ARE_GROUPED, l.rows, l.columns};
    const auto kernel = [&] {
        if (threadIdx.x >= 32) return;
        make(l, walk, plan);
        for (int cluster = 0; cluster < l.clusters; ++cluster) {
            dump(l, walk, plan, cluster);
            __syncwarp();
        }
    };
    static u32 seed;
    const u32 cluster = 0;
    return emulator::run(kernel, &cluster, 1, 1, seed++, false);
}
"""


class Launch(ctypes.Structure):
    """``Launch`` of DUMP; addresses are of the memory where it runs."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("offs", "head", "steps", "work")),
        *(
            (name, ctypes.c_int)
            for name in ("num_experts", "total_rows", "rows", "columns", "k_blocks", "clusters", "split", "max_steps")
        ),
    )


def launch_of(made: Walk, op, ends, M, clusters, split) -> Launch:
    """Return the numbers of a launch, without addresses."""
    grouped = op != "wgrad"
    return Launch(
        num_experts=len(ends),
        total_rows=M,
        rows=0 if grouped else made.groups[0].rows,
        columns=made.groups[0].columns,
        k_blocks=made.groups[0].k_blocks if grouped else 0,
        clusters=clusters,
        split=split,
        max_steps=made.num_tiles // clusters + MAX_CLUSTERS + 1,
    )


def dumped(plan: Plan):
    """Return what DUMP writes of a plan that is ``plan``: head, and the work of each cluster."""
    to_the_end = 2**31 - 1
    tail = set(plan.tail)
    head = [PLACEMENTS.index(plan.placement), plan.makespan - plan.before, *plan.loads]
    return head, [
        [
            [c.tile, *((c.k.start, c.k.stop) if c.tile in tail else (0, to_the_end)), c.index, c.of, c.slot]
            for c in plan.work_of(cluster)
        ]
        for cluster in range(plan.clusters)
    ]


def work_lists(steps, work):
    return [part[:count] for part, count in zip(work, steps, strict=True)]


@cache
def library(op, cluster_rows, band):
    macros = {"ROWS_ARE_GROUPED": int(op != "wgrad"), "TILE_ROWS": cluster_rows, "BAND": band}
    loaded = compiled(DUMP + RUN, macros | {"MAX_EXPERTS": MAX_EXPERTS, "MAX_CLUSTERS": MAX_CLUSTERS}, CHECKED)
    loaded.run.restype = ctypes.c_char_p
    return loaded


def on_the_cpu(made, op, ends, M, clusters, split):
    launch = launch_of(made, op, ends, M, clusters, split)
    offs = (ctypes.c_int * len(ends))(*ends)
    head, steps = (ctypes.c_int * (2 + clusters))(), (ctypes.c_int * clusters)()
    work = (ctypes.c_int * 6 * launch.max_steps * clusters)()
    arrays = {"offs": offs, "head": head, "steps": steps, "work": work}
    for name, array in arrays.items():
        setattr(launch, name, ctypes.addressof(array))
    error = library(op, made.cluster_rows, made.band).run(ctypes.byref(launch))
    assert error is None, error
    return list(head), work_lists(steps, [[list(step) for step in part] for part in work])


def random_launch(draw: random.Random, op, experts):
    """Return ends, M and a walk: uneven groups, empty ones, now and then ends that are out of order or range."""
    scale = draw.choice((1, 10))
    sizes = [scale * draw.choice((0, 0, 1, 63, 64, 65, 300, draw.randint(0, 900))) for _ in range(experts)]
    ends = list(accumulate(sizes))
    M = max(0, ends[-1] + draw.choice((0, 0, -100, 100)))
    if draw.random() < 0.2:
        ends = [draw.randint(-50, M + 50) for _ in range(experts)]
    N, K = draw.randint(1, 700), draw.randint(1, 1600)
    return ends, M, walk(op, ends, M=M, N=N, K=K, cluster_rows=64, cluster_columns=draw.choice((64, 128)), band=3)


needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which compiles the device code")


@needs_gxx
@pytest.mark.parametrize("clusters", [1, 2, 31, 33, 66, 132, MAX_CLUSTERS])
@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_the_device_header_plans_as_the_model_does(op, clusters):
    draw = random.Random(clusters)
    for experts in (1, 8, 33):
        for split in (False, True):
            ends, M, made = random_launch(draw, op, experts)

            seen = on_the_cpu(made, op, ends, M, clusters, split)

            assert seen == dumped(plan(made, clusters, split=split))


@needs_gxx
def test_the_device_header_plans_1024_experts_as_the_model_does():
    draw = random.Random(0)
    ends, M, made = random_launch(draw, "wgrad", MAX_EXPERTS)

    assert on_the_cpu(made, "wgrad", ends, M, 66, True) == dumped(plan(made, 66, split=True))


@needs_gxx
@pytest.mark.parametrize(("clusters", "columns"), [(132, 192), (66, 384)])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [
        (28144,) * 4,
        (14072,) * 8,
        (54037, 27018, 18012, 13509),
        (13509, 18012, 27018, 54037),
        (37526, 37525, 37525, 0),
    ],
)
def test_the_device_header_plans_published_groups_as_the_model_does(sizes, split, clusters, columns):
    ends = list(accumulate(sizes))
    made = walk("wgrad", ends, M=112576, N=4096, K=6144, cluster_rows=256, cluster_columns=columns, band=8)

    assert on_the_cpu(made, "wgrad", ends, 112576, clusters, split) == dumped(plan(made, clusters, split=split))


# Those of the examples below: remainders, rooms and gains that are just too short, cuts too near to an end, a tail that
# fits exactly.
@needs_gxx
@pytest.mark.parametrize(
    ("sizes", "clusters"),
    [
        ((80, 78, 64, 40, 40), 3),
        ((100, 90, 50, 50, 50), 3),
        ((100, 100, 100, 100, 100, 36, 36), 5),
        ((100, 100, 100, 100, 100, 35, 35, 35), 5),
        ((100, 98, 86, 37), 3),
        ((100, 100, 100, 100, 60, 60, 30, 30, 30), 6),
        ((100, 70, 60), 2),
        ((100, 70, 61), 2),
        ((90, 80, 80, 30), 3),
        ((80, 80, 60, 50, 36), 3),
        ((112, 105, 80, 36, 30), 3),
        ((100, 100, 2 * FIXUP + 1), 2),
        ((100, 100, 2 * FIXUP + 2), 2),
    ],
)
def test_the_device_header_decides_ties_as_the_model_does(sizes, clusters):
    made, ends = wgrad(*sizes), [64 * end for end in accumulate(sizes)]
    for split in (False, True):
        seen = on_the_cpu(made, "wgrad", ends, ends[-1], clusters, split)

        assert seen == dumped(plan(made, clusters, split=split))


def test_the_random_launches_have_every_placement():
    draw = random.Random(1)
    seen = set()
    for _ in range(60):
        for op in ("fwd", "wgrad"):
            seen.add(plan(random_launch(draw, op, 8)[2], 33, split=True).placement)

    assert seen == set(PLACEMENTS)


@pytest.mark.parametrize(
    ("header", "name", "value"),
    [
        ("tail_plan", "kMinChunk", MIN_CHUNK),
        ("tail_plan", "kMaxChunks", MAX_CHUNKS),
        ("tail_plan", "kFixup", FIXUP),
        ("tile_walk", "kRowsOfBlock", BLOCK_K),
    ],
)
def test_the_device_headers_have_the_models_constants(header, name, value):
    assert f"constexpr int {name} = {value};" in (SOURCE.parent / f"{header}.cuh").read_text()


def wgrad(*sizes, tiles=1):
    """Return a walk of ``tiles`` tiles an expert, whose k-blocks are ``sizes``."""
    ends = [64 * end for end in accumulate(sizes)]
    return walk("wgrad", ends, M=ends[-1], N=64 * tiles, K=64, cluster_rows=64, cluster_columns=64, band=1)


def in_this_order(*sizes):
    """Return a walk of a tile of each of ``sizes`` k-blocks; no operation walks over short ones first."""
    area = Area(rows=range(64), columns=range(64))
    groups = [
        Group(expert=index, area=area, first_tile=index, rows=1, columns=1, k_blocks=k_blocks)
        for index, k_blocks in enumerate(sizes)
    ]
    return Walk(groups=tuple(groups), cluster_rows=64, cluster_columns=64, band=1)


def whole(tile, k_blocks):
    return Chunk(tile=tile, k=range(k_blocks), index=0, of=1)


def test_full_waves_leave_no_tail():
    made = plan(wgrad(40, 30, 20, 10), 2, split=True)

    assert made.tail == range(4, 4)
    assert made.before == 40
    assert made.loads == (20, 10)
    assert made.work_of(1) == (whole(1, 30), whole(3, 10))
    assert made.makespan == 60


def test_a_tail_tile_goes_whole_to_the_cluster_with_slack():
    made = plan(wgrad(50, 20, 10), 2, split=True)

    assert made.placement == "slack"
    assert made.chunks == ((), (whole(2, 10),))
    assert made.makespan == 50


def test_of_two_tail_tiles_both_may_go_to_one_cluster():
    made = plan(wgrad(90, 90, 30, 25, 10), 3, split=True)

    assert made.placement == "slack"
    assert made.chunks == ((), (), (whole(3, 25), whole(4, 10)))
    assert made.makespan == 90


def test_a_tail_without_room_is_split_over_all_clusters():
    made = plan(wgrad(100, 100, 100, 60), 3, split=True)

    assert made.placement == "split"
    assert made.chunks == tuple((Chunk(tile=3, k=range(20 * i, 20 * i + 20), index=i, of=3),) for i in range(3))
    assert made.tickets == {3: 3}
    assert made.makespan == made.ideal == 120


def test_chunks_are_as_long_as_the_clusters_slack():
    made = plan(wgrad(100, 80, 60), 2, split=True)

    assert made.loads == (100, 80)
    assert made.chunks == (
        (Chunk(tile=2, k=range(40, 60), index=1, of=2),),
        (Chunk(tile=2, k=range(40), index=0, of=2),),
    )
    assert made.makespan == 120


def test_a_tail_is_never_split_where_nothing_may_be():
    made = plan(wgrad(100, 100, 100, 60), 3, split=False)

    assert made.placement == "plain"
    assert made.makespan == 160


# Whole, the tail tile of cost k makes 100 + k of the two clusters' 100; split, 100 + k / 2.
@pytest.mark.parametrize(("k_blocks", "placement"), [(2 * FIXUP + 1, "plain"), (2 * FIXUP + 2, "split")])
def test_a_split_must_gain_more_than_what_it_costs(k_blocks, placement):
    assert plan(wgrad(100, 100, k_blocks), 2, split=True).placement == placement


# Each of two clusters has a share of 30 in a tail of 60, which whole goes to the second one.
@pytest.mark.parametrize(("second", "placement", "makespan"), [(70, "slack", 130), (71, "split", 116)])
def test_a_tail_fits_whole_up_to_the_largest_load_and_a_share(second, placement, makespan):
    made = plan(wgrad(100, second, 60), 2, split=True)

    assert (made.placement, made.makespan) == (placement, makespan)


def test_the_share_of_a_tail_is_rounded_up():
    # Of 61 each of two clusters has a share of 30.5; whole, it makes 131, split 116.
    made = plan(wgrad(100, 70, 61), 2, split=True)

    assert (made.placement, made.makespan) == ("slack", 131)


def test_of_equal_loads_the_first_cluster_gets_the_tail_tile():
    assert plan(wgrad(90, 80, 80, 30), 3, split=False).chunks == ((), (whole(3, 30),), ())


def test_the_costliest_tail_tile_is_placed_first():
    made = plan(in_this_order(70, 100, 90, 10, 40), 3, split=False)

    assert made.chunks == ((whole(4, 40),), (), (whole(3, 10),))
    assert made.makespan == 110


def part(tile, k, index, of, slot):
    return Chunk(tile=tile, k=k, index=index, of=of, slot=slot)


def test_owners_begin_their_tiles_in_step_and_helpers_the_remainders():
    # 50 of 66: an owner has 335 of 440 k-blocks, a helper three remainders of 105 whole and 20 of one that it shares.
    # There the fifth cut moves to the first tile's end, 5 k-blocks off.
    made = plan(wgrad(440, tiles=66 + 50), 66, split=True)

    helpers = made.chunks[50:]
    assert [chunks[0].k for chunks in made.chunks[:50]] == [range(335)] * 50
    assert [chunk.tile - 66 for chunks in helpers for chunk in chunks[:3]] == list(range(48))
    assert {chunk.k for chunks in helpers for chunk in chunks[:3]} == {range(335, 440)}
    assert {chunk.tile - 66 for chunks in helpers for chunk in chunks[3:]} == {48, 49}
    assert made.makespan == 440 + 335 + 5


def test_two_tiles_are_not_cut_into_a_chunk_for_each_cluster():
    # Up to 293, each has room for 37, a seventh of a tile; the sixth cut moves to the first tile's end, 3 k-blocks off.
    made = plan(wgrad(256, tiles=66 + 2), 66, split=True)

    assert made.tickets == {66: 7, 67: 7}
    assert made.makespan == 256 + 37 + 3


def test_a_cluster_that_is_done_with_its_own_tile_helps():
    # Up to 114, the three have room for 14, 24 and 64: the last one for its tile of 50, and for 14 of the other tile.
    assert plan(wgrad(100, 90, 50, 50, 50), 3, split=True).chunks == (
        (part(4, range(38, 50), 2, 3, 1),),
        (part(4, range(24), 0, 3, 1),),
        (whole(3, 50), part(4, range(24, 38), 1, 3, 1)),
    )


def test_a_remainder_shorter_than_the_least_is_its_owners():
    # Up to 101, the third cluster has room for 37 of its tile's 40, the second one for 23.
    assert plan(wgrad(80, 78, 64, 40, 40), 3, split=True).chunks == (
        (part(4, range(23, 40), 1, 2, 1),),
        (part(4, range(23), 0, 2, 1),),
        (whole(3, 40),),
    )


def test_a_remainder_of_the_least_is_dealt():
    # Up to 102, the owners leave 8 of 50 and 14 of 36, for which the second cluster has room.
    assert plan(wgrad(80, 80, 60, 50, 36), 3, split=True).chunks == (
        (part(4, range(22), 0, 2, 2),),
        (part(3, range(42, 50), 1, 2, 0), part(4, range(22, 36), 1, 2, 2)),
        (part(3, range(42), 0, 2, 0),),
    )


def test_a_helper_passes_over_tiles_that_their_owners_compute_whole():
    # Up to 124, the third cluster has all of its tile, and the first one room for the 11 that the second one leaves.
    assert plan(wgrad(112, 105, 80, 36, 30), 3, split=True).chunks == (
        (part(4, range(19, 30), 1, 2, 1),),
        (part(4, range(19), 0, 2, 1),),
        (whole(3, 36),),
    )


def test_a_cut_that_leaves_less_than_the_least_moves_to_the_end_of_the_tile():
    # Up to 115, heads leave 21 and 21 to three clusters with room for 15: the first cut would leave 6 of a tile.
    assert plan(wgrad(100, 100, 100, 100, 100, 36, 36), 5, split=True).chunks == (
        (part(5, range(15), 0, 2, 0),),
        (part(6, range(15), 0, 3, 2),),
        (part(5, range(15, 36), 1, 2, 0),),
        (part(6, range(15, 24), 1, 3, 2),),
        (part(6, range(24, 36), 2, 3, 2),),
    )


def test_a_cut_in_the_middle_of_a_short_remainder_moves_to_its_nearer_end():
    # Up to 122, two helpers have room for a remainder of 13 and for 9 of the third one.
    made = plan(wgrad(100, 100, 100, 100, 100, 35, 35, 35), 5, split=True)

    assert [chunks[0].k for chunks in made.chunks[:3]] == [range(22)] * 3
    assert made.chunks[3:] == (
        (part(5, range(22, 35), 1, 2, 0), part(7, range(22, 35), 1, 2, 4)),
        (part(6, range(22, 35), 1, 2, 2),),
    )
    assert made.makespan == 126


def test_a_level_must_leave_nothing_over_before_cuts_move():
    # Up to 107, the least-loaded leaves 16 of 37, and the second one has room for 9; the third one for 7, too few. Up
    # to 108, it is 15 for 10 and 8, and the cut moves to the end.
    made = plan(wgrad(100, 98, 86, 37), 3, split=True)

    assert made.chunks == ((), (part(3, range(22, 37), 1, 2, 0),), (part(3, range(22), 0, 2, 0),))
    assert made.makespan == 113


def test_a_cluster_with_room_for_less_than_the_least_owns_no_head_and_tiles_that_have_room_stay_whole():
    # Whole, two of 30 in one cluster make 120, more than 100 and a share of 15. Up to 105, four of six have room for 5.
    made = plan(wgrad(100, 100, 100, 100, 60, 60, 30, 30, 30), 6, split=True)

    assert made.placement == "split"
    assert made.chunks == (
        *((),) * 4,
        (whole(6, 30), part(8, range(15), 0, 2, 2)),
        (whole(7, 30), part(8, range(15, 30), 1, 2, 2)),
    )


def test_tiles_of_an_empty_group_at_the_end_are_not_the_tail():
    made = plan(wgrad(100, 100, 100, 0, 0), 2, split=True)

    assert made.tail == range(2, 3)
    assert made.placement == "split"
    assert made.work_of(0)[-1] == whole(4, 0)
    assert made.work_of(1)[-1] == whole(3, 0)


def test_rows_of_nobody_are_not_the_tail():
    made = walk("fwd", [192], M=320, N=64, K=64 * 50, cluster_rows=64, cluster_columns=64, band=1)

    planned = plan(made, 2, split=True)

    assert planned.tail == range(2, 3)
    assert planned.loads == (50, 50)
    assert planned.tickets == {2: 2}


def test_a_partial_tile_counts_as_a_whole_one():
    made = walk("fwd", [65], M=65, N=64, K=640, cluster_rows=64, cluster_columns=64, band=1)

    assert [model.cost(group) for group in made.groups] == [10, 1]
    assert plan(made, 2, split=False).makespan == 10


@pytest.mark.parametrize("clusters", [0, -1, MAX_CLUSTERS + 1])
def test_clusters_out_of_range_are_refused(clusters):
    with pytest.raises(ArgumentError, match=f"clusters must be in 1..144.*got {clusters}; launch fewer"):
        plan(wgrad(1), clusters, split=False)


def test_more_k_blocks_than_the_device_counts_are_refused():
    made = wgrad(2**20, tiles=1025)

    with pytest.raises(ArgumentError, match=f"at most {2**30}, so that int32 counts them, got {1025 * 2**20}"):
        plan(made, 66, split=False)
