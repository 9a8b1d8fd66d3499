// Barriers: mbarrier in shared memory, named ones of a CTA, and the cluster's.
#pragma once

#include "ptx/integers.cuh"

// PTX ISA, mbarrier.init
__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// PTX ISA, fence.mbarrier_init: the cluster sees the initialised barriers.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// PTX ISA, mbarrier.arrive.expect_tx
__device__ __forceinline__ void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// PTX ISA, mbarrier.arrive
__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// PTX ISA, mbarrier.arrive. `barrier` is an address of the cluster.
// NOTE(sm90): .release.cluster would become MEMBAR.ALL.GPU at every k-block and cost 19 to 26 %. The default order is
// enough here: what it must order are reads by wgmma, which wgmma.wait_group has completed.
__device__ __forceinline__ void mbarrier_arrive_cluster(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// PTX ISA, mbarrier.try_wait.parity, repeated until the phase of that parity has completed.
__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra WAIT;\n"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// PTX ISA, bar.sync
__device__ __forceinline__ void named_barrier(u32 id, u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// PTX ISA, bar.red.or: a barrier that tells each thread whether any of them says `yes`.
__device__ __forceinline__ bool named_barrier_or(u32 id, u32 threads, bool yes) {
    u32 any;
    asm volatile(
        "{\n"
        ".reg .pred yes, any;\n"
        "setp.ne.u32 yes, %3, 0;\n"
        "bar.red.or.pred any, %1, %2, yes;\n"
        "selp.u32 %0, 1, 0, any;\n"
        "}"
        : "=r"(any)
        : "r"(id), "r"(threads), "r"(u32(yes))
        : "memory");
    return any;
}

// PTX ISA, barrier.cluster.arrive
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive;" ::: "memory"); }

// PTX ISA, barrier.cluster.wait
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

// PTX ISA, mapa: an address of this CTA's shared memory -> the same place in the CTA of that rank.
__device__ __forceinline__ u32 map_to_cta(u32 address, u32 rank) {
    u32 mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}
