// A CPU that runs the device code of the sm_90a kernel: stands in for cake_kernels/cuda/ptx, header for header.
//
// Threads are fibers of one cluster. What is asynchronous on the device happens as late as the program allows (`lazy`)
// or at a random moment before: a stage loaded too early, a buffer written again too early, a missing fence, a wait
// without end show as a wrong number or as an error. Each function keeps the contract of the instruction that it stands
// for. Clusters run one after the other, in any order. Not modelled: memory order between CTAs, but for stores and additions
// of partial sums, which no other thread sees before a fence or the launch's end; early reads by wgmma and TMA stores, bank
// conflicts, time.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

using std::max;
using std::min;

#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

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
constexpr short kNobody = -1;

[[noreturn]] inline void fail(const std::string& what) { throw std::runtime_error(what); }

// ---- state ---------------------------------------------------------------------------------------------------------

struct Barrier {
    int count, pending;
    i64 bytes = 0;
    u32 phases = 0;  // completed

    void arrive() {
        if (pending == 0) fail("an mbarrier gets one arrival too many");
        --pending;
        settle();
    }
    void expect(i64 more) {
        bytes += more;
        settle();
    }
    void settle() {
        if (pending || bytes) return;
        ++phases;
        pending = count;
    }
};

struct Rendezvous {
    u32 arrived = 0, generation = 0;
    bool any = false, result = false;
};

struct Wgmma {
    float* d;
    int n;
    u32 a, b, high;
    int trans_a, trans_b;
    bool add;
};

struct WgmmaGroup {
    std::vector<Wgmma> of_thread[128];
    int committed = 0;
};

struct Warpgroup {
    std::vector<WgmmaGroup> groups;
    size_t complete = 0;
};

struct Cta {
    int rank;
    std::vector<unsigned char> smem = std::vector<unsigned char>(kSmemBytes, 0xff);
    std::vector<short> unfenced = std::vector<short>(kSmemBytes / 16, kNobody);  // the thread that wrote the 16 bytes
    std::map<u32, Barrier> mbarriers;
    std::map<u32, Rendezvous> named;
    Warpgroup warpgroups[kThreadsOfCta / 128];
};

struct Warp {
    Rendezvous meeting;
    u32 given[32][5];
    u32 result[32];
};

using Work = std::function<void()>;

// A thread's stores and additions to global memory that others do not see yet, in its order.
struct Unfenced {
    std::map<const float4*, std::vector<std::pair<bool, float4>>> writes;  // whether it adds, and what

    void store(float4* to, float4 v) { writes[to] = {{false, v}}; }
    void add(float4* to, float4 v) { writes[to].push_back({true, v}); }
    float4 load(const float4* from) const {
        float4 seen = *from;
        const auto found = writes.find(from);
        if (found == writes.end()) return seen;
        for (const auto& [adds, v] : found->second)
            seen = adds ? make_float4(seen.x + v.x, seen.y + v.y, seen.z + v.z, seen.w + v.w) : v;
        return seen;
    }
    void show() {
        for (const auto& [to, _] : writes) *const_cast<float4*>(to) = load(to);
        writes.clear();
    }
};

struct Thread {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(64 << 10);
    int id;  // in its CTA
    Cta* cta;
    Warp* warp;
    bool finished = false;
    std::string error;
    std::vector<Wgmma> issued;
    size_t wgmma_groups = 0;
    std::vector<Work> stores;                     // not committed yet
    std::vector<std::vector<Work>> store_groups;  // committed
    size_t stored = 0;                            // groups
    Unfenced unfenced;
    u32 cluster_generation = 0;
};

struct Cluster {
    std::vector<Cta> ctas;
    Rendezvous meeting;
    std::vector<Work> loads;
};

inline Cluster* cluster;
inline Thread* self;
inline ucontext_t scheduler;
inline std::mt19937 random_number;
inline bool lazy;
inline bool progress;
inline u32 id_of_cluster, count_of_clusters;
inline std::vector<Unfenced> ended;  // of the threads that have ended in this launch

// ---- waiting -------------------------------------------------------------------------------------------------------

template <typename Ready>
void wait_until(Ready ready) {
    while (!ready()) swapcontext(&self->context, &scheduler);
    progress = true;
}

template <typename Last>
void meet(Rendezvous& meeting, u32 threads, Last last) {
    const u32 generation = meeting.generation;
    if (++meeting.arrived == threads) {
        last();
        meeting.arrived = 0;
        ++meeting.generation;
        progress = true;
    } else {
        wait_until([&] { return meeting.generation != generation; });
    }
}

