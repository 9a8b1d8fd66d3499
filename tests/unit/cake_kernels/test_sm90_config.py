from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cake_kernels.errors import ArgumentError
from cake_kernels.grouped_gemm.sm90.config import (
    CONFIGS,
    FLAT,
    MAX_EXTENT,
    NARROW,
    RATES,
    STRAIGHT,
    SWAPPED,
    Config,
    Kernel,
    choose,
    cost,
    kernels,
    refuse,
    whole_slabs,
    work,
)
from cake_kernels.grouped_gemm.sm90.walk import walk
from cake_kernels.registry import Problem

from .sm90_configs import NARROW_PAIR, STRAIGHT_PAIR, SWAPPED_PAIR

VARIANTS = ("det", "nondet")
OPS = ("fwd", "dgrad", "wgrad")
PROGRAMS = (("fwd", "bf16"), ("dgrad", "bf16"), ("wgrad", "bf16"), ("wgrad", "fp32"))
SHAPES = (*CONFIGS, STRAIGHT_PAIR, SWAPPED_PAIR, NARROW_PAIR)
GATE_UP, DOWN = {"N": 4096, "K": 6144}, {"N": 6144, "K": 2048}


def config(**changed):
    return Config(
        **{"tile_m": 256, "tile_n": 192, "cluster_m": 1, "cluster_n": 2, "stages": 3, "swap": False, "band": 8}
        | changed
    )


def problem(**changed):
    return Problem(
        **{"op": "fwd", "out_dtype": "bf16", "arch": "sm_90a", "M": 4096, "N": 1032, "K": 72, "E": 1024} | changed
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tile_m": 64}, "(tile_m, tile_n) must be one of ((128, 256), (256, 192), (256, 128)), got (64, 192)"),
        ({"cluster_m": 2}, "(cluster_m, cluster_n) must be one of ((2, 1), (1, 2), (1, 1)), got (2, 2)"),
        ({"stages": 2}, "stages must be one of (3, 4), got 2"),
        ({"band": 0}, "band must be >= 1, got 0"),
        ({"looks": -1}, "looks must be >= 0, got -1"),
        ({"tail": "split"}, "tail must be one of ('plain', 'whole', 'slots', 'atomics'), got split"),
        ({"stages": 4}, "256x192_c1x2_s4_b8 must leave room for the epilogue in 232448 bytes; take 3 stages"),
    ],
)
def test_a_configuration_that_the_kernel_does_not_have_is_refused(changed, message):
    with pytest.raises(ArgumentError) as caught:
        config(**changed)

    assert str(caught.value) == message


def test_half_a_slab_of_an_mn_major_operand_is_refused():
    halves = config(cluster_m=2, cluster_n=1)

    Kernel(op="fwd", out_dtype="bf16", accumulate=False, whole_slabs=True, config=halves)
    with pytest.raises(ArgumentError) as caught:
        Kernel(op="dgrad", out_dtype="bf16", accumulate=False, whole_slabs=True, config=halves)

    assert str(caught.value) == (
        "columns that a CTA loads in dgrad must be a multiple of 64, got 96 with 256x192_c2x1_s3_b8;"
        " take another cluster"
    )


