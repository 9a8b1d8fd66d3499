// TMA: tiles between global and shared memory, described by a tensor map.
#pragma once

#include "ptx/integers.cuh"

// CUtensorMap, a __grid_constant__ parameter.
struct alignas(64) TensorMap {
    u64 opaque[16];
};

// PTX ISA, prefetch.tensormap
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map));
}

// PTX ISA, cp.async.bulk.tensor: 3-D load into this CTA.
__device__ __forceinline__ void tma_load(u32 smem, const TensorMap& map, u32 barrier, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(smem),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier)
        : "memory");
}

// PTX ISA, cp.async.bulk.tensor: 4-D load into this CTA.
__device__ __forceinline__ void tma_load(u32 smem, const TensorMap& map, u32 barrier, int x, int y, int z, int w) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(smem),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
        : "memory");
}

// PTX ISA, cp.async.bulk.tensor: 3-D load into the same place of each CTA in `ctas`, one bit a rank.
__device__ __forceinline__ void tma_multicast(u32 smem, const TensorMap& map, u32 barrier, u16 ctas, int x, int y,
                                              int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(smem),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(ctas)
        : "memory");
}

// PTX ISA, cp.async.bulk.tensor: 4-D load into the same place of each CTA in `ctas`, one bit a rank.
__device__ __forceinline__ void tma_multicast(u32 smem, const TensorMap& map, u32 barrier, u16 ctas, int x, int y,
                                              int z, int w) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(smem),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "h"(ctas)
        : "memory");
}

// PTX ISA, cp.async.bulk.tensor: 3-D store. What lies outside the map is not written.
__device__ __forceinline__ void tma_store(const TensorMap& map, u32 smem, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
                 "r"(x), "r"(y), "r"(z), "r"(smem)
                 : "memory");
}

// PTX ISA, cp.async.bulk.commit_group; a group may be empty.
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// PTX ISA, cp.async.bulk.wait_group.read: all groups but the newest kPending have read their shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// PTX ISA, cp.async.bulk.wait_group: every group has been written.
__device__ __forceinline__ void tma_store_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// PTX ISA, fence.proxy.async: what this thread wrote to shared memory is seen by TMA and wgmma.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