// ---- shared memory -------------------------------------------------------------------------------------------------

inline u32 within_cta(u32 address) { return address & 0xffffff; }
inline u32 swizzle(u32 address) { return address ^ (address >> 3 & 0x70); }

inline u32 index(u32 address) {
    const u32 offset = within_cta(address) - kSmemBase;
    if (offset >= kSmemBytes) fail("an address is outside of shared memory");
    return offset;
}

inline void write(u32 address, const void* data, u32 bytes, int writer) {
    if (address % bytes) fail("a store to shared memory is not aligned");
    std::memcpy(&self->cta->smem[index(address)], data, bytes);
    self->cta->unfenced[index(address) / 16] = short(writer);
}

inline const unsigned char* read_by_async_proxy(Cta& cta, u32 address) {
    if (cta.unfenced[index(address) / 16] != kNobody) fail("TMA or wgmma reads what no fence.proxy.async covers");
    return &cta.smem[index(address)];
}

inline Barrier& mbarrier(Cta& cta, u32 address) {
    const auto found = cta.mbarriers.find(within_cta(address));
    if (found == cta.mbarriers.end()) fail("an mbarrier is not initialised");
    return found->second;
}

// ---- wgmma ---------------------------------------------------------------------------------------------------------

inline float from_bf16(u16 bits) {
    const u32 wide = u32(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}

// PTX ISA, matrix descriptors and canonical layouts of wgmma with a swizzle of 128 bytes: element (mn, k).
inline float element(Cta& cta, u32 low, u32 high, int trans, int mn, int k) {
    if (high >> 30 != 1) fail("a descriptor is not swizzled by 128 bytes");
    const u32 start = (low & 0x3fff) << 4, leading = (low >> 16 & 0x3fff) << 4, stride = (high & 0x3fff) << 4;
    const u32 offset = trans ? mn / 64 * leading + k / 8 * stride + k % 8 * 128 + mn % 64 * 2
                             : mn / 8 * stride + mn % 8 * 128 + k * 2;
    u16 bits;
    std::memcpy(&bits, read_by_async_proxy(cta, swizzle(start + offset)), 2);
    return from_bf16(bits);
}

inline void run(Cta& cta, int thread, const Wgmma& w) {
    const int m = thread / 32 * 16 + thread % 32 / 4, n = 2 * (thread % 4);
    float a[2][16];
    for (int i = 0; i < 2; ++i)
        for (int k = 0; k < 16; ++k) a[i][k] = element(cta, w.a, w.high, w.trans_a, m + 8 * i, k);
    for (int j = 0; j < w.n / 8; ++j)
        for (int c = 0; c < 2; ++c)
            for (int k = 0; k < 16; ++k) {
                const float b = element(cta, w.b, w.high, w.trans_b, 8 * j + n + c, k);
                for (int i = 0; i < 2; ++i) {
                    float& d = w.d[4 * j + 2 * i + c];
                    d = a[i][k] * b + (w.add || k > 0 ? d : 0);
                }
            }
}

inline void complete(Cta& cta, Warpgroup& warpgroup, size_t groups) {
    for (; warpgroup.complete < groups; ++warpgroup.complete)
        for (int t = 0; t < 128; ++t)
            for (const Wgmma& w : warpgroup.groups[warpgroup.complete].of_thread[t]) run(cta, t, w);
}

// ---- TMA -----------------------------------------------------------------------------------------------------------

// Calls move(offset in the box, address in global memory or null outside of the map) for each 16 bytes of a box.
template <typename Move>
void each_of_box(const TensorMap& map, const std::vector<int>& at, Move move) {
    if (i64(at.size()) != map.rank) fail("coordinates are of another rank than their map");
    i64 elements = 1;
    for (int d = 0; d < map.rank; ++d) elements *= map.box[d];
    for (i64 i = 0; i < elements; i += 16 / map.strides[0]) {
        i64 rest = i, offset = 0;
        bool inside = true;
        for (int d = 0; d < map.rank; ++d) {
            const i64 x = at[d] + rest % map.box[d];
            rest /= map.box[d];
            inside = inside && x >= 0 && x < map.dims[d];
            offset += x * map.strides[d];
        }
        move(u32(i * map.strides[0]), inside ? map.base + offset : nullptr);
    }
}

inline void load(u32 to, const TensorMap& map, u32 full, u32 ranks, std::vector<int> at) {
    if (to % 1024) fail("a swizzled tile is not aligned to 1024 bytes");
    cluster->loads.push_back([=, &map] {
        i64 bytes = map.strides[0];
        for (int d = 0; d < map.rank; ++d) bytes *= map.box[d];
        for (Cta& cta : cluster->ctas) {
            if (!(ranks >> cta.rank & 1)) continue;
            each_of_box(map, at, [&](u32 offset, const char* from) {
                unsigned char* place = &cta.smem[index(swizzle(within_cta(to) + offset))];
                if (from) std::memcpy(place, from, 16);
                else std::memset(place, 0, 16);
            });
            mbarrier(cta, full).expect(-bytes);
        }
    });
}

inline bool finish_a_load() {
    if (cluster->loads.empty()) return false;
    const auto chosen = cluster->loads.begin() + random_number() % cluster->loads.size();
    const Work work = *chosen;
    cluster->loads.erase(chosen);
    work();
    return true;
}

// ---- running a cluster ---------------------------------------------------------------------------------------------

inline Work kernel;

inline void run_thread() {
    try {
        kernel();
    } catch (const std::exception& error) {
        self->error = error.what();
    }
    self->finished = true;
}

inline void run_cluster(u32 id, u32 count, int size) {
    Cluster here;
    here.ctas.resize(size);
    cluster = &here;
    id_of_cluster = id;
    count_of_clusters = count;
    std::vector<Warp> warps(size * kThreadsOfCta / 32);
    std::vector<Thread> threads(size * kThreadsOfCta);
    std::vector<Thread*> order;
    for (Thread& t : threads) {
        const int number = int(&t - threads.data());
        t.id = number % kThreadsOfCta;
        t.cta = &here.ctas[number / kThreadsOfCta];
        t.cta->rank = number / kThreadsOfCta;
        t.warp = &warps[number / 32];
        getcontext(&t.context);
        t.context.uc_stack.ss_sp = t.stack.data();
        t.context.uc_stack.ss_size = t.stack.size();
        t.context.uc_link = &scheduler;
        makecontext(&t.context, run_thread, 0);
        order.push_back(&t);
    }
    while (!order.empty()) {
        std::shuffle(order.begin(), order.end(), random_number);
        progress = false;
        for (Thread* t : order) {
            self = t;
            swapcontext(&scheduler, &t->context);
            if (!t->error.empty())
                fail("thread " + std::to_string(t->id) + " of CTA " + std::to_string(t->cta->rank) + ": " + t->error);
            if (!lazy && random_number() % 64 == 0) progress |= finish_a_load();
        }
        const size_t left = order.size();
        std::erase_if(order, [](Thread* t) { return t->finished; });
        if (!progress && order.size() == left && !finish_a_load()) fail("deadlock");
    }
    if (!here.loads.empty()) fail("a load is under way when its CTA ends");
    for (Thread& t : threads) ended.push_back(std::move(t.unfenced));
}

inline void run_launch(const u32* order, u32 count, int size) {
    ended.clear();
    for (u32 i = 0; i < count; ++i) run_cluster(order[i], count, size);
    for (Unfenced& of_thread : ended) of_thread.show();
}

}  // namespace emulator