@pytest.mark.parametrize(
    ("op", "changed", "staging", "smem_bytes"),
    [
        ("fwd", {}, 3, 3 * 57344 + 6 * 8192 + 6 * 8 + 2 * 1026 * 4),
        ("dgrad", {}, 3, 3 * 57344 + 6 * 8192 + 6 * 8 + 2 * 1026 * 4),
        ("wgrad", {}, 2, 3 * 57344 + 4 * 8192 + 6 * 8 + 3 * 1026 * 4),
        ("fwd", {"tile_m": 128, "tile_n": 256}, 4, 3 * 49152 + 8 * 8192 + 6 * 8 + 2 * 1026 * 4),
        ("wgrad", {"tile_m": 128, "tile_n": 256}, 4, 3 * 49152 + 8 * 8192 + 6 * 8 + 3 * 1026 * 4),
        ("fwd", {"tile_n": 128, "stages": 4}, 1, 4 * 49152 + 2 * 8192 + 8 * 8 + 2 * 1026 * 4),
        ("wgrad", {"tile_n": 128, "stages": 4}, 1, 4 * 49152 + 2 * 8192 + 8 * 8 + 3 * 1026 * 4),
        ("wgrad", {"tail": "whole"}, 2, 3 * 57344 + 4 * 8192 + 7 * 8 + 3 * 1026 * 4 + 4 * (12 * 72 + 10)),
        (
            "wgrad",
            {"tile_n": 128, "cluster_n": 1, "stages": 4, "tail": "slots"},
            1,
            4 * 49152 + 2 * 8192 + 9 * 8 + 3 * 1026 * 4 + 4 * (12 * 144 + 10),
        ),
    ],
)
def test_shared_memory_is_stages_staging_barriers_tables_and_the_plan(op, changed, staging, smem_bytes):
    assert (config(**changed).staging(op), config(**changed).smem_bytes(op)) == (staging, smem_bytes)


@pytest.mark.parametrize(
    ("op", "out_dtype", "variant", "symbol"),
    [
        ("fwd", "bf16", "det", "fwd_det_sm90a"),
        ("fwd", "bf16", "nondet", "fwd_det_sm90a"),
        ("dgrad", "bf16", "det", "dgrad_det_sm90a"),
        ("dgrad", "bf16", "nondet", "dgrad_det_sm90a"),
        ("wgrad", "bf16", "det", "wgrad_bf16_det_sm90a"),
        ("wgrad", "bf16", "nondet", "wgrad_bf16_nondet_sm90a"),
        ("wgrad", "fp32", "det", "wgrad_fp32_det_sm90a"),
        ("wgrad", "fp32", "nondet", "wgrad_fp32_nondet_sm90a"),
    ],
)
def test_the_kernels_of_a_program_differ_in_name_and_macros_and_share_a_symbol(op, out_dtype, variant, symbol):
    listed = kernels(op, out_dtype, variant)

    assert len({k.name for k in listed}) == len({tuple(k.defines.items()) for k in listed}) == len(listed)
    assert {k.symbol for k in listed} == {symbol}


@pytest.mark.parametrize(("op", "out_dtype"), PROGRAMS)
def test_the_kernels_of_the_two_variants_are_the_same_but_for_wgrads_tail(op, out_dtype):
    det, nondet = (kernels(op, out_dtype, variant) for variant in VARIANTS)

    tail = {"tail": "atomics"} if op == "wgrad" else {}
    assert nondet == tuple(replace(kernel, config=replace(kernel.config, **tail)) for kernel in det)


