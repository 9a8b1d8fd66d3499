// What printed merge.csv: 132 CTAs, one on each SM, read kBytes every `period` cycles; the SMs of a set (group_of) the
// same bytes, the last of it (index_of 16) `skew` cycles after the first (0). The bytes repeat after `distinct` rounds.
// Sectors are counted by ncu --clock-control none --cache-control none.
typedef unsigned long long u64;
typedef unsigned u32;

__device__ __forceinline__ u64 global_time() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

__device__ __forceinline__ void wait(u32 barrier, u32 phase) {
    asm volatile(
        "{\n.reg .pred p;\nL:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra L;\n}" ::"r"(barrier), "r"(phase)
        : "memory");
}

constexpr int kBytes = 48 << 10;

// sync: zeros. clocks: for each SM its clock and the global time when all begin, and its clock at the end.
extern "C" __global__ void merge_probe(const char* data, const int* group_of, const int* index_of, u64* clocks, u64* sync,
                                       int groups, int iters, int distinct, int period, int skew) {
    extern __shared__ __align__(1024) char smem[];
    if (threadIdx.x) return;
    u32 sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    const int group = group_of[sm], index = index_of[sm];
    const u32 base = (u32)__cvta_generic_to_shared(smem), barrier = base + 3 * kBytes;
    for (int i = 0; i < 3; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier + 8 * i));
    asm volatile("fence.mbarrier_init.release.cluster;");
    volatile u64* go = sync + 1;
    if (atomicAdd(sync, 1ull) == gridDim.x - 1) *go = global_time() + 20000;
    u64 at;
    while ((at = *go) == 0) {}
    u64 now;
    while ((now = global_time()) < at) {}
    const u64 start = clock64();
    clocks[sm * 4] = start;
    clocks[sm * 4 + 1] = now;
    for (int it = 0; it < iters; ++it) {
        const int slot = it % 3;
        if (it >= 3) wait(barrier + 8 * slot, (it / 3 - 1) & 1);
        const u64 target = start + 2000 + (u64)it * period + (u64)skew * index / 16;
        while (clock64() < target) {}
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier + 8 * slot), "r"(kBytes) : "memory");
        const char* from = data + (u64)((it % distinct) * groups + group) * kBytes;
        for (int part = 0; part < 3; ++part)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                             base + slot * kBytes + part * (kBytes / 3)),
                         "l"(from + part * (kBytes / 3)), "r"(kBytes / 3), "r"(barrier + 8 * slot)
                         : "memory");
    }
    for (int it = iters - 3; it < iters; ++it) wait(barrier + 8 * (it % 3), (it / 3) & 1);
    clocks[sm * 4 + 2] = clock64();
}