// ---- what CUDA C++ has ---------------------------------------------------------------------------------------------

inline struct {
    struct {
        operator int() const { return emulator::self->id; }
    } x;
} threadIdx;

#define shared_memory (emulator::self->cta->smem.data())

inline u32 __cvta_generic_to_shared(const unsigned char*) {
    return emulator::kSmemBase + (u32(emulator::self->cta->rank) << 24);
}

inline void* __cvta_shared_to_generic(u32 address) {
    return &emulator::self->cta->smem[emulator::index(address)];
}

inline float __uint_as_float(u32 bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// All 32 lanes give a value and get what `both` makes of them.
template <typename Both>
int reduce(int value, Both both) {
    emulator::Warp& warp = *emulator::self->warp;
    warp.given[emulator::self->id % 32][0] = u32(value);
    emulator::meet(warp.meeting, 32, [&] {
        int all = int(warp.given[0][0]);
        for (int i = 1; i < 32; ++i) all = both(all, int(warp.given[i][0]));
        warp.result[0] = u32(all);
    });
    return int(warp.result[0]);
}
inline int __reduce_max_sync(u32, int value) { return reduce(value, [](int a, int b) { return max(a, b); }); }
inline int __reduce_min_sync(u32, int value) { return reduce(value, [](int a, int b) { return min(a, b); }); }
inline int __reduce_add_sync(u32, int value) { return reduce(value, [](int a, int b) { return a + b; }); }
inline u32 __ballot_sync(u32, bool value) {
    return u32(reduce(int(u32(value) << emulator::self->id % 32), [](int a, int b) { return a | b; }));
}
inline void __syncwarp() { emulator::meet(emulator::self->warp->meeting, 32, [] {}); }
inline int __popc(u32 bits) { return __builtin_popcount(bits); }
inline int atomicAdd(int* to, int value) { return (*to += value) - value; }

// Each lane names the one whose value it gets.
inline int __shfl_sync(u32, int value, int from) {
    emulator::Warp& warp = *emulator::self->warp;
    const int lane = emulator::self->id % 32;
    warp.given[lane][0] = u32(value);
    warp.given[lane][1] = u32(from) % 32;
    emulator::meet(warp.meeting, 32, [&] {
        for (int i = 0; i < 32; ++i) warp.result[i] = warp.given[warp.given[i][1]][0];
    });
    return int(warp.result[lane]);
}
inline int __shfl_up_sync(u32 lanes, int value, int step) {
    const int lane = emulator::self->id % 32;
    return __shfl_sync(lanes, value, lane < step ? lane : lane - step);
}

// ---- ptx/registers.cuh ---------------------------------------------------------------------------------------------

inline u32 cluster_id() { return emulator::id_of_cluster; }
inline u32 num_clusters() { return emulator::count_of_clusters; }
inline u32 cta_rank() { return u32(emulator::self->cta->rank); }
template <int>
void give_registers() {}
template <int>
void take_registers() {}
inline int warp_uniform(int value) { return __shfl_sync(0xffffffff, value, 0); }
inline bool elected() { return emulator::self->id % 32 == 0; }
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
inline void store_global(float4* to, float4 v) { emulator::self->unfenced.store(to, v); }
inline void add_relaxed(float4* to, float4 v) { emulator::self->unfenced.add(to, v); }
inline float4 load_global(const float4* from) { return emulator::self->unfenced.load(from); }
inline void fence_gpu() { emulator::self->unfenced.show(); }

// ---- ptx/barriers.cuh ----------------------------------------------------------------------------------------------

inline void mbarrier_init(u32 barrier, u32 arrivals) {
    emulator::self->cta->mbarriers[emulator::within_cta(barrier)] = {int(arrivals), int(arrivals)};
}
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
    emulator::Barrier& b = emulator::mbarrier(*emulator::self->cta, barrier);
    b.bytes += bytes;
    b.arrive();
}
inline void mbarrier_arrive(u32 barrier) { emulator::mbarrier(*emulator::self->cta, barrier).arrive(); }
inline void mbarrier_arrive_cluster(u32 barrier) {
    emulator::mbarrier(emulator::cluster->ctas.at(barrier >> 24), barrier).arrive();
}
inline void mbarrier_wait(u32 barrier, u32 parity) {
    const emulator::Barrier& b = emulator::mbarrier(*emulator::self->cta, barrier);
    emulator::wait_until([&] { return b.phases % 2 != parity; });
}
inline void named_barrier(u32 id, u32 threads) {
    emulator::meet(emulator::self->cta->named[id], threads, [] {});
}
inline bool named_barrier_or(u32 id, u32 threads, bool yes) {
    emulator::Rendezvous& meeting = emulator::self->cta->named[id];
    meeting.any = (meeting.arrived > 0 && meeting.any) || yes;
    emulator::meet(meeting, threads, [&] { meeting.result = meeting.any; });
    return meeting.result;
}
inline void cluster_arrive() {
    emulator::Rendezvous& meeting = emulator::cluster->meeting;
    emulator::self->cluster_generation = meeting.generation;
    if (++meeting.arrived == emulator::cluster->ctas.size() * emulator::kThreadsOfCta) {
        meeting.arrived = 0;
        ++meeting.generation;
    }
}
inline void cluster_wait() {
    emulator::wait_until([] { return emulator::cluster->meeting.generation != emulator::self->cluster_generation; });
}
inline u32 map_to_cta(u32 address, u32 rank) { return emulator::within_cta(address) | rank << 24; }

