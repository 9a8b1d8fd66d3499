// Words in global memory that CTAs share. Nothing is ordered by them: they say how far others are, and guard no data.
#pragma once

#include "ptx/integers.cuh"

// PTX ISA, red.add
__device__ __forceinline__ void add_relaxed(int* word, int value) {
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

// PTX ISA, atom.add: returns the value before.
__device__ __forceinline__ int fetch_add_relaxed(int* word, int value) {
    int before;
    asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
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
