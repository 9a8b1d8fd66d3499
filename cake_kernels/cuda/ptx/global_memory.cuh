// Global memory that CTAs share. The relaxed operations order nothing: where a word says that data are there, fence_gpu
// stands between the two, both where they are written and where they are read.
#pragma once

#include "ptx/integers.cuh"

// PTX ISA, red.add
__device__ __forceinline__ void add_relaxed(int* word, int value) {
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

// PTX ISA, red.add with .v4: each of the four is added by itself. A subnormal number counts as zero.
__device__ __forceinline__ void add_relaxed(float4* to, float4 v) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z),
                 "f"(v.w)
                 : "memory");
}

// PTX ISA, atom.add: returns the value before.
__device__ __forceinline__ int fetch_add_relaxed(int* word, int value) {
    int before;
    asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
    return before;
}

// PTX ISA, atom.inc: adds 1, or goes from `most` to 0; returns the value before. Both a release and an acquire.
__device__ __forceinline__ int fetch_increment(int* word, int most) {
    int before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(most) : "memory");
    return before;
}

// PTX ISA, ld.relaxed
__device__ __forceinline__ int load_relaxed(const int* word) {
    int value;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

// PTX ISA, st.relaxed
__device__ __forceinline__ void store_relaxed(int* word, int value) {
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

// PTX ISA, fence.acq_rel
__device__ __forceinline__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// PTX ISA, st.v4
__device__ __forceinline__ void store_global(float4* to, float4 v) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
}

// PTX ISA, ld.v4
__device__ __forceinline__ float4 load_global(const float4* from) {
    float4 v;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}