// ---- ptx/tma.cuh ---------------------------------------------------------------------------------------------------

inline void prefetch_map(const TensorMap&) {}
template <typename... At>
void tma_load(u32 to, const TensorMap& map, u32 full, At... at) {
    emulator::load(to, map, full, 1u << emulator::self->cta->rank, {at...});
}
template <typename... At>
void tma_multicast(u32 to, const TensorMap& map, u32 full, u16 ranks, At... at) {
    emulator::load(to, map, full, ranks, {at...});
}
inline void tma_store(const TensorMap& map, u32 from, int x, int y, int z) {
    if (from % 1024) emulator::fail("a swizzled box is not aligned to 1024 bytes");
    emulator::Cta* cta = emulator::self->cta;
    emulator::self->stores.push_back([=, &map] {
        emulator::each_of_box(map, {x, y, z}, [&](u32 offset, char* to) {
            const u32 place = emulator::swizzle(emulator::within_cta(from) + offset);
            const auto* staged = emulator::read_by_async_proxy(*cta, place);
            if (to) std::memcpy(to, staged, 16);
        });
    });
}
inline void tma_store_commit() {
    emulator::self->store_groups.push_back(std::move(emulator::self->stores));
    emulator::self->stores.clear();
}
template <int kPending>
void tma_store_wait_read() {
    emulator::Thread& t = *emulator::self;
    const size_t pending = emulator::lazy ? kPending : emulator::random_number() % (kPending + 1);
    for (; t.stored + pending < t.store_groups.size(); ++t.stored)
        for (const auto& work : t.store_groups[t.stored]) work();
}
inline void tma_store_wait_all() { tma_store_wait_read<0>(); }
inline void fence_async_proxy() {
    auto& unfenced = emulator::self->cta->unfenced;
    std::replace(unfenced.begin(), unfenced.end(), short(emulator::self->id), emulator::kNobody);
}

