// Runs the threads of a launch, and does what sm90_emulator.h declares.

#include "sm90_emulator.h"

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace emulator {

constexpr short kNobody = -1;
constexpr size_t kStackBytes = 64 << 10;
constexpr int kMaxN = 256;  // of a wgmma
constexpr int kMmaK = 16;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

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
    int id;  // in its CTA
    Cta* cta;
    Warp* warp;
    std::function<bool()> ready;  // what it waits for, if it does
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

static Cluster* cluster;
static Thread* self;
static ucontext_t scheduler;
static std::mt19937 random_number;
static bool lazy;
static bool progress;
static u32 id_of_cluster, count_of_clusters;
static std::vector<Unfenced> ended;                  // of the threads that have ended in this launch
static std::vector<std::unique_ptr<char[]>> stacks;  // of threads, which the next cluster's use again

// ---- waiting -------------------------------------------------------------------------------------------------------

// The scheduler asks in the thread's place whether it is ready: no switches to a thread that would only wait on.
template <typename Ready>
static void wait_until(Ready ready) {
    if (!ready()) {
        self->ready = std::ref(ready);
        swapcontext(&self->context, &scheduler);
        self->ready = nullptr;
    }
    progress = true;
}

template <typename Last>
static void meet(Rendezvous& meeting, u32 threads, Last last) {
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

static u32 within_cta(u32 address) { return address & 0xffffff; }
static u32 swizzle(u32 address) { return address ^ (address >> 3 & 0x70); }

static u32 index(u32 address) {
    const u32 offset = within_cta(address) - kSmemBase;
    if (offset >= kSmemBytes) fail("an address is outside of shared memory");
    return offset;
}

static void write(u32 address, const void* data, u32 bytes, int writer) {
    if (address % bytes) fail("a store to shared memory is not aligned");
    std::memcpy(&self->cta->smem[index(address)], data, bytes);
    self->cta->unfenced[index(address) / 16] = short(writer);
}

static const unsigned char* read_by_async_proxy(Cta& cta, u32 address) {
    if (cta.unfenced[index(address) / 16] != kNobody) fail("TMA or wgmma reads what no fence.proxy.async covers");
    return &cta.smem[index(address)];
}

static Barrier& mbarrier(Cta& cta, u32 address) {
    const auto found = cta.mbarriers.find(within_cta(address));
    if (found == cta.mbarriers.end()) fail("an mbarrier is not initialised");
    return found->second;
}

// ---- wgmma ---------------------------------------------------------------------------------------------------------

static float from_bf16(u16 bits) {
    const u32 wide = u32(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}

// PTX ISA, matrix descriptors and canonical layouts of wgmma with a swizzle of 128 bytes: element (mn, k).
static float element(Cta& cta, u32 low, u32 high, int trans, int mn, int k) {
    if (high >> 30 != 1) fail("a descriptor is not swizzled by 128 bytes");
    const u32 start = (low & 0x3fff) << 4, leading = (low >> 16 & 0x3fff) << 4, stride = (high & 0x3fff) << 4;
    const u32 offset = trans ? mn / 64 * leading + k / 8 * stride + k % 8 * 128 + mn % 64 * 2
                             : mn / 8 * stride + mn % 8 * 128 + k * 2;
    u16 bits;
    std::memcpy(&bits, read_by_async_proxy(cta, swizzle(start + offset)), 2);
    return from_bf16(bits);
}

// What a wgmma is for the whole warpgroup: all but the thread's registers.
static bool is_same(const Wgmma& one, const Wgmma& other) {
    return one.n == other.n && one.a == other.a && one.b == other.b && one.high == other.high &&
           one.trans_a == other.trans_a && one.trans_b == other.trans_b && one.add == other.add;
}

// The operands of a wgmma, read once for its 128 threads.
struct Operands {
    float a[64][kMmaK];
    float b[kMmaK][kMaxN];

    Operands(Cta& cta, const Wgmma& w) {
        for (int m = 0; m < 64; ++m)
            for (int k = 0; k < kMmaK; ++k) a[m][k] = element(cta, w.a, w.high, w.trans_a, m, k);
        for (int n = 0; n < w.n; ++n)
            for (int k = 0; k < kMmaK; ++k) b[k][n] = element(cta, w.b, w.high, w.trans_b, n, k);
    }

    // Each element is summed in ascending order of k.
    void multiply(int thread, const Wgmma& w) const {
        const int m = thread / 32 * 16 + thread % 32 / 4, n = 2 * (thread % 4);
        if (!w.add) std::fill(w.d, w.d + w.n / 2, 0.0f);
        for (int k = 0; k < kMmaK; ++k) {
            const float upper = a[m][k], lower = a[m + 8][k];
            for (int j = 0; j < w.n / 8; ++j) {
                const float* pair = &b[k][8 * j + n];
                float* d = w.d + 4 * j;
                d[0] = upper * pair[0] + d[0];
                d[1] = upper * pair[1] + d[1];
                d[2] = lower * pair[0] + d[2];
                d[3] = lower * pair[1] + d[3];
            }
        }
    }
};

static void complete(Cta& cta, Warpgroup& warpgroup, size_t groups) {
    for (; warpgroup.complete < groups; ++warpgroup.complete) {
        const auto& of_thread = warpgroup.groups[warpgroup.complete].of_thread;
        for (size_t i = 0; i < of_thread[0].size(); ++i) {
            const Operands operands(cta, of_thread[0][i]);
            for (int t = 0; t < 128; ++t) {
                if (of_thread[t].size() != of_thread[0].size() || !is_same(of_thread[t][i], of_thread[0][i]))
                    fail("the threads of a warpgroup issue different wgmma");
                operands.multiply(t, of_thread[t][i]);
            }
        }
    }
}

void issue(const Wgmma& wgmma) { self->issued.push_back(wgmma); }

void wait_for_wgmma(u32 pending) {
    Warpgroup& warpgroup = self->cta->warpgroups[self->id / 128];
    const size_t groups = self->wgmma_groups - std::min(size_t(pending), self->wgmma_groups);
    for (size_t g = 0; g < groups; ++g) wait_until([&] { return warpgroup.groups[g].committed == 128; });
    complete(*self->cta, warpgroup, groups);
}

// ---- TMA -----------------------------------------------------------------------------------------------------------

// Calls move(offset in the box, address in global memory or null outside of the map) for each 16 bytes of a box.
template <typename Move>
static void each_of_box(const TensorMap& map, const std::vector<int>& at, Move move) {
    if (i64(at.size()) != map.rank) fail("coordinates are of another rank than their map");
    i64 bytes = map.strides[0];
    for (int d = 0; d < map.rank; ++d) bytes *= map.box[d];
    i64 in_box[5] = {};
    for (i64 to = 0; to < bytes; to += 16) {
        i64 offset = 0;
        bool inside = true;
        for (int d = 0; d < map.rank; ++d) {
            const i64 x = at[d] + in_box[d];
            inside = inside && x >= 0 && x < map.dims[d];
            offset += x * map.strides[d];
        }
        move(u32(to), inside ? map.base + offset : nullptr);
        in_box[0] += 16 / map.strides[0];
        for (int d = 0; d + 1 < map.rank && in_box[d] == map.box[d]; ++d) {
            in_box[d] = 0;
            ++in_box[d + 1];
        }
    }
}

void load(u32 to, const TensorMap& map, u32 full, u32 ranks, const int* coordinates, int rank) {
    if (to % 1024) fail("a swizzled tile is not aligned to 1024 bytes");
    const std::vector<int> at(coordinates, coordinates + rank);
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

static bool finish_a_load() {
    if (cluster->loads.empty()) return false;
    const auto chosen = cluster->loads.begin() + random_number() % cluster->loads.size();
    const Work work = *chosen;
    cluster->loads.erase(chosen);
    work();
    return true;
}

void wait_for_stores(u32 most_pending) {
    const size_t pending = lazy ? most_pending : random_number() % (most_pending + 1);
    for (; self->stored + pending < self->store_groups.size(); ++self->stored)
        for (const auto& work : self->store_groups[self->stored]) work();
}

// ---- running a cluster ---------------------------------------------------------------------------------------------

static Work kernel;

static void run_thread() {
    try {
        kernel();
    } catch (const std::exception& error) {
        self->error = error.what();
    }
    self->finished = true;
}

static void run_cluster(u32 id, u32 count, int size) {
    Cluster here;
    here.ctas.resize(size);
    cluster = &here;
    id_of_cluster = id;
    count_of_clusters = count;
    std::vector<Warp> warps(size * kThreadsOfCta / 32);
    std::vector<Thread> threads(size * kThreadsOfCta);
    std::vector<Thread*> order;
    while (stacks.size() < threads.size()) stacks.push_back(std::make_unique_for_overwrite<char[]>(kStackBytes));
    for (Thread& t : threads) {
        const int number = int(&t - threads.data());
        t.id = number % kThreadsOfCta;
        t.cta = &here.ctas[number / kThreadsOfCta];
        t.cta->rank = number / kThreadsOfCta;
        t.warp = &warps[number / 32];
        getcontext(&t.context);
        t.context.uc_stack.ss_sp = stacks[number].get();
        t.context.uc_stack.ss_size = kStackBytes;
        t.context.uc_link = &scheduler;
        makecontext(&t.context, run_thread, 0);
        order.push_back(&t);
    }
    while (!order.empty()) {
        std::shuffle(order.begin(), order.end(), random_number);
        progress = false;
        for (Thread* t : order) {
            self = t;
            if (!t->ready || t->ready()) swapcontext(&scheduler, &t->context);
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

const char* run_launch(void (*call)(const void*), const void* of_kernel, const u32* order, u32 clusters,
                       int cluster_size, u32 seed, bool is_lazy) {
    static std::string error;
    random_number.seed(seed);
    lazy = is_lazy;
    kernel = [=] { call(of_kernel); };
    ended.clear();
    try {
        for (u32 i = 0; i < clusters; ++i) run_cluster(order[i], clusters, cluster_size);
    } catch (const std::exception& e) {
        error = e.what();
        return error.c_str();
    }
    for (Unfenced& of_thread : ended) of_thread.show();
    return nullptr;
}

int thread() { return self->id; }
unsigned char* smem_of_cta() { return self->cta->smem.data(); }

}  // namespace emulator

using emulator::self;

// ---- what CUDA C++ has ---------------------------------------------------------------------------------------------

u32 __cvta_generic_to_shared(const unsigned char*) { return emulator::kSmemBase + (u32(self->cta->rank) << 24); }

void* __cvta_shared_to_generic(u32 address) { return &self->cta->smem[emulator::index(address)]; }

// All 32 lanes give a value and get what `both` makes of them.
template <typename Both>
static int reduce(int value, Both both) {
    emulator::Warp& warp = *self->warp;
    warp.given[self->id % 32][0] = u32(value);
    emulator::meet(warp.meeting, 32, [&] {
        int all = int(warp.given[0][0]);
        for (int i = 1; i < 32; ++i) all = both(all, int(warp.given[i][0]));
        warp.result[0] = u32(all);
    });
    return int(warp.result[0]);
}
int __reduce_max_sync(u32, int value) { return reduce(value, [](int a, int b) { return max(a, b); }); }
int __reduce_min_sync(u32, int value) { return reduce(value, [](int a, int b) { return min(a, b); }); }
int __reduce_add_sync(u32, int value) { return reduce(value, [](int a, int b) { return a + b; }); }
u32 __ballot_sync(u32, bool value) {
    return u32(reduce(int(u32(value) << self->id % 32), [](int a, int b) { return a | b; }));
}
void __syncwarp() { emulator::meet(self->warp->meeting, 32, [] {}); }

// Each lane names the one whose value it gets.
int __shfl_sync(u32, int value, int from) {
    emulator::Warp& warp = *self->warp;
    const int lane = self->id % 32;
    warp.given[lane][0] = u32(value);
    warp.given[lane][1] = u32(from) % 32;
    emulator::meet(warp.meeting, 32, [&] {
        for (int i = 0; i < 32; ++i) warp.result[i] = warp.given[warp.given[i][1]][0];
    });
    return int(warp.result[lane]);
}

// ---- ptx/registers.cuh ---------------------------------------------------------------------------------------------

u32 cluster_id() { return emulator::id_of_cluster; }
u32 num_clusters() { return emulator::count_of_clusters; }
u32 cta_rank() { return u32(self->cta->rank); }

// ---- ptx/global_memory.cuh -----------------------------------------------------------------------------------------

void store_global(float4* to, float4 v) { self->unfenced.store(to, v); }
void add_relaxed(float4* to, float4 v) { self->unfenced.add(to, v); }
float4 load_global(const float4* from) { return self->unfenced.load(from); }
void fence_gpu() { self->unfenced.show(); }

// ---- ptx/barriers.cuh ----------------------------------------------------------------------------------------------

void mbarrier_init(u32 barrier, u32 arrivals) {
    self->cta->mbarriers[emulator::within_cta(barrier)] = {int(arrivals), int(arrivals)};
}
void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
    emulator::Barrier& b = emulator::mbarrier(*self->cta, barrier);
    b.bytes += bytes;
    b.arrive();
}
void mbarrier_arrive(u32 barrier) { emulator::mbarrier(*self->cta, barrier).arrive(); }
void mbarrier_arrive_cluster(u32 barrier) {
    emulator::mbarrier(emulator::cluster->ctas.at(barrier >> 24), barrier).arrive();
}
void mbarrier_wait(u32 barrier, u32 parity) {
    const emulator::Barrier& b = emulator::mbarrier(*self->cta, barrier);
    emulator::wait_until([&] { return b.phases % 2 != parity; });
}
void named_barrier(u32 id, u32 threads) {
    emulator::meet(self->cta->named[id], threads, [] {});
}
bool named_barrier_or(u32 id, u32 threads, bool yes) {
    emulator::Rendezvous& meeting = self->cta->named[id];
    meeting.any = (meeting.arrived > 0 && meeting.any) || yes;
    emulator::meet(meeting, threads, [&] { meeting.result = meeting.any; });
    return meeting.result;
}
void cluster_arrive() {
    emulator::Rendezvous& meeting = emulator::cluster->meeting;
    self->cluster_generation = meeting.generation;
    if (++meeting.arrived == emulator::cluster->ctas.size() * emulator::kThreadsOfCta) {
        meeting.arrived = 0;
        ++meeting.generation;
    }
}
void cluster_wait() {
    emulator::wait_until([] { return emulator::cluster->meeting.generation != self->cluster_generation; });
}
u32 map_to_cta(u32 address, u32 rank) { return emulator::within_cta(address) | rank << 24; }

// ---- ptx/tma.cuh ---------------------------------------------------------------------------------------------------

void tma_store(const TensorMap& map, u32 from, int x, int y, int z) {
    if (from % 1024) emulator::fail("a swizzled box is not aligned to 1024 bytes");
    emulator::Cta* cta = self->cta;
    self->stores.push_back([=, &map] {
        emulator::each_of_box(map, {x, y, z}, [&](u32 offset, char* to) {
            const u32 place = emulator::swizzle(emulator::within_cta(from) + offset);
            const auto* staged = emulator::read_by_async_proxy(*cta, place);
            if (to) std::memcpy(to, staged, 16);
        });
    });
}
void tma_store_commit() {
    self->store_groups.push_back(std::move(self->stores));
    self->stores.clear();
}
void fence_async_proxy() {
    auto& unfenced = self->cta->unfenced;
    std::replace(unfenced.begin(), unfenced.end(), short(self->id), emulator::kNobody);
}

// ---- ptx/shared_memory.cuh -----------------------------------------------------------------------------------------

static void store_matrices(u32 row, const u32 (&m)[4], bool transposed) {
    emulator::Warp& warp = *self->warp;
    auto& given = warp.given[self->id % 32];
    given[0] = row;
    std::copy(m, m + 4, given + 1);
    emulator::meet(warp.meeting, 32, [&] {
        for (int i = 0; i < 4 * 64; ++i) {
            const int matrix = i / 64, lane = i % 64 / 2, half = i % 2;
            const int r = lane / 4, c = 2 * (lane % 4) + half;
            const u16 value = u16(warp.given[lane][1 + matrix] >> 16 * half);
            // The writer, which a fence is asked from, is the lane that names the row.
            const int namer = 8 * matrix + (transposed ? c : r), first = self->id / 32 * 32;
            emulator::write(warp.given[namer][0] + 2 * (transposed ? r : c), &value, 2, first + namer);
        }
    });
}
void store_matrices(u32 row, const u32 (&m)[4]) { store_matrices(row, m, false); }
void store_matrices_transposed(u32 row, const u32 (&m)[4]) { store_matrices(row, m, true); }
void store_shared(u32 address, float value) { emulator::write(address, &value, 4, self->id); }
void store_shared(u32 address, float first, float second) {
    const float pair[2] = {first, second};
    emulator::write(address, pair, 8, self->id);
}
void store_shared(u32 address, uint4 v) { emulator::write(address, &v, 16, self->id); }
uint4 load_shared(u32 address) {
    if (address % 16) emulator::fail("a load from shared memory is not aligned");
    uint4 v;
    std::memcpy(&v, &self->cta->smem[emulator::index(address)], 16);
    return v;
}
static u32 to_bf16(float value) {
    if (std::isnan(value)) return 0x7fff;
    u32 bits;
    std::memcpy(&bits, &value, 4);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
u32 bf16_pair(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }

// ---- ptx/wgmma.cuh -------------------------------------------------------------------------------------------------

void wgmma_commit() {
    auto& groups = self->cta->warpgroups[self->id / 128].groups;
    if (groups.size() == self->wgmma_groups) groups.emplace_back();
    emulator::WgmmaGroup& group = groups[self->wgmma_groups++];
    group.of_thread[self->id % 128] = std::move(self->issued);
    ++group.committed;
    self->issued.clear();
}
