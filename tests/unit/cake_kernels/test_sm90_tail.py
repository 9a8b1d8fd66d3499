"""The tail placed by plan and split, in the sm_90a kernel's device code on the CPU: values, bits, tickets, mistakes."""

import shutil
from dataclasses import replace
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cake_kernels.grouped_gemm.sm90.config import FLAT, STRAIGHT
from cake_kernels.grouped_gemm.sm90.launch import Workspace
from cake_kernels.grouped_gemm.sm90.plan import plan
from cake_kernels.grouped_gemm.sm90.walk import walk

from .sm90_configs import NARROW_PAIR, SWAPPED_PAIR
from .sm90_emulation import emulate
from .test_sm90_emulated import Case, case, check, kernel, run, run_and_check

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which compiles the device code")

TAILS = ("whole", "slots")
CLUSTERS = 4
# 30, 0, 30 and 19 k-blocks an expert, each in part, and rows of nobody; 47 k-blocks of each tile.
RAGGED = {"offs": [1900, 1900, 3780, 4960], "M": 4980, "N": 320, "K": 192}
FORWARD = {"offs": [60, 60, 61, 333], "M": 350, "N": 192, "K": 3000}
# 40 k-blocks of one tile, which four clusters share; both CTAs of a cluster have some of it.
ONE_TILE = {"offs": [2530], "M": 2560, "N": 192, "K": 64}


def with_tail(tail, op, config, out_dtype="bf16", **more):
    return kernel(op, replace(config, tail=tail), out_dtype, **more)


KERNELS = [
    with_tail(tail, *what, **more)
    for tail in TAILS
    for what, more in (
        (("wgrad", STRAIGHT), {}),
        (("wgrad", NARROW_PAIR, "fp32"), {}),
        (("wgrad", SWAPPED_PAIR), {"accumulate": True}),
        (("wgrad", replace(NARROW_PAIR, looks=2)), {"whole_slabs": False}),
        (("fwd", SWAPPED_PAIR), {}),
        (("dgrad", FLAT), {}),
    )
]
SLOTS = with_tail("slots", "wgrad", STRAIGHT)
SLOTS_FP32 = with_tail("slots", "wgrad", NARROW_PAIR, "fp32")
SLOTS_FORWARD = with_tail("slots", "fwd", SWAPPED_PAIR)


def ragged(kernel):
    sizes = dict(RAGGED)
    if kernel.op != "wgrad":
        sizes = dict(FORWARD) if kernel.op == "fwd" else dict(FORWARD, N=FORWARD["K"], K=FORWARD["N"])
    if not kernel.whole_slabs:
        sizes |= {"N": 328, "K": 200}
    return case(kernel, **sizes)


def planned(c: Case, clusters=CLUSTERS):
    """Return the plan that the device makes for ``c``."""
    op, config = c.kernel.op, c.kernel.config
    N, K = (c.a.shape[1], c.b.shape[1]) if op == "wgrad" else c.b.shape[1:]
    made = walk(
        op,
        c.offs,
        M=c.a.shape[0],
        N=N,
        K=K,
        cluster_rows=config.tile_rows * config.cluster_rows,
        cluster_columns=config.tile_cols * config.cluster_cols,
        band=config.band,
    )
    return plan(made, clusters, split=config.splits)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_ragged_groups_get_their_products_and_nothing_else_is_written(kernel):
    c = ragged(kernel)
    if kernel.config.tail == "slots":
        assert planned(c).tickets

    run_and_check(c, clusters=CLUSTERS, order=[2, 3, 0, 1], lazy=False)


# The tail has 30, 1 and 1 k-blocks: of five clusters two help with the first tile once they are done with their own.
@pytest.mark.parametrize("kernel", [SLOTS, SLOTS_FP32], ids=lambda kernel: kernel.name)
def test_a_cluster_computes_its_own_tile_and_a_chunk_of_anothers(kernel):
    c = case(kernel, offs=[1890, 1890, 3780, 5670, 5700], M=5720, N=320, K=192)
    assert sorted(len(chunks) for chunks in planned(c, 5).chunks) == [0, 0, 1, 2, 2]

    run_and_check(c, clusters=5, order=[4, 1, 3, 0, 2], lazy=False)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("tail", TAILS)
def test_any_offs_are_read_as_clamped(tail, data):
    M = data.draw(st.integers(1, 2500))
    offs = data.draw(st.lists(st.integers(-10, M + 10), min_size=1, max_size=4))
    c = case(with_tail(tail, "wgrad", NARROW_PAIR, "fp32"), offs=offs, M=M, N=64, K=64)
    clusters = data.draw(st.integers(1, 5))

    run_and_check(c, clusters=clusters, order=data.draw(st.permutations(range(clusters))))


@pytest.mark.parametrize("kernel", [SLOTS, SLOTS_FORWARD], ids=lambda kernel: kernel.name)
def test_nan_stays_in_its_row_or_its_expert_where_tiles_are_split(kernel):
    c = ragged(kernel)
    spoilt = c.offs[2]  # the first row of expert 3, beside the last one of expert 2
    c.a[spoilt] = torch.nan
    if kernel.op == "wgrad":
        c.b[spoilt] = torch.nan

    run(c, clusters=CLUSTERS)

    place = slice(3, 4) if kernel.op == "wgrad" else slice(spoilt, spoilt + 1)
    assert c.out[place].isnan().all()
    c.out[place] = 0
    c.expected[place] = 0
    check(c)