// ---- ptx/shared_memory.cuh -----------------------------------------------------------------------------------------

inline void store_matrices(u32 row, const u32 (&m)[4], bool transposed) {
    emulator::Warp& warp = *emulator::self->warp;
    auto& given = warp.given[emulator::self->id % 32];
    given[0] = row;
    std::copy(m, m + 4, given + 1);
    emulator::meet(warp.meeting, 32, [&] {
        for (int i = 0; i < 4 * 64; ++i) {
            const int matrix = i / 64, lane = i % 64 / 2, half = i % 2;
            const int r = lane / 4, c = 2 * (lane % 4) + half;
            const u16 value = u16(warp.given[lane][1 + matrix] >> 16 * half);
            // The writer, which a fence is asked from, is the lane that names the row.
            const int namer = 8 * matrix + (transposed ? c : r), first = emulator::self->id / 32 * 32;
            emulator::write(warp.given[namer][0] + 2 * (transposed ? r : c), &value, 2, first + namer);
        }
    });
}
inline void store_matrices(u32 row, const u32 (&m)[4]) { store_matrices(row, m, false); }
inline void store_matrices_transposed(u32 row, const u32 (&m)[4]) { store_matrices(row, m, true); }
inline void store_shared(u32 address, float value) { emulator::write(address, &value, 4, emulator::self->id); }
inline void store_shared(u32 address, float first, float second) {
    const float pair[2] = {first, second};
    emulator::write(address, pair, 8, emulator::self->id);
}
inline void store_shared(u32 address, uint4 v) { emulator::write(address, &v, 16, emulator::self->id); }
inline uint4 load_shared(u32 address) {
    if (address % 16) emulator::fail("a load from shared memory is not aligned");
    uint4 v;
    std::memcpy(&v, &emulator::self->cta->smem[emulator::index(address)], 16);
    return v;
}
inline u32 to_bf16(float value) {
    if (std::isnan(value)) return 0x7fff;
    u32 bits;
    std::memcpy(&bits, &value, 4);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline u32 bf16_pair(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }

// ---- ptx/wgmma.cuh -------------------------------------------------------------------------------------------------

inline void wgmma_fence() {}
inline void pin(float&) {}
template <u32 kHigh, int kTransA, int kTransB, size_t kCount>
void wgmma(float (&d)[kCount], u32 a, u32 b, bool add) {
    emulator::self->issued.push_back({d, int(2 * kCount), a, b, kHigh, kTransA, kTransB, add});
}
inline void wgmma_commit() {
    emulator::Thread& t = *emulator::self;
    auto& groups = t.cta->warpgroups[t.id / 128].groups;
    if (groups.size() == t.wgmma_groups) groups.emplace_back();
    emulator::WgmmaGroup& group = groups[t.wgmma_groups++];
    group.of_thread[t.id % 128] = std::move(t.issued);
    ++group.committed;
    t.issued.clear();
}
template <int kPending>
void wgmma_wait() {
    emulator::Thread& t = *emulator::self;
    emulator::Warpgroup& warpgroup = t.cta->warpgroups[t.id / 128];
    const size_t groups = t.wgmma_groups - min(size_t(kPending), t.wgmma_groups);
    for (size_t g = 0; g < groups; ++g) emulator::wait_until([&] { return warpgroup.groups[g].committed == 128; });
    emulator::complete(*t.cta, warpgroup, groups);
}
