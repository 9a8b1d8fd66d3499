// wgmma: a warpgroup multiplies tiles in shared memory into FP32 registers. BF16, K = 16.
#pragma once

#include "ptx/integers.cuh"

// PTX ISA, wgmma.fence
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// PTX ISA, wgmma.commit_group
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// PTX ISA, wgmma.wait_group: all groups but the newest kPending are complete.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Not an instruction: reads and writes of an accumulator stay on their side of this line.
__device__ __forceinline__ void pin(float& accumulator) { asm volatile("" : "+f"(accumulator)::"memory"); }

// ---- wgmma.mma_async -----------------------------------------------------------------------------------------------
//
// PTX ISA, wgmma.mma_async: d = A B, or with `add` d += A B; A [64, 16] and B [16, N] are in shared memory. a, b are
// the low words of the matrix descriptors, kHigh the high word of both. kTransA, kTransB: 0 where the K side is
// contiguous, 1 where M or N is.

#define REGISTERS_0_31 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_32_63 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_64_95 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REGISTERS_96_127 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define OPERANDS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define OPERANDS_16(d, i) OPERANDS_4(d, i), OPERANDS_4(d, i + 4), OPERANDS_4(d, i + 8), OPERANDS_4(d, i + 12)
#define OPERANDS_32(d, i) OPERANDS_16(d, i), OPERANDS_16(d, i + 16)

template <u32 kHigh, int kTransA, int kTransB>
__device__ __forceinline__ void wgmma(float (&d)[64], u32 a, u32 b, bool add) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        ".reg .b64 a, b;\n"
        "setp.ne.u32 add, %69, 0;\n"
        "mov.b64 a, {%64, %66};\n"
        "mov.b64 b, {%65, %66};\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGISTERS_0_31 ", " REGISTERS_32_63
        "}, a, b, add, 1, 1, %67, %68;\n"
        "}"
        : OPERANDS_32(d, 0), OPERANDS_32(d, 32)
        : "r"(a), "r"(b), "n"(kHigh), "n"(kTransA), "n"(kTransB), "r"(u32(add)));
}

template <u32 kHigh, int kTransA, int kTransB>
__device__ __forceinline__ void wgmma(float (&d)[96], u32 a, u32 b, bool add) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        ".reg .b64 a, b;\n"
        "setp.ne.u32 add, %101, 0;\n"
        "mov.b64 a, {%96, %98};\n"
        "mov.b64 b, {%97, %98};\n"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" REGISTERS_0_31 ", " REGISTERS_32_63
        ", " REGISTERS_64_95
        "}, a, b, add, 1, 1, %99, %100;\n"
        "}"
        : OPERANDS_32(d, 0), OPERANDS_32(d, 32), OPERANDS_32(d, 64)
        : "r"(a), "r"(b), "n"(kHigh), "n"(kTransA), "n"(kTransB), "r"(u32(add)));
}

template <u32 kHigh, int kTransA, int kTransB>
__device__ __forceinline__ void wgmma(float (&d)[128], u32 a, u32 b, bool add) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        ".reg .b64 a, b;\n"
        "setp.ne.u32 add, %133, 0;\n"
        "mov.b64 a, {%128, %130};\n"
        "mov.b64 b, {%129, %130};\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" REGISTERS_0_31 ", " REGISTERS_32_63
        ", " REGISTERS_64_95 ", " REGISTERS_96_127
        "}, a, b, add, 1, 1, %131, %132;\n"
        "}"
        : OPERANDS_32(d, 0), OPERANDS_32(d, 32), OPERANDS_32(d, 64), OPERANDS_32(d, 96)
        : "r"(a), "r"(b), "n"(kHigh), "n"(kTransA), "n"(kTransB), "r"(u32(add)));
}

#undef REGISTERS_0_31
#undef REGISTERS_32_63
#undef REGISTERS_64_95
#undef REGISTERS_96_127
#undef OPERANDS_4
#undef OPERANDS_16
#undef OPERANDS_32