@pytest.mark.parametrize(
    ("op", "sizes", "rows", "experts", "chosen"),
    [
        ("fwd", GATE_UP, 28144, 4, SWAPPED),
        ("fwd", GATE_UP, 4096, 32, SWAPPED),
        ("fwd", DOWN, 28144, 4, SWAPPED),
        ("fwd", DOWN, 4096, 32, SWAPPED),
        ("dgrad", GATE_UP, 28144, 4, SWAPPED),
        ("dgrad", DOWN, 4096, 32, SWAPPED),
        ("wgrad", GATE_UP, 28144, 4, STRAIGHT),
        ("wgrad", GATE_UP, 4096, 32, STRAIGHT),
        ("wgrad", DOWN, 28144, 4, SWAPPED),
        ("wgrad", DOWN, 4096, 32, SWAPPED),
        # 192 divides the columns better than 256 does.
        ("fwd", {"N": 1856, "K": 2688}, 12288, 16, STRAIGHT),
        ("dgrad", {"N": 2688, "K": 1856}, 12288, 16, STRAIGHT),
        ("wgrad", {"N": 1856, "K": 2688}, 12288, 16, SWAPPED),
        ("wgrad", {"N": 2688, "K": 1856}, 12288, 16, STRAIGHT),
        # Few rows a group.
        ("fwd", {"N": 16384, "K": 5120}, 256, 16, NARROW),
        ("dgrad", {"N": 5760, "K": 2880}, 1024, 16, NARROW),
        ("fwd", {"N": 2048, "K": 2048}, 256, 256, NARROW),
        ("fwd", {"N": 2048, "K": 2048}, 256, 16, STRAIGHT),  # two waves as with SWAPPED, and NARROW has three
        ("fwd", {"N": 2048, "K": 2048}, 96, 256, NARROW),
        ("fwd", {"N": 2048, "K": 2048}, 95, 256, FLAT),
        ("dgrad", {"N": 1024, "K": 2048}, 64, 16, FLAT),
        ("fwd", {"N": 256, "K": 1024}, 64, 16, NARROW),
        ("wgrad", {"N": 2048, "K": 2048}, 64, 256, STRAIGHT),  # as many tiles as with SWAPPED
        # wgrad, with one group empty or none: 2 or 3 full waves and 120 or 116 tiles of STRAIGHT, which some clusters
        # would share; 3 or 4 waves of SWAPPED, without a tail.
        ("wgrad", {"N": 4096, "K": 1536}, 16384, 4, SWAPPED),
        ("wgrad", {"N": 7168, "K": 2048}, 8192, 4, STRAIGHT),  # 6 waves and 120 tiles of SWAPPED, or 7 waves
        ("wgrad", {"N": 2048, "K": 768}, 4096, 8, NARROW),
        # Not whole slabs.
        ("dgrad", {"N": 2048, "K": 1032}, 64, 16, NARROW),
        ("dgrad", {"N": 2048, "K": 1032}, 4096, 16, NARROW),
        ("wgrad", {"N": 1032, "K": 6144}, 4096, 32, NARROW),
        # Less than a tile for each SM.
        ("fwd", {"N": 512, "K": 512}, 128, 4, NARROW),
        ("wgrad", {"N": 512, "K": 512}, 128, 4, NARROW),
    ],
)
def test_the_configuration_of_a_problem(op, sizes, rows, experts, chosen):
    det, nondet = ("slots", "atomics") if op == "wgrad" else ("plain", "plain")

    assert choose(op, M=rows * experts, E=experts, **sizes) == replace(chosen, tail=det)
    assert choose(op, M=rows * experts, E=experts, **sizes, variant="nondet") == replace(chosen, tail=nondet)


@pytest.mark.parametrize(("sms", "chosen"), [(132, STRAIGHT), (114, NARROW)])
def test_the_configuration_depends_on_the_number_of_sms(sms, chosen):
    # 132 tiles of 256 x 192, one wave or two; 160 of 128 x 256, two waves.
    assert choose("fwd", M=1024, N=4096, K=2048, E=4, sms=sms) == chosen


@pytest.mark.parametrize(
    ("config", "op", "M", "E", "waves"),
    [
        # 16 columns of 256; the four groups have half a tile each that is empty.
        (SWAPPED, "fwd", 4 * 1920, 4, 6),  # 42 * 16 / 132 = 5.09
        (SWAPPED, "fwd", 4 * 19200, 4, 402 * 16 / 132 + 0.5),
        (SWAPPED, "dgrad", 1, 40, 8),  # 40 * 24 / 132 = 7.27
        (STRAIGHT, "dgrad", 4 * 2560, 4, 11),  # 42 * 32 / 132 = 10.18
        # 512 tiles of a group, and the mean of four groups and three. A tile of a few k-blocks is not split; else the
        # 68 or 84 tiles of the last wave leave 64 or 48 clusters, each with two chunks: 20 k-blocks.
        (STRAIGHT, "wgrad", 10, 4, (2048 / 132 + 1536 / 132) / 2),
        (STRAIGHT, "wgrad", 12 * 6400, 4, (2048 / 132 + 20 / 300 + 1536 / 132 + 20 / 400) / 2),
        (SWAPPED, "wgrad", 12 * 6400, 4, 14),  # 528 tiles of a group are four waves
        (STRAIGHT, "wgrad", 6400, 1, 512 / 132 + 80 / 100),  # 116 tiles leave 16 clusters, with up to 8 chunks
        (FLAT, "fwd", 100, 4, 1),  # 4 * 8 / 66
        (FLAT, "fwd", 4 * 512, 4, 3),  # 18 * 8 / 66 = 2.18
    ],
)
def test_the_work_of_a_problem_is_waves_of_tiles_the_last_of_which_is_rounded_or_split(config, op, M, E, waves):
    assert work(config, op, M=M, E=E, **GATE_UP) == pytest.approx(waves * config.tile_m * config.tile_n)


