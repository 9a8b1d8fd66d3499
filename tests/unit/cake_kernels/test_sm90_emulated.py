"""The sm_90a kernel's device code, run on the CPU: layouts, descriptors, barriers, ragged ends, determinism."""

import shutil
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cake_kernels.grouped_gemm.sm90.config import FLAT, NARROW, SOURCE, STRAIGHT, SWAPPED, Config, Kernel
from cake_kernels.offsets import ends_within

from .sm90_configs import NARROW_PAIR, STRAIGHT_PAIR, SWAPPED_PAIR
from .sm90_emulation import emulate

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which compiles the device code")

FOUR_STAGES = Config(tile_m=256, tile_n=128, cluster_m=1, cluster_n=1, stages=4, swap=True, band=2)
GUARD = 8
# One rounding of a normal number to BF16: 2^-9 / sqrt(3) on average; FP32 sums of at most 500 products.
LIMITS = {"bf16": 2e-3, "fp32": 1e-6}


def kernel(op, config, out_dtype="bf16", *, accumulate=False, whole_slabs=True):
    return Kernel(op=op, out_dtype=out_dtype, accumulate=accumulate, whole_slabs=whole_slabs, config=config)


KERNELS = (
    kernel("fwd", STRAIGHT_PAIR),
    kernel("fwd", SWAPPED_PAIR),
    kernel("fwd", FOUR_STAGES),
    kernel("dgrad", SWAPPED_PAIR),
    kernel("dgrad", FLAT),
    kernel("dgrad", NARROW_PAIR, whole_slabs=False),
    kernel("wgrad", STRAIGHT_PAIR),
    kernel("wgrad", NARROW_PAIR, "fp32"),
    kernel("wgrad", SWAPPED_PAIR, "fp32", accumulate=True),
    kernel("wgrad", NARROW, accumulate=True, whole_slabs=False),
    kernel("fwd", replace(STRAIGHT, looks=3)),
    kernel("wgrad", replace(NARROW_PAIR, looks=1)),
    kernel("fwd", SWAPPED),
    kernel("dgrad", SWAPPED),
)


@dataclass(kw_only=True)
class Case:
    """Operands with padded rows, an output among guards, and what it must become."""

    kernel: Kernel
    offs: list[int]
    a: torch.Tensor
    b: torch.Tensor
    whole: torch.Tensor
    out: torch.Tensor
    expected: torch.Tensor


def padded(tensor):
    whole = torch.full((*tensor.shape[:-1], tensor.shape[-1] + GUARD), torch.nan, dtype=tensor.dtype)
    whole[..., : tensor.shape[-1]] = tensor
    return whole[..., : tensor.shape[-1]]


