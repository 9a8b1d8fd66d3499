"""Loading and launching: tensor maps by value, clusters, shared memory, threads, graphs."""

import ctypes
import threading
from collections.abc import Callable
from importlib import import_module

import pytest
import torch

from cake_kernels import jit
from cake_kernels.cubin_cache import CubinCache
from cake_kernels.device import facts
from cake_kernels.errors import ArgumentError, DriverError

pytestmark = pytest.mark.gpu

ADD = """
extern "C" __global__ void add(int* p, int value) { *p += value; }
"""

# One block a tile; the tile lies at the end of the dynamic shared memory, past the 48 KiB that need no permission.
COPY_TILE = r"""
struct alignas(64) TensorMap { unsigned long long opaque[16]; };

extern "C" __global__ void copy_tile(const __grid_constant__ TensorMap map, unsigned* out, unsigned* rank) {
    extern __shared__ __align__(1024) unsigned char smem[];
    __shared__ unsigned long long barrier;
    unsigned* tile = reinterpret_cast<unsigned*>(smem + SMEM_BYTES - 4 * TILE * TILE);
    const unsigned bar = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(4 * TILE * TILE));
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3}], [%4];"
            ::"r"(to), "l"(&map), "r"(0), "r"(int(TILE * blockIdx.x)), "r"(bar) : "memory");
        asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank[blockIdx.x]));
    }
    __syncthreads();
    asm volatile(
        "{ .reg .pred p;\n"
        "WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n"
        "@!p bra WAIT; }" ::"r"(bar) : "memory");
    for (int i = threadIdx.x; i < TILE * TILE; i += blockDim.x) out[TILE * TILE * blockIdx.x + i] = tile[i];
}
"""


def compiled(text: str, **defines: int) -> jit.Cubin:
    source = jit.Source(origin="test.cu", text=text)
    return jit.compile(source, arch=facts(0).arch, defines=defines, cache=CubinCache(None))


def current_stream() -> int:
    return torch.cuda.current_stream().cuda_stream


def tensor_map(x: torch.Tensor, tile: int) -> bytes:
    driver = import_module("cuda.bindings.driver")
    rows, columns = x.shape
    size = driver.cuuint64_t, driver.cuuint32_t
    status, encoded = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT32,
        2,
        x.data_ptr(),
        [size[0](columns), size[0](rows)],
        [size[0](4 * columns)],
        [size[1](tile), size[1](tile)],
        [size[1](1), size[1](1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    assert status == 0
    return ctypes.string_at(encoded.getPtr(), 128)


def test_a_tensor_map_by_value_feeds_clusters_with_much_shared_memory() -> None:
    tile, tiles, smem_bytes = 32, 8, 200 * 1024
    x = torch.arange(tiles * tile * tile, dtype=torch.int32, device="cuda").reshape(tiles * tile, tile)
    out, rank = torch.zeros_like(x), torch.full((tiles,), -1, dtype=torch.int32, device="cuda")
    module = jit.load(compiled(COPY_TILE, TILE=tile, SMEM_BYTES=smem_bytes), device=0)
    kernel = module.kernel("copy_tile", smem_bytes=smem_bytes)

    kernel.bind(
        tensor_map(x, tile),
        ctypes.c_void_p(out.data_ptr()),
        ctypes.c_void_p(rank.data_ptr()),
        grid=(tiles, 1, 1),
        block=(128, 1, 1),
        cluster=(4, 1, 1),
    )(current_stream())

    assert kernel.parameter_bytes == (128, 8, 8)
    assert torch.equal(out, x)
    assert rank.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.fixture
def counter() -> torch.Tensor:
    return torch.zeros((), dtype=torch.int32, device="cuda")


@pytest.fixture
def add(counter: torch.Tensor) -> Callable[[int], None]:
    """Freshly loaded, never launched."""
    kernel = jit.load(compiled(ADD), device=0).kernel("add")
    return kernel.bind(ctypes.c_void_p(counter.data_ptr()), ctypes.c_int32(5), grid=(1, 1, 1), block=(1, 1, 1))


def test_the_first_launch_can_be_captured(counter: torch.Tensor, add: jit.Launch) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add(current_stream())
    assert counter.item() == 0

    graph.replay()
    graph.replay()

    assert counter.item() == 10


def test_a_launch_goes_to_the_stream_that_it_is_given(counter: torch.Tensor, add: jit.Launch) -> None:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
    add(stream.cuda_stream)

    assert not stream.query()  # neither ran ahead of the stream nor waited for it
    stream.synchronize()
    assert counter.item() == 5


def test_a_thread_without_a_context_can_launch(counter: torch.Tensor, add: jit.Launch) -> None:
    thread = threading.Thread(target=add, args=(0,))
    thread.start()
    thread.join()
    torch.cuda.synchronize()

    assert counter.item() == 5


def test_a_launch_allocates_nothing(counter: torch.Tensor, add: jit.Launch) -> None:
    add(current_stream())
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0], torch.cuda.memory_stats()["allocation.all.allocated"]
    for _ in range(100):
        add(current_stream())
    torch.cuda.synchronize()

    assert (torch.cuda.mem_get_info()[0], torch.cuda.memory_stats()["allocation.all.allocated"]) == before


def test_more_shared_memory_than_there_is_is_refused() -> None:
    limit = facts(0).smem_bytes
    module = jit.load(compiled(ADD), device=0)

    with pytest.raises(ArgumentError, match=rf"smem_bytes of add must be in 0..{limit}, .* got {limit + 1}"):
        module.kernel("add", smem_bytes=limit + 1)


def test_a_function_that_is_not_there_is_named() -> None:
    with pytest.raises(DriverError, match=r"function gone of test.cu for sm_\w+: .*CUDA_ERROR_NOT_FOUND"):
        jit.load(compiled(ADD), device=0).kernel("gone")


def test_a_cubin_of_another_architecture_is_named() -> None:
    cubin = jit.compile(jit.Source(origin="test.cu", text=ADD), arch="sm_75", cache=CubinCache(None))

    with pytest.raises(DriverError, match="loading test.cu for sm_75 on device 0: .*NO_BINARY_FOR_GPU"):
        jit.load(cubin, device=0)