@pytest.mark.parametrize("experts", [1, 2, 32])
def test_less_than_a_wave_counts_as_one(experts):
    assert work(STRAIGHT, "wgrad", M=4096, N=512, K=384, E=experts) == 256 * 192


PROBLEMS = {
    "M": st.integers(1, 200_000),
    "E": st.integers(1, 1024),
    "N": st.integers(1, 1000).map(lambda n: 8 * n),
    "K": st.integers(1, 1000).map(lambda n: 8 * n),
    "sms": st.integers(2, 144),
}


@given(program=st.sampled_from(PROGRAMS), variant=st.sampled_from(VARIANTS), accumulate=st.booleans(), **PROBLEMS)
def test_what_is_chosen_is_among_the_programs_kernels(program, variant, accumulate, M, E, N, K, sms):
    op, out_dtype = program
    chosen = Kernel(
        op=op,
        out_dtype=out_dtype,
        accumulate=accumulate and op == "wgrad",
        whole_slabs=whole_slabs(op, N=N, K=K),
        config=choose(op, M=M, N=N, K=K, E=E, variant=variant, sms=sms),
    )

    assert chosen in kernels(op, out_dtype, variant)


@given(op=st.sampled_from(OPS), **PROBLEMS)
def test_of_the_candidates_the_cheapest_is_chosen(op, M, E, N, K, sms):
    sizes = {"M": M, "N": 64 * N, "K": 64 * K, "E": E, "sms": sms}  # whole slabs
    chosen = replace(choose(op, **sizes), tail="plain")

    assert chosen == FLAT or cost(chosen, op, **sizes) == min(cost(config, op, **sizes) for config in RATES[op])
    assert (chosen == FLAT) == (op != "wgrad" and M < 96 * E and sizes["N" if op == "fwd" else "K"] > 256)


@given(config=st.sampled_from(tuple(RATES["wgrad"])), **PROBLEMS)
def test_the_work_of_wgrad_is_that_of_its_tiles_or_more(config, M, E, N, K, sms):
    tiles = config.max_tiles("wgrad", M=M, N=N, K=K, E=1)

    least = (E + max(1, E - 1)) / 2 * tiles / sms * config.tile_m * config.tile_n
    assert work(config, "wgrad", M=M, N=N, K=K, E=E, sms=sms) >= least * (1 - 1e-12)


@given(first=st.sampled_from(OPS), op=st.sampled_from(OPS), **PROBLEMS)
def test_a_choice_depends_on_nothing_but_its_arguments(first, op, M, E, N, K, sms):
    sizes = {"M": M, "N": N, "K": K, "E": E, "sms": sms}
    before = choose(op, **sizes)
    choose(first, **sizes | {"M": 200_001 - M, "sms": 146 - sms})

    assert choose(op, **sizes) == before