def case(kernel, *, offs, M, N, K, seed=0):
    """Rows of nobody hold NaN, and the output does unless it is added to."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator).bfloat16()

    ends, E = ends_within(offs, M), len(offs)
    x, g, w = padded(normal(M, K)), padded(normal(M, N)), padded(normal(E, N, K))
    x[ends[-1] :] = g[ends[-1] :] = torch.nan
    a, b = {"fwd": (x, w), "dgrad": (g, w), "wgrad": (g, x)}[kernel.op]
    shape = {"fwd": (M, N), "dgrad": (M, K), "wgrad": (E, N, K)}[kernel.op]
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[kernel.out_dtype]
    whole = torch.full((*shape[:-2], shape[-2] + GUARD, shape[-1] + GUARD), torch.nan, dtype=dtype)
    out = whole[..., : shape[-2], : shape[-1]]
    if kernel.accumulate:
        out.copy_(normal(*shape))
    expected = out.double() if kernel.accumulate else torch.zeros(shape, dtype=torch.float64)
    for e, (begin, end) in enumerate(pairwise((0, *ends))):
        rows = slice(begin, end)
        if kernel.op == "wgrad":
            expected[e] += g[rows].double().t() @ x[rows].double()
        else:
            expected[rows] = a[rows].double() @ (w[e].double().t() if kernel.op == "fwd" else w[e].double())
    return Case(kernel=kernel, offs=list(offs), a=a, b=b, whole=whole, out=out, expected=expected)


def run(c, **how):
    emulate(c.kernel, c.a, c.b, c.offs, c.out, **how)
    return c.out


def check(c):
    error = (c.out.double() - c.expected).norm()
    assert error <= LIMITS[c.kernel.out_dtype] * c.expected.norm()
    assert c.whole.isnan().sum() == c.whole.numel() - c.out.numel()


def run_and_check(c, **how):
    run(c, **how)
    check(c)


# Ends inside a tile, at one row, an empty group, and rows of nobody; N and K off the grids of tiles, boxes and slabs.
RAGGED = {"offs": [60, 60, 61, 133, 389], "M": 410}


@pytest.mark.parametrize("lazy", [True, False], ids=["late", "random"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_ragged_groups_get_their_products_and_nothing_else_is_written(kernel, lazy):
    N, K = (320, 192) if kernel.whole_slabs else (328, 200)
    c = case(kernel, **RAGGED, N=N, K=K)

    run_and_check(c, lazy=lazy, clusters=1 if lazy else 2)


@pytest.mark.parametrize("kernel", [KERNELS[1], KERNELS[7]], ids=lambda kernel: kernel.name)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_any_offs_are_read_as_clamped(kernel, data):
    M = data.draw(st.integers(1, 300))
    offs = data.draw(st.lists(st.integers(-10, M + 10), min_size=1, max_size=5))
    c = case(kernel, offs=offs, M=M, N=128, K=data.draw(st.sampled_from([64, 192])))

    run_and_check(
        c, clusters=data.draw(st.integers(1, 3)), seed=data.draw(st.integers(0, 99)), lazy=data.draw(st.booleans())
    )


@pytest.mark.parametrize("kernel", [KERNELS[0], KERNELS[3], KERNELS[6]], ids=lambda kernel: kernel.name)
def test_nan_stays_in_its_row_or_its_expert(kernel):
    c = case(kernel, **RAGGED, N=320, K=192)
    spoilt = c.offs[2]  # the first row of expert 3, beside the last one of expert 2
    c.a[spoilt] = torch.nan
    if kernel.op == "wgrad":
        c.b[spoilt] = torch.nan

    run(c)

    place = slice(3, 4) if kernel.op == "wgrad" else slice(spoilt, spoilt + 1)
    assert c.out[place].isnan().all()
    c.out[place] = 0
    c.expected[place] = 0
    check(c)


@pytest.mark.parametrize("kernel", [KERNELS[0], KERNELS[6]], ids=lambda kernel: kernel.name)
def test_bits_do_not_depend_on_the_number_of_clusters_or_their_timing(kernel):
    results = []
    for clusters, lazy in ((1, True), (3, False)):
        c = case(kernel, **RAGGED, N=320, K=192)
        results.append(run(c, clusters=clusters, seed=clusters, lazy=lazy))

    assert torch.equal(*results)


def test_a_row_has_the_same_bits_wherever_its_group_lies():
    together = case(KERNELS[1], **RAGGED, N=320, K=192)
    run(together)
    rows = slice(together.offs[2], together.offs[3])
    alone = case(KERNELS[1], offs=[rows.stop - rows.start], M=rows.stop - rows.start, N=320, K=192)
    alone.a.copy_(together.a[rows])
    alone.b.copy_(together.b[3:4])

    run(alone)

    assert torch.equal(alone.out, together.out[rows])


def test_an_empty_group_is_exactly_zero_or_keeps_its_bits():
    zeroed, kept = (case(k, **RAGGED, N=320, K=192) for k in (KERNELS[7], KERNELS[8]))
    before = kept.out[1].clone()

    run(zeroed)
    run(kept)

    assert not zeroed.out[1].any()
    assert torch.equal(kept.out[1], before)


@pytest.mark.parametrize("kernel", [KERNELS[7], KERNELS[8]], ids=lambda kernel: kernel.name)
def test_a_sum_longer_than_is_summed_in_one_go_goes_on_in_the_output(kernel):
    c = case(kernel, **RAGGED, N=320, K=192)  # the last group has 256 rows

    run_and_check(c, edit=("kSumRows = 1 << 16;", "kSumRows = 64;"))


@pytest.mark.parametrize("kernel", [KERNELS[0], kernel("fwd", SWAPPED), kernel("dgrad", NARROW)], ids=lambda k: k.name)
def test_a_tile_leaves_the_rows_of_the_next_group_alone(kernel):
    c = case(kernel, **RAGGED, N=320, K=192)
    last_first = {"clusters": 32, "order": range(31, -1, -1)}  # a tile each, so that the next group's are there before

    run_and_check(c, **last_first)
    with pytest.raises(AssertionError):
        run_and_check(c, **last_first, edit=("kWgrad || tile.num_rows - row_of(part) >= kBlockRows;", "true;"))


# One cluster whose second CTA has no rows in most tiles: its consumers pass over 31 stages of a ring of 3.
PASSED_OVER = {"offs": [53, 57, 60, 76, 124, 151, 158, 194, 228], "M": 300, "N": 128, "K": 1984}


@pytest.mark.parametrize("seed", [6, 11, 18])
def test_a_consumer_that_passes_over_a_tile_loses_no_phase_of_a_stage(seed):
    run_and_check(case(kernel("fwd", SWAPPED_PAIR), **PASSED_OVER), clusters=1, seed=seed, lazy=False)


def test_warps_that_pass_over_a_tile_each_for_itself_are_seen_to_hang():
    text = SOURCE.read_text()
    start = text.index("    if (reader.releases) {\n        Reader alone")
    together = text[start : text.index("}\n\n", text.index("reader.ring.skip", start))]
    each = "for (int i = 0; i < stages; ++i) { reader.wait(kBlockK); reader.release(reader.advance()); }"

    def run_all() -> None:
        for seed in (6, 11, 18):
            c = case(kernel("fwd", SWAPPED_PAIR), **PASSED_OVER)
            run(c, clusters=1, seed=seed, lazy=False, edit=(together, each))

    with pytest.raises(RuntimeError, match="deadlock"):
        run_all()


@pytest.mark.parametrize(
    ("kernel", "edit", "seen"),
    [
        pytest.param(
            KERNELS[0],
            ("        wgmma_wait<1>();\n        reader.release(used);", "        reader.release(used);"),
            "assert",
            id="a stage is released while wgmma reads it",
        ),
        pytest.param(
            KERNELS[0],
            ("        pin(d);\n        reader.release(used);\n", "        pin(d);\n"),
            "deadlock",
            id="the last stage is not released",
        ),
        pytest.param(
            KERNELS[0],
            ("wgmma_wait<kBlocksM - 1>();", "wgmma_wait<kBlocksM>();"),
            "assert",
            id="the first block is stored while wgmma work on it",
        ),
        pytest.param(
            KERNELS[0],
            ("store<1>(d, p, before, out_map", "store<1>(d, p, tile, out_map"),
            "assert",
            id="the second block is stored into the next tile",
        ),
        pytest.param(
            KERNELS[0],
            ("waits = stores && multiplies;", "waits = false;"),
            "assert",
            id="the second block is not stored",
        ),
        pytest.param(
            KERNELS[0],
            ("if (stores) tma_store_wait_read<kBatches - 1>();", ""),
            "assert",
            id="staging is written before it is read",
        ),
        pytest.param(
            KERNELS[0],
            (
                "            if (!is_there(part)) continue;\n            // A copy",
                "            if (i > 0) continue;\n            // A copy",
            ),
            "assert",
            id="of a batch the first part is staged alone",
        ),
        pytest.param(
            KERNELS[0],
            ("        fence_async_proxy();\n        named_barrier(1 + consumer", "        named_barrier(1 + consumer"),
            "no fence.proxy.async covers",
            id="staged parts are not fenced",
        ),
        pytest.param(
            KERNELS[6],
            ("    fence_async_proxy();\n    named_barrier(1 + kConsumers", "    named_barrier(1 + kConsumers"),
            "no fence.proxy.async covers",
            id="zeroed rows are not fenced",
        ),
    ],
)
def test_the_emulator_sees_a_mistake(kernel, edit, seen):
    c = case(kernel, **RAGGED, N=320, K=192)

    with pytest.raises((RuntimeError, AssertionError), match=seen):
        run_and_check(c, clusters=1, edit=edit)
