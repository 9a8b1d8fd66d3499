// A CPU that runs the device code of the sm_90a kernel: stands in for cake_kernels/cuda/ptx, header for header.
//
// Threads are fibers of one cluster. What is asynchronous on the device happens as late as the program allows (`lazy`)
// or at a random moment before: a stage loaded too early, a buffer written again too early, a missing fence, a wait
// without end show as a wrong number or as an error. Each function keeps the contract of the instruction that it stands
// for. Clusters run one after the other, in any order. Not modelled: memory order between CTAs, but for stores and additions
// of partial sums, which no other thread sees before a fence or the launch's end; early reads by wgmma and TMA stores, bank
// conflicts, time.
//
// This header is compiled with each kernel, sm90_emulator.cpp once for all: no standard library here.
#pragma once

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

template <typename T>
constexpr T max(T a, T b) {
    return a < b ? b : a;
}
template <typename T>
constexpr T min(T a, T b) {
    return b < a ? b : a;
}

struct uint4 {
    u32 x, y, z, w;
};
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
struct alignas(16) float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// In numbers: extents in elements, strides in bytes, the element's first.
struct TensorMap {
    char* base;
    i64 rank;
    i64 dims[5];
    i64 strides[5];
    i64 box[5];
};

namespace emulator {

constexpr u32 kSmemBase = 1024;  // the first KiB is the system's
constexpr u32 kSmemBytes = 232448;
constexpr int kThreadsOfCta = 384;

struct Wgmma {
    float* d;
    int n;
    u32 a, b, high;
    int trans_a, trans_b;
    bool add;
};

int thread();  // of its CTA
unsigned char* smem_of_cta();
void load(u32 to, const TensorMap& map, u32 full, u32 ranks, const int* at, int rank);
void issue(const Wgmma& wgmma);
void wait_for_stores(u32 pending);  // groups; at most so many are left
void wait_for_wgmma(u32 pending);   // groups

const char* run_launch(void (*kernel)(const void*), const void* of_kernel, const u32* order, u32 clusters,
                       int cluster_size, u32 seed, bool lazy);

// Runs clusters of so many CTAs, each thread of which calls `kernel`. Returns what rule it breaks, or null.
template <typename Kernel>
const char* run(const Kernel& kernel, const u32* order, u32 clusters, int cluster_size, u32 seed, bool lazy) {
    const auto call = [](const void* of_kernel) { (*static_cast<const Kernel*>(of_kernel))(); };
    return run_launch(call, &kernel, order, clusters, cluster_size, seed, lazy);
}

}  // namespace emulator

// ---- what CUDA C++ has ---------------------------------------------------------------------------------------------

inline constexpr struct {
    struct {
        operator int() const { return emulator::thread(); }
    } x;
} threadIdx;

#define shared_memory (emulator::smem_of_cta())

u32 __cvta_generic_to_shared(const unsigned char*);
void* __cvta_shared_to_generic(u32 address);

inline float __uint_as_float(u32 bits) {
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}

int __reduce_max_sync(u32, int value);
int __reduce_min_sync(u32, int value);
int __reduce_add_sync(u32, int value);
u32 __ballot_sync(u32, bool value);
void __syncwarp();
int __shfl_sync(u32, int value, int from);
inline int __shfl_up_sync(u32 lanes, int value, int step) {
    const int lane = threadIdx.x % 32;
    return __shfl_sync(lanes, value, lane < step ? lane : lane - step);
}
inline int __popc(u32 bits) { return __builtin_popcount(bits); }
inline int atomicAdd(int* to, int value) { return (*to += value) - value; }

// ---- ptx/registers.cuh ---------------------------------------------------------------------------------------------

u32 cluster_id();
u32 num_clusters();
u32 cta_rank();
template <int>
void give_registers() {}
template <int>
void take_registers() {}
inline int warp_uniform(int value) { return __shfl_sync(0xffffffff, value, 0); }
inline bool elected() { return threadIdx.x % 32 == 0; }
inline u32 opaque(u32 value) { return value; }

// ---- ptx/global_memory.cuh -----------------------------------------------------------------------------------------

inline void add_relaxed(int* word, int value) { *word += value; }
inline int fetch_add_relaxed(int* word, int value) { return (*word += value) - value; }
inline int fetch_increment(int* word, int most) {
    const int before = *word;
    *word = before >= most ? 0 : before + 1;
    return before;
}
inline int load_relaxed(const int* word) { return *word; }
inline void store_relaxed(int* word, int value) { *word = value; }
void store_global(float4* to, float4 v);
void add_relaxed(float4* to, float4 v);
float4 load_global(const float4* from);
void fence_gpu();

// ---- ptx/barriers.cuh ----------------------------------------------------------------------------------------------

void mbarrier_init(u32 barrier, u32 arrivals);
inline void fence_mbarrier_init() {}
void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes);
void mbarrier_arrive(u32 barrier);
void mbarrier_arrive_cluster(u32 barrier);
void mbarrier_wait(u32 barrier, u32 parity);
void named_barrier(u32 id, u32 threads);
bool named_barrier_or(u32 id, u32 threads, bool yes);
void cluster_arrive();
void cluster_wait();
u32 map_to_cta(u32 address, u32 rank);

// ---- ptx/tma.cuh ---------------------------------------------------------------------------------------------------

inline void prefetch_map(const TensorMap&) {}
template <typename... At>
void tma_multicast(u32 to, const TensorMap& map, u32 full, u16 ranks, At... at) {
    const int coordinates[] = {at...};
    emulator::load(to, map, full, ranks, coordinates, sizeof...(At));
}
template <typename... At>
void tma_load(u32 to, const TensorMap& map, u32 full, At... at) {
    tma_multicast(to, map, full, u16(1u << cta_rank()), at...);
}
void tma_store(const TensorMap& map, u32 from, int x, int y, int z);
void tma_store_commit();
template <int kPending>
void tma_store_wait_read() {
    emulator::wait_for_stores(kPending);
}
inline void tma_store_wait_all() { tma_store_wait_read<0>(); }
void fence_async_proxy();

// ---- ptx/shared_memory.cuh -----------------------------------------------------------------------------------------

void store_matrices(u32 row, const u32 (&m)[4]);
void store_matrices_transposed(u32 row, const u32 (&m)[4]);
void store_shared(u32 address, float value);
void store_shared(u32 address, float first, float second);
void store_shared(u32 address, uint4 v);
uint4 load_shared(u32 address);
u32 bf16_pair(float low, float high);

// ---- ptx/wgmma.cuh -------------------------------------------------------------------------------------------------

inline void wgmma_fence() {}
inline void pin(float&) {}
template <u32 kHigh, int kTransA, int kTransB, u64 kCount>
void wgmma(float (&d)[kCount], u32 a, u32 b, bool add) {
    emulator::issue({d, int(2 * kCount), a, b, kHigh, kTransA, kTransB, add});
}
void wgmma_commit();
template <int kPending>
void wgmma_wait() {
    emulator::wait_for_wgmma(kPending);
}
