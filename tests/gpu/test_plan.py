"""The plan of the tail that the device header makes is the Python model's, piece for piece, in every cluster."""

import random
from functools import cache
from itertools import accumulate

import pytest
import torch

from cake_kernels import jit
from cake_kernels.cubin_cache import CubinCache
from cake_kernels.cuda_source import read_source
from cake_kernels.device import facts
from cake_kernels.grouped_gemm.sm90.config import MAX_EXPERTS
from cake_kernels.grouped_gemm.sm90.plan import MAX_CLUSTERS, plan
from cake_kernels.grouped_gemm.sm90.walk import walk
from tests.gpu.ragged import DEVICE
from tests.unit.cake_kernels.test_plan import DUMP, dumped, launch_of, random_launch, work_lists

pytestmark = pytest.mark.gpu

# A block stands for a cluster; all make the same plan, and each writes its own work.
KERNEL = """
extern "C" __global__ void run(const __grid_constant__ Launch l) {
    __shared__ int ends[MAX_EXPERTS + 2], first_tile[MAX_EXPERTS + 2], experts[MAX_EXPERTS + 2];
    __shared__ TailPlan<MAX_CLUSTERS> plan;
    const Walk walk{ends, first_tile, experts, l.num_experts + ROWS_ARE_GROUPED, l.rows, l.columns};
    make(l, walk, plan);
    dump(l, walk, plan, blockIdx.x);
}
"""


@cache
def kernel(op: str, cluster_rows: int, band: int) -> jit.Kernel:
    defines = {
        "ROWS_ARE_GROUPED": int(op != "wgrad"),
        "TILE_ROWS": cluster_rows,
        "BAND": band,
        "MAX_EXPERTS": MAX_EXPERTS,
        "MAX_CLUSTERS": MAX_CLUSTERS,
    }
    header = read_source(jit.CUDA_FOLDER / "tail_plan.cuh")
    source = jit.Source(origin="plan.cu", text=DUMP + KERNEL, headers={**header.headers, header.name: header.text})
    cubin = jit.compile(source, arch=facts(0).arch, defines=defines, cache=CubinCache(None))
    return jit.load(cubin, device=0).kernel("run")


def on_the_gpu(made, op, ends, M, clusters, split):
    launch = launch_of(made, op, ends, M, clusters, split)
    tensors = {
        "offs": torch.tensor(ends, dtype=torch.int32, device=DEVICE),
        "head": torch.full((2 + clusters,), -1, dtype=torch.int32, device=DEVICE),
        "steps": torch.full((clusters,), -1, dtype=torch.int32, device=DEVICE),
        "work": torch.full((clusters, launch.max_steps, 6), -1, dtype=torch.int32, device=DEVICE),
    }
    for name, tensor in tensors.items():
        setattr(launch, name, tensor.data_ptr())
    run = kernel(op, made.cluster_rows, made.band).bind(launch, grid=(clusters, 1, 1), block=(32, 1, 1))
    run(torch.cuda.current_stream().cuda_stream)
    return tensors["head"].tolist(), work_lists(tensors["steps"].tolist(), tensors["work"].tolist())


@pytest.mark.parametrize("clusters", [1, 2, 31, 32, 33, 66, 132, MAX_CLUSTERS])
@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_the_device_plans_as_the_model_does(op, clusters):
    draw = random.Random(clusters)
    for experts in (1, 2, 8, 31, 32, 33):
        for split in (False, True):
            ends, M, made = random_launch(draw, op, experts)

            assert on_the_gpu(made, op, ends, M, clusters, split) == dumped(plan(made, clusters, split=split))


@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_the_device_plans_1024_experts_as_the_model_does(op):
    ends, M, made = random_launch(random.Random(0), op, MAX_EXPERTS)

    assert on_the_gpu(made, op, ends, M, 66, True) == dumped(plan(made, 66, split=True))


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
def test_a_plan_is_the_same_each_time(sizes, split):
    ends = list(accumulate(sizes))
    made = walk("wgrad", ends, M=112576, N=4096, K=6144, cluster_rows=256, cluster_columns=384, band=8)

    seen = [on_the_gpu(made, "wgrad", ends, 112576, 66, split) for _ in range(20)]

    assert all(one == dumped(plan(made, 66, split=split)) for one in seen)
