"""The tile walk of the device header is that of the Python model, tile for tile."""

import ctypes
import random
from functools import cache
from itertools import accumulate

import pytest
import torch

from cake_kernels import jit
from cake_kernels.cubin_cache import CubinCache
from cake_kernels.cuda_source import read_source
from cake_kernels.device import facts
from cake_kernels.grouped_gemm.sm90.config import CONFIGS, MAX_EXPERTS
from cake_kernels.grouped_gemm.sm90.walk import walk
from cake_kernels.offsets import ends_within
from tests.gpu.ragged import DEVICE

pytestmark = pytest.mark.gpu

# A block stands for a cluster. It writes group, row and column of its tiles, and the first one writes the tables.
DUMP = """
#include "tile_walk.cuh"

extern "C" __global__ void dump(const int* offs, int num_experts, int total_rows, int rows, int columns, int* tiles,
                                int* tables) {
    __shared__ int ends[MAX_EXPERTS + 2], first_tile[MAX_EXPERTS + 2], experts[MAX_EXPERTS + 2];
    const int num_groups = num_experts + ROWS_ARE_GROUPED;
    const TileWalk<bool(ROWS_ARE_GROUPED), TILE_ROWS, BAND> walk{ends, first_tile, experts,
                                                                           num_groups, rows, columns};
    walk.plan(offs, num_experts, total_rows);
    __syncwarp();
    if (threadIdx.x != 0) return;
    ClusterTile t{};
    for (int number = blockIdx.x; number < walk.num_tiles(); number += gridDim.x) {
        t = walk.at(number, t.group);
        tiles[3 * number] = t.group;
        tiles[3 * number + 1] = t.row;
        tiles[3 * number + 2] = t.column;
    }
    for (int i = 0; blockIdx.x == 0 && i <= num_groups; ++i) {
        tables[3 * i] = ends[i];
        tables[3 * i + 1] = first_tile[i];
        tables[3 * i + 2] = i < num_groups ? walk.expert_of(i) : -1;
    }
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
    source = jit.Source(origin="dump.cu", text=DUMP, headers={**header.headers, header.name: header.text})
    cubin = jit.compile(source, arch=facts(0).arch, defines=defines, cache=CubinCache(None))
    return jit.load(cubin, device=0).kernel("dump")


def random_rows(draw: random.Random, experts: int, cluster_rows: int) -> tuple[list[int], int]:
    """Return ends and M: cumulative ends, or numbers of which any may be out of order or out of range."""
    side = cluster_rows
    sizes = [draw.choice((0, 0, 1, side - 1, side, side + 1, 3 * side + 1)) for _ in range(experts)]
    ends = list(accumulate(sizes))
    M = max(0, ends[-1] + draw.choice((-5 * side, 0, 0, 2 * side + 1)))
    if draw.random() < 0.5:
        extremes = (-(2**31), -1, 0, M, M + 1, 2**31 - 1)
        ends = [draw.choice(extremes) if draw.random() < 0.1 else draw.randint(-50, M + 50) for _ in range(experts)]
    return ends, M


def wgrad_ends(ends: list[int], experts: list[int]) -> list[int]:
    """Return the groups' ends in the order of ``experts``; those without rows lie at the end of the last one."""
    filled = [ends[expert] for expert in experts if ends[expert] > (ends[expert - 1] if expert else 0)]
    return filled + [ends[-1]] * (len(ends) - len(filled))


@pytest.mark.parametrize("experts", [1, 2, 31, 32, 33, 64, 65, MAX_EXPERTS])
@pytest.mark.parametrize(("cluster_rows", "cluster_columns", "band"), SHAPES)
@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_the_device_walks_as_the_model_does(op, cluster_rows, cluster_columns, band, experts):
    draw = random.Random(experts)
    for _ in range(3):
        ends, M = random_rows(draw, experts, cluster_rows)
        N, K = draw.randint(1, 5 * cluster_rows), draw.randint(1, 5 * cluster_columns)
        model = walk(op, ends, M=M, N=N, K=K, cluster_rows=cluster_rows, cluster_columns=cluster_columns, band=band)
        tiles = torch.full((model.num_tiles, 3), -1, dtype=torch.int32, device=DEVICE)
        tables = torch.full((len(model.groups) + 1, 3), -1, dtype=torch.int32, device=DEVICE)
        offs = torch.tensor(ends, dtype=torch.int32, device=DEVICE)

        kernel(op, cluster_rows, band).bind(
            ctypes.c_void_p(offs.data_ptr()),
            ctypes.c_int32(experts),
            ctypes.c_int32(M),
            ctypes.c_int32(model.groups[0].rows),
            ctypes.c_int32(model.groups[0].columns),
            ctypes.c_void_p(tiles.data_ptr()),
            ctypes.c_void_p(tables.data_ptr()),
            grid=(draw.choice((1, 7, 66)), 1, 1),
            block=(32, 1, 1),
        )(torch.cuda.current_stream().cuda_stream)

        expected = [model.tile(number) for number in range(model.num_tiles)]
        ends_seen, first_tiles_seen, experts_seen = tables.T.tolist()
        experts_of_model = [group.expert for group in model.groups]
        assert tiles.tolist() == [[tile.group, tile.row, tile.column] for tile in expected]
        assert first_tiles_seen == [*(group.first_tile for group in model.groups), model.num_tiles]
        assert experts_seen == [*experts_of_model, -1]
        # By group in the order of the tables, in which only the empty ones of wgrad have moved.
        all_ends = [*ends_within(ends, M), *([M] if op != "wgrad" else [])]
        assert ends_seen == [0, *(all_ends if op != "wgrad" else wgrad_ends(all_ends, experts_of_model))]
