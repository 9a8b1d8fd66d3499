"""The tail split with atomic additions, in the sm_90a kernel's device code on the CPU: values, workspace, mistakes."""

import shutil
from dataclasses import replace
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cake_kernels.grouped_gemm.sm90.config import NARROW, STRAIGHT
from cake_kernels.grouped_gemm.sm90.launch import Workspace
from cake_kernels.grouped_gemm.sm90.plan import Plan, plan
from cake_kernels.grouped_gemm.sm90.walk import walk

from .sm90_configs import NARROW_PAIR, SWAPPED_PAIR
from .test_sm90_emulated import Case, case, kernel, run, run_and_check

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which compiles the device code")


def atomics(op, config, out_dtype="bf16", **more):
    return kernel(op, replace(config, tail="atomics"), out_dtype, **more)


BF16 = atomics("wgrad", STRAIGHT)
FP32 = atomics("wgrad", NARROW_PAIR, "fp32")
ONTO = atomics("wgrad", SWAPPED_PAIR, "fp32", accumulate=True)
ANY_SLAB = atomics("wgrad", replace(NARROW, looks=2), whole_slabs=False)
FORWARD = atomics("fwd", SWAPPED_PAIR)
# 23, 0, 23 and 23 k-blocks an expert, the last of an expert not whole, and rows of nobody. With two tiles an expert and
# four clusters, or an odd number of tiles and two clusters, the last expert's last ones are the tail and are split.
RAGGED = {"offs": [1470, 1470, 2930, 4400], "M": 4420, "N": 320, "K": 192}
RAGGED_RUNS = [
    (BF16, RAGGED, 4),
    (FP32, RAGGED, 4),
    (ONTO, RAGGED, 2),
    (ANY_SLAB, RAGGED | {"N": 328, "K": 200}, 2),
    (FORWARD, {"offs": [60, 60, 61, 333], "M": 350, "N": 192, "K": 3000}, 4),
]
# 19 k-blocks of two tiles, each of which two of four clusters share, and tiles of an empty expert.
TWO_TILES = {"offs": [0, 1200], "M": 1220, "N": 320, "K": 192}
# 40 k-blocks of one tile, which four clusters share.
ONE_TILE = {"offs": [2530], "M": 2560, "N": 64, "K": 64}


def planned(c: Case, clusters: int) -> Plan:
    """Return the plan that the device makes for ``c``."""
    op, config = c.kernel.op, c.kernel.config
    N, K = (c.a.shape[1], c.b.shape[1]) if op == "wgrad" else c.b.shape[1:]
    rows, columns = config.tile_rows * config.cluster_rows, config.tile_cols * config.cluster_cols
    sizes = {"M": c.a.shape[0], "N": N, "K": K}
    made = walk(op, c.offs, **sizes, cluster_rows=rows, cluster_columns=columns, band=config.band)
    return plan(made, clusters, split=config.splits)


def workspace_of(c: Case, clusters: int) -> Workspace:
    (M, N), K = c.a.shape, c.b.shape[1]
    tiles = c.kernel.config.max_tiles("wgrad", M=M, N=N, K=K, E=len(c.offs))
    return Workspace.of(c.kernel.config, clusters=clusters, tiles=tiles, device=torch.device("cpu"))


@pytest.mark.parametrize(("kernel", "sizes", "clusters"), RAGGED_RUNS, ids=[kernel.name for kernel, *_ in RAGGED_RUNS])
def test_ragged_groups_get_their_products_and_nothing_else_is_written(kernel, sizes, clusters):
    c = case(kernel, **sizes)
    assert planned(c, clusters).tickets

    run_and_check(c, clusters=clusters, order=range(clusters)[::-1], lazy=False)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_offs_are_read_as_clamped(data):
    M = data.draw(st.integers(1, 2500))
    offs = data.draw(st.lists(st.integers(-10, M + 10), min_size=1, max_size=4))
    c = case(FP32, offs=offs, M=M, N=64, K=64)
    clusters = data.draw(st.integers(1, 5))

    run_and_check(c, clusters=clusters, order=data.draw(st.permutations(range(clusters))))


@pytest.mark.parametrize("kernel", [BF16, FP32], ids=lambda kernel: kernel.name)
def test_a_split_tile_is_right_in_whichever_order_its_chunks_arrive(kernel):
    assert planned(case(kernel, **ONE_TILE), 4).tickets == {0: 4}
    for seed, order in enumerate(list(permutations(range(4)))[::7]):
        run_and_check(case(kernel, **ONE_TILE), clusters=4, order=order, seed=seed, lazy=False)