def test_an_empty_group_is_exactly_zero_or_keeps_its_bits_where_tiles_are_split():
    zeroed, kept = ragged(SLOTS), ragged(with_tail("slots", "wgrad", SWAPPED_PAIR, accumulate=True))
    before = kept.out[1].clone()

    run(zeroed, clusters=CLUSTERS)
    run(kept, clusters=CLUSTERS)

    assert not zeroed.out[1].any()
    assert torch.equal(kept.out[1], before)


# The tail has one tile of 32 k-blocks, which goes to the cluster that has had none so far.
@pytest.mark.parametrize("config", [STRAIGHT, NARROW_PAIR], ids=lambda config: config.name)
def test_tiles_that_are_placed_whole_have_the_bits_of_the_plain_walk(config):
    sizes = {"offs": [2000, 2040, 3000], "M": 3000, "N": 64, "K": 64}
    plain = case(kernel("wgrad", config), **sizes)
    run(plain, clusters=2)
    for order in permutations(range(2)):
        whole = case(with_tail("whole", "wgrad", config), **sizes)
        assert planned(whole, 2).placement == "slack"

        run(whole, clusters=2, order=order)

        assert torch.equal(whole.out, plain.out)


@pytest.mark.parametrize("sizes", [RAGGED, ONE_TILE], ids=["ragged", "one tile"])
@pytest.mark.parametrize("kernel", [SLOTS, SLOTS_FP32], ids=lambda kernel: kernel.name)
def test_bits_depend_neither_on_timing_nor_on_what_the_slots_held(kernel, sizes):
    results = []
    orders = ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2])
    for seed, (order, held) in enumerate(zip(orders, (torch.nan, 1e30, 0.0), strict=True)):
        c = case(kernel, **sizes)
        assert planned(c).tickets
        results.append(run(c, clusters=CLUSTERS, order=order, slots=held, seed=seed, lazy=seed != 1))

    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("kernel", [SLOTS, SLOTS_FP32], ids=lambda kernel: kernel.name)
def test_launches_that_share_a_workspace_have_the_bits_of_each_on_its_own(kernel):
    tiles = kernel.config.max_tiles("wgrad", M=ONE_TILE["M"], N=ONE_TILE["N"], K=ONE_TILE["K"], E=1)
    workspace = Workspace.of(kernel.config, clusters=CLUSTERS, tiles=tiles, device=torch.device("cpu"))
    draw = torch.Generator().manual_seed(0)
    split = []
    for end in (2530, 1900, 100, 2530):
        shared, own = (case(kernel, **ONE_TILE | {"offs": [end]}, seed=len(split)) for _ in range(2))
        split.append(bool(planned(shared).tickets))
        workspace.slots.view(torch.uint8).random_(0, 256, generator=draw)

        run_and_check(shared, clusters=CLUSTERS, workspace=workspace, order=[2, 0, 3, 1])

        assert torch.equal(shared.out, run(own, clusters=CLUSTERS, slots=0.0))
    assert split == [True, True, False, True]


def test_a_split_tile_is_its_partial_sums_added_in_order():
    c = case(SLOTS_FP32, **ONE_TILE)
    chunks = sorted((chunk for chunks in planned(c).chunks for chunk in chunks), key=lambda chunk: chunk.index)
    assert [chunk.of for chunk in chunks] == [4, 4, 4, 4]
    ends = [min(64 * chunk.k.stop, c.offs[0]) for chunk in chunks]
    parts = case(kernel("wgrad", NARROW_PAIR, "fp32"), **ONE_TILE | {"offs": ends})
    emulate(parts.kernel, c.a, c.b, ends, parts.out)

    run(c, clusters=CLUSTERS, order=[1, 3, 2, 0])

    assert torch.equal(c.out[0], sum(parts.out))
    assert not torch.equal(c.out[0], sum(reversed(parts.out)))


@pytest.mark.parametrize("accumulate", [False, True], ids=["over", "onto"])
def test_a_chunk_longer_than_is_summed_in_one_go_goes_on_in_its_slot(accumulate):
    c = case(with_tail("slots", "wgrad", NARROW_PAIR, "fp32", accumulate=accumulate), **ONE_TILE)

    run_and_check(c, clusters=CLUSTERS, edit=("kSumRows = 1 << 16;", "kSumRows = 256;"))


@pytest.mark.parametrize(
    ("edit", "seen"),
    [
        pytest.param(("    fence_gpu();  // the sum is", "    // the sum is"), "assert", id="sums are not fenced"),
        pytest.param(("1) == of - 1;", "1) == of - 2;"), "tickets must be zeros", id="one arrival less is counted"),
        pytest.param(("    if (draws) store_relaxed(ticket, 0);\n", ""), "tickets must be zeros", id="a ticket stays"),
        pytest.param(
            ("        if (step == plan.waves) mbarrier_wait(planned, 0);\n", ""), None, id="the plan is not waited for"
        ),
        pytest.param(
            ("(slot * kClusterSize + cta_rank()) * kConsumers + consumer", "slot * kConsumers + consumer"),
            None,
            id="two CTAs share a slot",
        ),
    ],
)
def test_the_emulator_sees_a_mistake(edit, seen):
    c = case(SLOTS_FP32, **ONE_TILE)

    with pytest.raises((RuntimeError, AssertionError), match=seen):
        run_and_check(c, clusters=CLUSTERS, edit=edit)
