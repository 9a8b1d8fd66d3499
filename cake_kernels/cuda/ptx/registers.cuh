// Special registers, and how many registers a warpgroup may use.
#pragma once

#include "ptx/integers.cuh"

// PTX ISA, special registers: %clusterid, for clusters along x
__device__ __forceinline__ u32 cluster_id() {
    u32 id;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(id));
    return id;
}

// PTX ISA, special registers: %nclusterid, for clusters along x
__device__ __forceinline__ u32 num_clusters() {
    u32 count;
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
    return count;
}

// PTX ISA, special registers: %cluster_ctarank
__device__ __forceinline__ u32 cta_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// PTX ISA, setmaxnreg.dec
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// PTX ISA, setmaxnreg.inc
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// PTX ISA, shfl.sync.idx: lane 0's value, of which the compiler then knows that all lanes have it. Whole warps only.
__device__ __forceinline__ int warp_uniform(int value) { return __shfl_sync(0xffffffff, value, 0); }

// PTX ISA, elect.sync: true in one thread of a whole warp, always the same one, and the compiler knows that it is one.
__device__ __forceinline__ bool elected() {
    u32 yes;
    asm volatile(
        "{\n"
        ".reg .pred leader;\n"
        "elect.sync _|leader, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, leader;\n"
        "}"
        : "=r"(yes));
    return yes;
}

// Not an instruction: the value, of which the compiler no longer knows how it came about, so that it keeps it in a
// register rather than compute it anew at each use.
__device__ __forceinline__ u32 opaque(u32 value) {
    asm volatile("mov.u32 %0, %0;" : "+r"(value));
    return value;
}