def test_the_order_of_arrival_decides_the_bits():
    one, other = (run(case(FP32, **ONE_TILE), clusters=4, order=order) for order in ([0, 1, 2, 3], [3, 1, 2, 0]))

    assert not torch.equal(one, other)


# The tail has one tile of 32 k-blocks, for which the cluster that has had none so far has room.
@pytest.mark.parametrize("config", [STRAIGHT, NARROW_PAIR], ids=lambda config: config.name)
def test_where_the_tail_has_room_nothing_is_split_and_the_bits_are_those_of_the_plain_walk(config):
    sizes = {"offs": [2000, 2040, 3000], "M": 3000, "N": 64, "K": 64}
    plain, whole = case(kernel("wgrad", config), **sizes), case(atomics("wgrad", config), **sizes)
    assert planned(whole, 2).placement != "split"

    assert torch.equal(run(plain, clusters=2), run(whole, clusters=2, order=[1, 0]))


@pytest.mark.parametrize("out_dtype", ["bf16", "fp32"])
def test_an_empty_group_is_exactly_zero_or_keeps_its_bits_where_tiles_are_split(out_dtype):
    zeroed = case(atomics("wgrad", NARROW_PAIR, out_dtype), **TWO_TILES)
    kept = case(atomics("wgrad", NARROW_PAIR, out_dtype, accumulate=True), **TWO_TILES)
    before = kept.out[0].clone()

    run(zeroed, clusters=4)
    run(kept, clusters=4)

    assert not zeroed.out[0].any()
    assert torch.equal(kept.out[0], before)


@pytest.mark.parametrize("accumulate", [False, True], ids=["over", "onto"])
def test_a_chunk_longer_than_is_summed_in_one_go_adds_piece_after_piece(accumulate):
    c = case(atomics("wgrad", NARROW_PAIR, "fp32", accumulate=accumulate), **ONE_TILE)

    run_and_check(c, clusters=4, edit=("kSumRows = 1 << 16;", "kSumRows = 256;"))


@pytest.mark.parametrize("kernel", [BF16, FP32], ids=lambda kernel: kernel.name)
def test_launches_one_after_the_other_share_a_workspace(kernel):
    workspace = workspace_of(case(kernel, **TWO_TILES), 4)
    split = []
    for seed, offs in enumerate(([0, 1200], [0, 1200], [640, 1200], [1220, 1220])):
        c = case(kernel, **TWO_TILES | {"offs": offs}, seed=seed)
        split.append(len(planned(c, 4).tickets))

        run_and_check(c, clusters=4, order=[2, 0, 3, 1], seed=seed, workspace=workspace)

    assert split == [2, 2, 0, 2]


def test_nan_stays_in_its_expert_and_in_its_launch():
    c, clean = case(BF16, **TWO_TILES), case(BF16, **TWO_TILES)
    workspace = workspace_of(c, 4)
    c.a[700] = c.b[700] = torch.nan  # of expert 1, whose tiles are split
    assert set(planned(c, 4).tickets) == {0, 1}

    run(c, clusters=4, workspace=workspace)
    run_and_check(clean, clusters=4, workspace=workspace)

    assert c.out[1].isnan().all()
    assert not c.out[0].any()


@pytest.mark.parametrize(
    ("edit", "sizes", "seen"),
    [
        pytest.param(
            ("    fence_gpu();  // the sum is", "    // the sum is"), TWO_TILES, "assert", id="sums are not fenced"
        ),
        pytest.param(
            ("    if (kAtomics) clear_sum(sum_of(p, first_slot, consumer));\n", ""),
            TWO_TILES,
            "sums must be zeros",
            id="a sum is not cleared",
        ),
        pytest.param(
            ("    if (draws) store_relaxed(ticket, 0);\n", ""), TWO_TILES, "tickets must be zeros", id="a ticket stays"
        ),
        pytest.param(
            ("1) == of - 1;", "1) == of - 2;"), ONE_TILE, "tickets must be zeros", id="one arrival less is counted"
        ),
        pytest.param(
            ("if constexpr (kAtomics) add_relaxed(to, v);", "if constexpr (kAtomics) store_global(to, v);"),
            TWO_TILES,
            "assert",
            id="a chunk's sum replaces the others'",
        ),
        pytest.param(
            ("kAtomics ? again.tile - plan.tail_begin : again.slot", "kAtomics ? 0 : again.slot"),
            TWO_TILES,
            None,
            id="the tail's tiles share a sum",
        ),
    ],
)
def test_the_emulator_sees_a_mistake(edit, sizes, seen):
    c = case(FP32, **sizes)

    with pytest.raises((RuntimeError, AssertionError), match=seen):
        run_and_check(c, clusters=4, edit=edit)
