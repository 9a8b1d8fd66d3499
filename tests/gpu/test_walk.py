"""The tile walk of the device header is that of the Python model, tile for tile."""

import random
from functools import cache

import pytest
import torch

from cake_kernels import jit
from cake_kernels.cubin_cache import CubinCache
from cake_kernels.cuda_source import read_source
from cake_kernels.device import facts
from cake_kernels.grouped_gemm.sm90.config import CONFIGS, MAX_EXPERTS
from cake_kernels.grouped_gemm.sm90.walk import walk
from tests.gpu.ragged import DEVICE
from tests.unit.cake_kernels.test_walk import (
    DUMP,
    EXPERTS,
    RAGGED,
    SIZES,
    dumped,
    ends_of_sizes,
    far_ends,
    launch_of,
)

pytestmark = pytest.mark.gpu

# A block stands for a cluster; all make the same tables, and each writes a part of them and its own tiles.
KERNEL = """
extern "C" __global__ void run(const __grid_constant__ Launch l) {
    __shared__ int ends[MAX_EXPERTS + 2], first_tile[MAX_EXPERTS + 2], experts[MAX_EXPERTS + 2];
    const Walk walk{ends, first_tile, experts, l.num_experts + ROWS_ARE_GROUPED, l.rows, l.columns};
    dump(l, walk, blockIdx.x, gridDim.x);
}
"""

SHAPES = sorted(
    {(c.tile_rows * c.cluster_rows, c.tile_cols * c.cluster_cols, c.band) for c in CONFIGS} | {(1, 1, 1), (64, 64, 3)}
)


@cache
def kernel(op: str, cluster_rows: int, band: int) -> jit.Kernel:
    defines = {
        "ROWS_ARE_GROUPED": int(op != "wgrad"),
        "TILE_ROWS": cluster_rows,
        "BAND": band,
        "MAX_EXPERTS": MAX_EXPERTS,
    }
    header = read_source(jit.CUDA_FOLDER / "tile_walk.cuh")
    source = jit.Source(origin="walk.cu", text=DUMP + KERNEL, headers={**header.headers, header.name: header.text})
    cubin = jit.compile(source, arch=facts(0).arch, defines=defines, cache=CubinCache(None))
    return jit.load(cubin, device=0).kernel("run")


def on_the_gpu(made, op, ends, M, clusters):
    launch = launch_of(made, ends, M)
    tensors = {
        "offs": torch.tensor(ends, dtype=torch.int32, device=DEVICE),
        "groups": torch.full((len(made.groups), 4), -1, dtype=torch.int32, device=DEVICE),
        "tiles": torch.full((made.num_tiles, 3), -1, dtype=torch.int32, device=DEVICE),
    }
    for name, tensor in tensors.items():
        setattr(launch, name, tensor.data_ptr())
    run = kernel(op, made.cluster_rows, made.band).bind(launch, grid=(clusters, 1, 1), block=(32, 1, 1))
    run(torch.cuda.current_stream().cuda_stream)
    return tensors["groups"].tolist(), tensors["tiles"].tolist()


@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize(("cluster_rows", "cluster_columns", "band"), SHAPES)
@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_the_device_walks_as_the_model_does(op, cluster_rows, cluster_columns, band, experts):
    draw = random.Random(experts)
    for ends_of in (*RAGGED.values(), *RAGGED.values()):
        ends, M = ends_of(draw, experts, cluster_rows)
        N, K = draw.randint(1, 5 * cluster_rows), draw.randint(1, 5 * cluster_columns)
        made = walk(op, ends, M=M, N=N, K=K, cluster_rows=cluster_rows, cluster_columns=cluster_columns, band=band)

        assert on_the_gpu(made, op, ends, M, draw.choice((1, 7, 66))) == dumped(made, ends, M)


@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("sizes_of", SIZES.values(), ids=SIZES)
def test_the_device_orders_groups_as_the_model_does(sizes_of, experts):
    ends, M = ends_of_sizes(sizes_of(experts))
    made = walk("wgrad", ends, M=M, N=100, K=64, cluster_rows=64, cluster_columns=64, band=3)

    assert on_the_gpu(made, "wgrad", ends, M, 66) == dumped(made, ends, M)


@pytest.mark.parametrize("experts", EXPERTS)
def test_the_device_orders_groups_of_very_different_sizes_as_the_model_does(experts):
    ends, M = far_ends(random.Random(experts), experts, 64)
    made = walk("wgrad", ends, M=M, N=100, K=64, cluster_rows=64, cluster_columns=64, band=3)

    assert on_the_gpu(made, "wgrad", ends, M, 66) == dumped(made, ends, M)