@given(
    op=st.sampled_from(OPS),
    config=st.sampled_from(SHAPES),
    M=st.integers(1, 5000),
    N=st.integers(1, 200).map(lambda n: 8 * n),
    K=st.integers(1, 200).map(lambda n: 8 * n),
    data=st.data(),
)
def test_no_offs_lead_to_more_tiles_than_the_bound(op, config, M, N, K, data):
    ends = data.draw(st.lists(st.integers(0, M), min_size=1, max_size=20))
    tiles = walk(
        op,
        ends,
        M=M,
        N=N,
        K=K,
        cluster_rows=config.tile_rows * config.cluster_rows,
        cluster_columns=config.tile_cols * config.cluster_cols,
        band=config.band,
    ).num_tiles

    bound = config.max_tiles(op, M=M, N=N, K=K, E=len(ends))

    assert tiles == bound if op == "wgrad" else tiles <= bound


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({}, "256x192_c1x2_s3_b8"),
        ({"swap": True, "band": 4}, "256x192_c1x2_s3_b4_swap"),
        ({"swap": True, "looks": 4, "tail": "whole"}, "256x192_c1x2_s3_b8_swap_l4_whole"),
        ({"tail": "slots"}, "256x192_c1x2_s3_b8_slots"),
        ({"looks": 16, "tail": "atomics"}, "256x192_c1x2_s3_b8_l16_atomics"),
    ],
)
def test_a_configurations_name_says_what_it_is(changed, name):
    assert config(**changed).name == name
    assert Config.named(name) == config(**changed)


@pytest.mark.parametrize(
    "name", ["", "256x192", "256x192_c1x2_s3_b8_l", "256x192_c1x2_s3_b8_plain", "256x192_c1x2_s3_b8 "]
)
def test_what_is_no_name_of_a_configuration_is_refused(name):
    with pytest.raises(ArgumentError, match="must look like 256x192_c1x2_s3_b8_swap_l16_slots, got"):
        Config.named(name)


@pytest.mark.parametrize("other", ["128x256_c1x1_s3_b08", "128x256_c1x1_s3_b8_l0", "0128x256_c1x1_s3_b8"])
def test_a_configuration_has_one_name(other):
    with pytest.raises(ArgumentError, match=f"must be written 128x256_c1x1_s3_b8, got {other!r}"):
        Config.named(other)


@pytest.mark.parametrize(
    ("tail", "number", "splits", "variant"),
    [
        ("plain", 0, False, "det"),
        ("whole", 1, False, "det"),
        ("slots", 2, True, "det"),
        ("atomics", 3, True, "nondet"),
    ],
)
def test_the_tail_is_a_macro_and_decides_whether_a_kernel_splits_and_its_variant(tail, number, splits, variant):
    chosen = config(tail=tail)
    kernel = Kernel(op="wgrad", out_dtype="bf16", accumulate=False, whole_slabs=True, config=chosen)

    assert (kernel.defines["TAIL"], kernel.defines["MAX_CLUSTERS"]) == (number, 72)
    assert (chosen.splits, kernel.variant) == (splits, variant)


@given(
    op=st.sampled_from(OPS),
    config=st.sampled_from(SHAPES),
    M=st.integers(1, 5000),
    N=st.integers(1, 200).map(lambda n: 8 * n),
    K=st.integers(1, 200).map(lambda n: 8 * n),
    data=st.data(),
)
def test_no_offs_lead_to_more_k_blocks_than_the_bound(op, config, M, N, K, data):
    ends = data.draw(st.lists(st.integers(0, M), min_size=1, max_size=20))
    made = walk(
        op,
        ends,
        M=M,
        N=N,
        K=K,
        cluster_rows=config.tile_rows * config.cluster_rows,
        cluster_columns=config.tile_cols * config.cluster_cols,
        band=config.band,
    )

    bound = config.max_k_blocks(op, M=M, N=N, K=K, E=len(ends))

    assert sum(max(group.k_blocks, 1) * group.rows * group.columns for group in made.groups) <= bound


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"N": 1028}, "needs N a multiple of 8, got 1028"),
        ({"K": 4}, "needs K a multiple of 8, got 4"),
        ({"E": 1025}, "needs at most 1024 experts, got 1025"),
        (
            {"M": MAX_EXTENT + 1},
            "needs M at most 2147482623, so that its tiles' coordinates fit int32, got 2147482624",
        ),
        ({"accumulate": True}, "accumulates in wgrad only"),
        ({"op": "wgrad", "accumulate": True}, None),
    ],
)
def test_what_no_kernel_can_do_is_refused_with_the_rule_and_the_value(changed, reason):
    assert refuse(problem(**changed)) == reason
