// Ragged BF16 grouped GEMM for sm_90a: one template of fwd (Y = X Wᵀ), dgrad (dX = G W) and wgrad (dW = Gᵀ X).
//
// Output D[rows, cols] = sum over the reduction of a row operand and a column operand:
//     op     rows       cols  row operand           column operand           reduction
//     fwd    X's rows   N     X, K-major            W[e], K-major            K
//     dgrad  X's rows   K     G, K-major            W[e], MN-major           N
//     wgrad  N          K     G, MN-major           X, MN-major              the group's rows
// K-major: contiguous along the reduction. Rows of X are grouped: fwd and dgrad have ragged rows, wgrad a ragged
// reduction.
//
// A cluster of CLUSTER_M x CLUSTER_N CTAs walks over tiles (tile_walk.cuh). In each CTA one thread of warpgroup 0, the
// producer, loads both operands by TMA into a ring of stages; what two CTAs share, each loads by half for both.
// Warpgroups 1 and 2, the consumers, multiply TILE_M / 2 rows of the MMA each and store them without waiting for each
// other. With SWAP the MMA's M side is the output's columns, and the output is transposed in shared memory.
//
// Bits. The reduction is summed in ascending order whatever the schedule, so that a tile's bits depend on its rows, its
// expert and the macros alone. With TAIL 2 a tile of the tail may be a sum of partial sums, added in ascending order:
// then its bits depend on offs and the number of clusters as well, and on no timing. With TAIL 3 they are added as they
// come, and the bits of such a tile may differ from run to run.

#include "ptx/barriers.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/integers.cuh"
#include "ptx/registers.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "tail_plan.cuh"
#include "tile_walk.cuh"

// ---- constants -----------------------------------------------------------------------------------------------------
// Macros, each a number: OP, SWAP, TILE_M, TILE_N, CLUSTER_M, CLUSTER_N, STAGES, STAGING, BAND, LOOKS, TAIL,
// WHOLE_SLABS, OUT_FP32, ACCUMULATE, MAX_EXPERTS, MAX_CLUSTERS. grouped_gemm/sm90/config.py says what each may be.

#if TAIL == 3
#define PROGRAM(what) what##_nondet_sm90a
#else
#define PROGRAM(what) what##_det_sm90a
#endif

#if OP == 0
#define SYMBOL PROGRAM(fwd)
#elif OP == 1
#define SYMBOL PROGRAM(dgrad)
#elif OUT_FP32
#define SYMBOL PROGRAM(wgrad_fp32)
#else
#define SYMBOL PROGRAM(wgrad_bf16)
#endif

constexpr bool kWgrad = OP == 2;
constexpr bool kSwap = SWAP;
constexpr bool kFp32 = OUT_FP32;
constexpr bool kAccumulate = ACCUMULATE;
constexpr bool kPlans = TAIL > 0;     // the tail's tiles are placed by plan (tail_plan.cuh),
constexpr bool kSplits = TAIL >= 2;   // and may be split;
constexpr bool kAtomics = TAIL == 3;  // then partial sums are added as they come, else in order

constexpr int kBlockK = 64;  // elements of the reduction in a stage: 128 bytes, one swizzle row
constexpr int kSlab = 64;    // elements along M or N in one swizzle row of an MN-major tile
constexpr int kMmaM = 64;
constexpr int kMmaK = 16;
constexpr int kConsumers = 2;
constexpr int kWarpgroup = 128;
constexpr int kThreads = kWarpgroup * (1 + kConsumers);
constexpr int kClusterSize = CLUSTER_M * CLUSTER_N;

constexpr int kWarpgroupM = TILE_M / kConsumers;
constexpr int kBlocksM = kWarpgroupM / kMmaM;  // of a consumer: one, or two that are stored one after the other
constexpr int kAccumulators = TILE_N / 2;      // of a thread and a block

constexpr bool kRowsKMajor = !kWgrad;
constexpr bool kColsKMajor = OP == 0;
constexpr int kTransA = !(kSwap ? kColsKMajor : kRowsKMajor);
constexpr int kTransB = !(kSwap ? kRowsKMajor : kColsKMajor);

constexpr int kTileRows = kSwap ? TILE_N : TILE_M;
constexpr int kTileCols = kSwap ? TILE_M : TILE_N;
constexpr int kClusterRows = kSwap ? CLUSTER_N : CLUSTER_M;
constexpr int kClusterCols = kSwap ? CLUSTER_M : CLUSTER_N;

constexpr u32 kRowBytes = kBlockK * 2;
constexpr u32 kTileABytes = TILE_M * kRowBytes;
constexpr u32 kTileBBytes = TILE_N * kRowBytes;
constexpr u32 kStageBytes = kTileABytes + kTileBBytes;
constexpr u32 kStagingBytes = 8192;  // 64 swizzle rows

// Shared memory, from its base on.
constexpr u32 kStagingOffset = STAGES * kStageBytes;
constexpr u32 kBarrierOffset = kStagingOffset + kConsumers * STAGING * kStagingBytes;
constexpr u32 kEndsOffset = kBarrierOffset + (2 * STAGES + kPlans) * 8;
constexpr u32 kFirstTileOffset = kEndsOffset + (MAX_EXPERTS + 2) * 4;
constexpr u32 kExpertsOffset = kFirstTileOffset + (MAX_EXPERTS + 2) * 4;
constexpr u32 kPlanOffset = kExpertsOffset + (kWgrad ? MAX_EXPERTS + 2 : 0) * 4;  // others have no such table

// Most rows of a group that wgrad sums in one go where its output is FP32. The tensor core's adder truncates, which over
// n rows costs about 1e-9 n of the sum; what was summed before is added to the rest in the output, rounded.
constexpr int kSumRows = 1 << 16;

constexpr int kRegistersConsumer = kBlocksM * kAccumulators > 176 ? 240 : 232;
constexpr int kRegistersProducer = kBlocksM * kAccumulators > 176 ? 24 : 40;

static_assert(OP >= 0 && OP <= 2, "OP is 0 (fwd), 1 (dgrad) or 2 (wgrad)");
static_assert(TAIL >= 0 && TAIL <= 3, "TAIL is 0 (plain), 1 (whole), 2 (slots) or 3 (atomics)");
static_assert(TILE_M == kConsumers * kBlocksM * kMmaM && kBlocksM <= 2, "a consumer has one or two blocks along M");
static_assert(TILE_N % kSlab == 0, "the epilogue stores parts of 64");
static_assert(kClusterSize <= 2, "an operand is shared by at most two CTAs");
static_assert(kRowsKMajor || kTileRows / kClusterCols % kSlab == 0, "a CTA loads whole slabs of the row operand");
static_assert(kColsKMajor || kTileCols / kClusterRows % kSlab == 0, "a CTA loads whole slabs of the column operand");
static_assert(kWgrad || (!kFp32 && !kAccumulate), "only wgrad writes FP32 or accumulates");

using Walk = TileWalk<!kWgrad, kTileRows * kClusterRows, BAND>;
using Plan = TailPlan<MAX_CLUSTERS>;

static_assert(sizeof(Plan) == 4 * (12 * MAX_CLUSTERS + 10), "config.py reserves as much shared memory");

// How far the clusters of a launch are; zeros between launches.
struct Pace {
    int tiles;     // asked for by their clusters' producers
    int clusters;  // that leave
};

// What a launch is given. Strides of the output in elements.
struct Problem {
    const int* offs;
    void* out;
    i64 out_row_stride;
    i64 out_expert_stride;
    Pace* pace;
    float4* slots;  // TAIL 2: split tiles' partial sums, whatever they hold. TAIL 3: their sums, zeros between launches
    int* tickets;   // with slots: how many of a split tile's partial sums are there; zeros between launches
    int num_experts;
    int M;
    int N;
    int K;

    __device__ __forceinline__ int out_cols() const { return OP == 0 ? N : K; }
};

extern __shared__ __align__(1024) unsigned char shared_memory[];

// NOTE(sm90): by an address that ptxas cannot trace. With stores into `shared_memory` itself it takes the main loop's
// uniform registers away: 31 instructions more a k-block. Whoever needs it asks anew, so that it takes no registers.
__device__ __forceinline__ Plan& the_plan() {
    return *static_cast<Plan*>(__cvta_shared_to_generic(opaque(__cvta_generic_to_shared(shared_memory)) + kPlanOffset));
}

// ---- tiles ---------------------------------------------------------------------------------------------------------

// This CTA's part of a cluster's tile, or of a chunk of it.
struct Tile {
    int expert;    // of W, or of the output
    int row;       // first row of the output, from row 0 of its matrix
    int num_rows;  // rows up to the end of the group (fwd, dgrad) or of the matrix (wgrad); not positive: none is here
    int col;
    int k_begin;   // where the reduction begins
    int k_length;  // and its length; rows of nobody have none
};

__device__ __forceinline__ Tile tile_of(const Problem& p, const Walk& walk, ClusterTile t, const Chunk& chunk,
                                        int cta_row, int cta_col) {
    const int begin = walk.begin_of(t.group), end = walk.end_of(t.group);
    const int row = (t.row * kClusterRows + cta_row) * kTileRows;
    Tile tile;
    tile.col = (t.column * kClusterCols + cta_col) * kTileCols;
    tile.row = kWgrad ? row : begin + row;
    tile.num_rows = (kWgrad ? p.N : end - begin) - row;
    tile.expert = walk.expert_of(t.group);
    tile.k_begin = kWgrad ? begin : 0;
    tile.k_length = kWgrad ? end - begin : t.group == p.num_experts ? 0 : OP == 0 ? p.K : p.N;
    if (kSplits && chunk.of > 1) {
        const int skipped = chunk.k_begin * kBlockK;
        tile.k_length = min(tile.k_length, chunk.k_end * kBlockK) - skipped;
        tile.k_begin += skipped;
    }
    return tile;
}

// Where partial sums of a split tile lie.
struct Split {
    int of;          // chunks; 1: the tile is whole
    int first_slot;  // the tile's first one
    int slot;        // this chunk's
};

// What this cluster computes, one chunk after the other: the walk's tiles, or with TAIL the plan's chunks. Every role
// has a schedule of its own.
struct Schedule {
    const Walk& walk;
    u32 planned;  // mbarrier: completes when the plan is made
    Chunk chunk;
    int step;

    __device__ __forceinline__ Schedule(const Walk& walk, u32 planned)
        : walk(walk), planned(planned), chunk{int(cluster_id()), 0, kToTheEnd, 0, 1, 0}, step(0) {
        if (kPlans) take();
    }

    __device__ __forceinline__ void advance() {
        ++step;
        if (kPlans) take();
        else chunk.tile += num_clusters();
    }

    // How the tile of `chunk` is split. Read from shared memory anew, so that it takes no registers in the main loop.
    __device__ __forceinline__ Split split() const {
        if (!kSplits) return {1, 0, 0};
        const Plan& plan = the_plan();
        const Chunk again = plan.at(step, cluster_id());
        // A split tile is one of the tail.
        const int first = warp_uniform(kAtomics ? again.tile - plan.tail_begin : again.slot);
        return {warp_uniform(again.of), first, kAtomics ? first : warp_uniform(first + again.index)};
    }

    // Whether `chunk` is one, or there are no more.
    __device__ __forceinline__ bool any() const { return chunk.tile < walk.num_tiles(); }

    __device__ __forceinline__ bool in_full_waves() const { return !kPlans || step < the_plan().waves; }

    __device__ __forceinline__ void take() {
        const Plan& plan = the_plan();
        if (step == plan.waves) mbarrier_wait(planned, 0);
        chunk = plan.at(step, cluster_id());
    }
};

// ---- the ring of stages --------------------------------------------------------------------------------------------
// full[s]: one arrival, the producer's, and the bytes of both tiles.
// empty[s]: one arrival of each consumer of each CTA that gets what this CTA loads.

struct Ring {
    int stage = 0;
    u32 phase = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }

    __device__ __forceinline__ void skip(int stages) {
        stages += stage;
        stage = stages % STAGES;
        phase ^= stages / STAGES % 2;
    }
};

__device__ __forceinline__ u32 full_barrier(u32 smem, int stage) { return smem + kBarrierOffset + stage * 8; }
__device__ __forceinline__ u32 empty_barrier(u32 smem, int stage) { return full_barrier(smem, STAGES + stage); }
__device__ __forceinline__ u32 planned_barrier(u32 smem) { return full_barrier(smem, 2 * STAGES); }

// ---- producer ------------------------------------------------------------------------------------------------------

// Loads kExtent (along M or N) x kBlockK elements of an operand; kShare CTAs that hold the same tile load a part each.
template <bool kKMajor, int kExtent, int kShare>
__device__ __forceinline__ void load_operand(const TensorMap& map, u32 smem, u32 barrier, int part, int mn, int k,
                                             int expert) {
    constexpr int kPart = kExtent / kShare;
    constexpr u16 kAll = (1 << kShare) - 1;
    smem += part * kPart * kRowBytes;
    mn += part * kPart;
    if constexpr (kKMajor) {
        if constexpr (kShare == 1) tma_load(smem, map, barrier, k, mn, expert);
        else tma_multicast(smem, map, barrier, kAll, k, mn, expert);
    } else {
        // One box takes all slabs where slabs are a dimension of the map; else it would reach past the true bound.
        constexpr int kBoxes = WHOLE_SLABS ? 1 : kPart / kSlab;
#pragma unroll
        for (int box = 0; box < kBoxes; ++box) {
            const u32 to = smem + box * kSlab * kRowBytes;
            const int inner = WHOLE_SLABS ? 0 : mn + box * kSlab;
            const int slab = WHOLE_SLABS ? mn / kSlab : 0;
            if constexpr (kShare == 1) tma_load(to, map, barrier, inner, k, slab, expert);
            else tma_multicast(to, map, barrier, kAll, inner, k, slab, expert);
        }
    }
}

// Clusters that begin their tiles together find in the L2 what another has just read. So a cluster counts each tile that it
// has asked for, and looks, before it begins the next one, whether the others have done as many: LOOKS times at most for each
// k-block of the tile. Returns false if they have not, and it does not wait again. A wait that aligns timing, on which no
// result depends and which ends by itself; two launches that run at once disturb each other's pace and nothing else.
__device__ __forceinline__ bool keep_pace(const Pace& pace, int tile, int k_length, bool waits) {
    const int all = tile - int(cluster_id());  // tiles of the waves before
    if (!waits || all == 0) return waits;
    const int looks = ceil_div(k_length, kBlockK) * LOOKS;
    for (int look = 0; look < looks; ++look)
        if (load_relaxed(&pace.tiles) >= all) return true;
    return false;
}

// The last cluster to leave clears the tiles. `clusters` wraps by itself: nothing that another launch adds is lost.
__device__ __forceinline__ void leave_pace(Pace& pace) {
    const int last = int(num_clusters()) - 1;
    if (fetch_increment(&pace.clusters, last) == last) store_relaxed(&pace.tiles, 0);
}

__device__ __forceinline__ void produce(const Problem& p, const Walk& walk, const TensorMap& row_map,
                                        const TensorMap& col_map, u32 smem, int cta_row, int cta_col) {
    constexpr u32 kRowsOffset = kSwap ? kTileABytes : 0;
    constexpr u32 kColsOffset = kSwap ? 0 : kTileABytes;
    constexpr auto load_rows = load_operand<kRowsKMajor, kTileRows, kClusterCols>;
    constexpr auto load_cols = load_operand<kColsKMajor, kTileCols, kClusterRows>;
    Ring ring;
    ring.phase = 1;  // the stages are free at first: the phase before the first counts as complete
    ClusterTile t{};
    const bool first_cta = cta_row + cta_col == 0;
    bool in_step = true;
    for (Schedule schedule(walk, planned_barrier(smem)); schedule.any(); schedule.advance()) {
        t = walk.at(schedule.chunk.tile, t.group);
        const Tile tile = tile_of(p, walk, t, schedule.chunk, cta_row, cta_col);
        const bool paced = LOOKS && first_cta && schedule.in_full_waves();
        if (paced) in_step = keep_pace(*p.pace, schedule.chunk.tile, tile.k_length, in_step);
        const int k_end = tile.k_begin + tile.k_length;
#pragma unroll 1
        for (int k = tile.k_begin; k < k_end; k += kBlockK) {
            const u32 full = full_barrier(smem, ring.stage);
            const u32 stage = smem + ring.stage * kStageBytes;
            mbarrier_wait(empty_barrier(smem, ring.stage), ring.phase);
            mbarrier_arrive_expect_tx(full, kStageBytes);
            const int expert = kWgrad ? 0 : tile.expert;
            load_rows(row_map, stage + kRowsOffset, full, cta_col, tile.row, k, 0);
            load_cols(col_map, stage + kColsOffset, full, cta_row, tile.col, k, expert);
            ring.advance();
        }
        if (paced) add_relaxed(&p.pace->tiles, 1);
    }
    if (LOOKS && first_cta) leave_pace(*p.pace);
    // Until every stage is free again other CTAs may still arrive at this one's barriers.
    for (int i = 0; i < STAGES; ++i) {
        mbarrier_wait(empty_barrier(smem, ring.stage), ring.phase);
        ring.advance();
    }
}

// ---- consumer: the main loop ---------------------------------------------------------------------------------------

// PTX ISA, matrix descriptor of wgmma, for tiles swizzled by 128 bytes.
// Low word: start address / 16 (bits 0-13), leading byte offset / 16 (16-29): between slabs, of MN-major tiles only.
// High word: stride byte offset / 16 (0-13): between 8 swizzle rows; swizzle of 128 bytes (30).
constexpr u32 kDescriptorHigh = (8 * kRowBytes >> 4) | 1u << 30;

__device__ __forceinline__ u32 descriptor_low(u32 smem) {
    constexpr u32 kSlabBytes = kSlab * kRowBytes;
    // NOTE(sm90): the mask matters. In a cluster an address has the CTA's rank at bit 24, which would reach into the
    // leading byte offset.
    return (smem & 0x3ffff) >> 4 | (kSlabBytes >> 4) << 16;
}

// From one step of kMmaK to the next, in units of 16 bytes.
constexpr u32 kStepA = (kTransA ? kMmaK * kRowBytes : kMmaK * 2) >> 4;
constexpr u32 kStepB = (kTransB ? kMmaK * kRowBytes : kMmaK * 2) >> 4;

using Accumulators = float[kBlocksM][kAccumulators];

// Zeroes the swizzle rows first_row .. 63 of every slab of a stage: rows of the reduction that are not this group's.
// Both operands, since 0 * NaN is NaN. Both consumers take part and wait for each other.
__device__ __forceinline__ void zero_rows(u32 stage, int first_row) {
#pragma unroll 1
    for (int slab = 0; slab < (TILE_M + TILE_N) / kSlab; ++slab)
#pragma unroll 1
        for (u32 byte = first_row * kRowBytes + (threadIdx.x - kWarpgroup) * 16; byte < kBlockK * kRowBytes;
             byte += kConsumers * kWarpgroup * 16)
            store_shared(stage + slab * kSlab * kRowBytes + byte, make_uint4(0, 0, 0, 0));
    fence_async_proxy();
    named_barrier(1 + kConsumers, kConsumers * kWarpgroup);
}

// Issues the wgmma of a stage for blocks kFrom .. kTo - 1, in one group; they add to the accumulators or begin them.
template <int kFrom, int kTo>
__device__ __forceinline__ void multiply(Accumulators& d, u32 a, u32 b, bool begin) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBlockK / kMmaK; ++k)
#pragma unroll
        for (int m = kFrom; m < kTo; ++m) {
            const u32 block = a + (m * kMmaM * kRowBytes >> 4);
            wgmma<kDescriptorHigh, kTransA, kTransB>(d[m], block + k * kStepA, b + k * kStepB, k > 0 || !begin);
        }
    wgmma_commit();
}

__device__ __forceinline__ void pin(float (&block)[kAccumulators]) {
#pragma unroll
    for (int i = 0; i < kAccumulators; ++i) pin(block[i]);
}

__device__ __forceinline__ void pin(Accumulators& d) {
#pragma unroll
    for (int m = 0; m < kBlocksM; ++m) pin(d[m]);
}

// What a consumer reads its stages through: descriptors of its operands in stage 0, and that stage's empty barrier in the
// CTA that this thread releases stages to, if it does.
struct Reader {
    u32 smem;
    u32 a;
    u32 b;
    u32 empty;
    bool releases;
    Ring ring;

    // Waits for the next stage; of its rows `left` are the group's.
    __device__ __forceinline__ void wait(int left) const {
        mbarrier_wait(full_barrier(smem, ring.stage), ring.phase);
        if (kWgrad && left < kBlockK) zero_rows(smem + ring.stage * kStageBytes, left);
    }

    __device__ __forceinline__ u32 stage_a() const { return a + ring.stage * (kStageBytes >> 4); }
    __device__ __forceinline__ u32 stage_b() const { return b + ring.stage * (kStageBytes >> 4); }

    // Goes on to the next stage; returns the barrier of the one that is left, for `release`.
    __device__ __forceinline__ u32 advance() {
        const u32 used = empty + ring.stage * 8;
        ring.advance();
        return used;
    }

    // Frees a stage, whose wgmma are complete.
    __device__ __forceinline__ void release(u32 used) const {
        if (releases) mbarrier_arrive_cluster(used);
    }
};

// Adds a sum's stages after the first, and returns the last one's barrier. The last stage's wgmma may still run, a group
// for each block. Stages are released one late, when the wgmma that read them are known to be complete.
__device__ __forceinline__ u32 accumulate(Accumulators& d, int k_length, Reader& reader, u32 used) {
    int left = k_length - kBlockK;
#pragma unroll 1
    for (; left > kBlockK; left -= kBlockK) {
        reader.wait(kBlockK);
        multiply<0, kBlocksM>(d, reader.stage_a(), reader.stage_b(), false);
        wgmma_wait<1>();
        reader.release(used);
        used = reader.advance();
    }
    if (left > 0) {
        reader.wait(left);
        multiply<0, 1>(d, reader.stage_a(), reader.stage_b(), false);
        if constexpr (kBlocksM == 2) multiply<1, 2>(d, reader.stage_a(), reader.stage_b(), false);
        wgmma_wait<kBlocksM>();
        reader.release(used);
        used = reader.advance();
    }
    return used;
}

// Frees a tile's stages without a look at them: for a consumer that has no element of the output. Only who releases waits
// for each stage. The others wait for them: a thread that lags, or is ahead, by two phases of a stage would take one for
// the other, and no wgmma keeps the warps together here.
__device__ __forceinline__ void pass_over(int k_length, Reader& reader, int consumer) {
    const int stages = ceil_div(k_length, kBlockK);
    if (reader.releases) {
        Reader alone = reader;
#pragma unroll 1
        for (int i = 0; i < stages; ++i) {
            alone.wait(kBlockK);
            alone.release(alone.advance());
        }
    }
    // NOTE(sm90): not advanced above, or the compiler takes the main loop's ring for divergent.
    reader.ring.skip(stages);
    __syncwarp();
    named_barrier(1 + consumer, kWarpgroup);
}

// ---- consumer: the epilogue ----------------------------------------------------------------------------------------
// A consumer stores a block of its accumulators in parts of kBlockRows x kBlockCols elements, 8 KiB: registers -> staging, 128
// bytes a row and swizzled as the output's map says -> global memory.

constexpr int kBlockN = kFp32 ? 32 : 64;  // along N of the MMA
constexpr int kBlockRows = kSwap ? kBlockN : kMmaM;
constexpr int kBlockCols = kSwap ? kMmaM : kBlockN;
constexpr int kStagedCols = kFp32 ? 32 : 64;  // elements in 128 bytes
constexpr int kBoxBytes = kBlockRows * 128;
constexpr int kBoxes = kBlockCols / kStagedCols;  // 2 for swapped FP32, else 1
constexpr int kParts = TILE_N / kBlockN;          // of a block of the accumulators
// Parts that are staged together, with one wait and one fence for all, and how many such batches staging holds.
constexpr int kBatch = kParts <= STAGING ? kParts : 1;
constexpr int kBatches = STAGING / kBatch;

// Where 16-byte chunk `chunk` of row `row` lies in a box of staging.
__device__ __forceinline__ u32 swizzled(u32 box, int row, int chunk) {
    return box + row * 128 + ((chunk ^ row % 8) << 4);
}

// Fragment of wgmma: element [4 j + 2 i + c] of lane l of warp w is at m = 16 w + l / 4 + 8 i, n = 8 j + 2 (l % 4) + c.
__device__ __forceinline__ void stage_block(const float* d, u32 staging) {
    const int warp = threadIdx.x % kWarpgroup / 32, lane = threadIdx.x % 32;
    if constexpr (kFp32) {
#pragma unroll
        for (int j = 0; j < kBlockN / 8; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float* pair = d + 4 * j + 2 * i;
                const int m = 16 * warp + lane / 4 + 8 * i, n = 8 * j + 2 * (lane % 4);
                if constexpr (kSwap) {
                    const u32 box = staging + m / kStagedCols * kBoxBytes + m % 4 * 4;
                    store_shared(swizzled(box, n, m % kStagedCols / 4), pair[0]);
                    store_shared(swizzled(box, n + 1, m % kStagedCols / 4), pair[1]);
                } else {
                    store_shared(swizzled(staging + n % 4 * 4, m, n / 4), pair[0], pair[1]);
                }
            }
    } else {
        // Matrix q of four: i = q % 2, and j or j + 1.
        const int q = lane / 8, r = lane % 8;
#pragma unroll
        for (int j = 0; j < kBlockN / 8; j += 2) {
            u32 pairs[4];
#pragma unroll
            for (int x = 0; x < 4; ++x) pairs[x] = bf16_pair(d[4 * j + 2 * x], d[4 * j + 2 * x + 1]);
            if constexpr (kSwap)
                store_matrices_transposed(swizzled(staging, 8 * (j + q / 2) + r, 2 * warp + q % 2), pairs);
            else
                store_matrices(swizzled(staging, 16 * warp + 8 * (q % 2) + r, j + q / 2), pairs);
        }
    }
}

// Stores the first num_rows rows of a staged block: what follows is another group's, which TMA's clipping knows not.
__device__ __forceinline__ void store_rows(const Problem& p, u32 staging, int row, int num_rows, int col,
                                           int num_cols) {
    constexpr int kChunks = 8;
#pragma unroll 1
    for (int i = threadIdx.x % kWarpgroup; i < num_rows * kChunks; i += kWarpgroup) {
        const int r = i / kChunks, chunk = i % kChunks;
        if (8 * chunk >= num_cols) continue;
        u16* to = static_cast<u16*>(p.out) + (row + r) * p.out_row_stride + col + 8 * chunk;
        *reinterpret_cast<uint4*>(to) = load_shared(swizzled(staging, r, chunk));
    }
}

// Adds the output's old values to a block, those inside the matrix.
__device__ __forceinline__ void add_old(float* d, const Problem& p, int expert, int row, int col) {
    const int warp = threadIdx.x % kWarpgroup / 32, lane = threadIdx.x % 32;
    const i64 matrix = expert * p.out_expert_stride;
#pragma unroll
    for (int x = 0; x < kBlockN / 2; ++x) {
        const int m = 16 * warp + lane / 4 + x / 2 % 2 * 8, n = x / 4 * 8 + 2 * (lane % 4) + x % 2;
        const int r = row + (kSwap ? n : m), c = col + (kSwap ? m : n);
        if (r >= p.N || c >= p.K) continue;
        const i64 at = matrix + r * p.out_row_stride + c;
        if constexpr (kFp32) d[x] += static_cast<const float*>(p.out)[at];
        else d[x] += __uint_as_float(u32(static_cast<const u16*>(p.out)[at]) << 16);
    }
}

// Stores block kBlock, in batches that are staged together. `adds`: to what the output holds; only where the kernel
// accumulates or writes FP32.
template <int kBlock>
__device__ __forceinline__ void store(Accumulators& d, const Problem& p, const Tile& tile, const TensorMap& out_map,
                                      u32 staging, int consumer, u32& buffer, bool adds) {
    const bool stores = threadIdx.x % kWarpgroup == 0;
    const int num_cols = p.out_cols() - tile.col;
    const int first_m = consumer * kWarpgroupM + kBlock * kMmaM;
    const auto row_of = [&](int part) { return kSwap ? part * kBlockN : first_m; };
    const auto col_of = [&](int part) { return kSwap ? first_m : part * kBlockN; };
    // The same for the whole warpgroup.
    const auto is_there = [&](int part) { return row_of(part) < tile.num_rows && col_of(part) < num_cols; };
    const auto is_whole = [&](int part) { return kWgrad || tile.num_rows - row_of(part) >= kBlockRows; };
#pragma unroll
    for (int first = 0; first < kParts; first += kBatch) {
        if (!is_there(first)) continue;
        if (stores) tma_store_wait_read<kBatches - 1>();
        named_barrier(1 + consumer, kWarpgroup);
        const u32 batch = staging + buffer * kBatch * kStagingBytes;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int part = first + i;
            if (!is_there(part)) continue;
            // A copy: wgmma of the other block may run, and ptxas lets nobody else write accumulators then.
            float block[kBlockN / 2];
#pragma unroll
            for (int x = 0; x < kBlockN / 2; ++x) block[x] = d[kBlock][part * kBlockN / 2 + x];
            if ((kAccumulate || kFp32) && adds)
                add_old(block, p, tile.expert, tile.row + row_of(part), tile.col + col_of(part));
            stage_block(block, batch + i * kStagingBytes);
        }
        fence_async_proxy();
        named_barrier(1 + consumer, kWarpgroup);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int part = first + i;
            if (!is_there(part)) continue;
            if (!is_whole(part)) {
                store_rows(p, batch + i * kStagingBytes, tile.row + row_of(part), tile.num_rows - row_of(part),
                           tile.col + col_of(part), num_cols - col_of(part));
            } else if (stores) {
#pragma unroll
                for (int box = 0; box < kBoxes; ++box)
                    tma_store(out_map, batch + i * kStagingBytes + box * kBoxBytes,
                              tile.col + col_of(part) + box * kStagedCols, tile.row + row_of(part),
                              kWgrad ? tile.expert : 0);
            }
        }
        // A batch's place in the queue of groups is its buffers', so one that TMA does not store has one too.
        if (stores) tma_store_commit();
        buffer = (buffer + 1) % kBatches;
    }
}

// Stores a consumer's part of a tile without k-blocks.
__device__ __forceinline__ void store_zeros(const Problem& p, const Tile& tile, int consumer) {
    constexpr int kElements = kFp32 ? 4 : 8;  // in 16 bytes
    constexpr int kPartRows = kSwap ? TILE_N : kWarpgroupM, kPartCols = kSwap ? kWarpgroupM : TILE_N;
    constexpr int kChunks = kPartCols / kElements;
    const int first_row = kSwap ? 0 : consumer * kWarpgroupM, first_col = kSwap ? consumer * kWarpgroupM : 0;
    const i64 matrix = kWgrad ? tile.expert * p.out_expert_stride : 0;
#pragma unroll 1
    for (int i = threadIdx.x % kWarpgroup; i < kPartRows * kChunks; i += kWarpgroup) {
        const int row = first_row + i / kChunks, col = tile.col + first_col + i % kChunks * kElements;
        if (row >= tile.num_rows || col >= p.out_cols()) continue;
        const i64 at = matrix + (tile.row + row) * p.out_row_stride + col;
        unsigned char* to = static_cast<unsigned char*>(p.out) + at * (kFp32 ? 4 : 2);
        *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
    }
}

// ---- consumer: split tiles -----------------------------------------------------------------------------------------
// A slot holds a chunk's partial sum, or with TAIL 3 what a tile's chunks have added so far. A sum lies there as it lies in
// the registers, 16 bytes a thread and the threads one after the other.

// Number of this consumer's sum in a slot, and of its ticket. Each consumer of each CTA has a part of the tile that no
// other one needs.
__device__ __forceinline__ int part_of(int slot, int consumer) {
    return (slot * kClusterSize + cta_rank()) * kConsumers + consumer;
}

// Where this thread's 16 bytes of a sum begin; the next ones of the thread lie kWarpgroup further.
__device__ __forceinline__ float4* sum_of(const Problem& p, int slot, int consumer) {
    constexpr int kSum = kWarpgroup * kBlocksM * kAccumulators / 4;
    return p.slots + i64(part_of(slot, consumer)) * kSum + threadIdx.x % kWarpgroup;
}

__device__ __forceinline__ void add_sum(Accumulators& d, const float4* sum) {
#pragma unroll
    for (int m = 0; m < kBlocksM; ++m)
#pragma unroll
        for (int i = 0; i < kAccumulators; i += 4) {
            const float4 more = load_global(sum + (m * kAccumulators + i) / 4 * kWarpgroup);
            d[m][i] += more.x;
            d[m][i + 1] += more.y;
            d[m][i + 2] += more.z;
            d[m][i + 3] += more.w;
        }
}

// Leaves d for the last chunk of the tile. `goes_on`: this chunk has left a part of its sum there before.
__device__ __forceinline__ void leave_sum(Accumulators& d, float4* sum, bool goes_on) {
    if (!kAtomics && goes_on) add_sum(d, sum);
#pragma unroll
    for (int m = 0; m < kBlocksM; ++m)
#pragma unroll
        for (int i = 0; i < kAccumulators; i += 4) {
            float4* to = sum + (m * kAccumulators + i) / 4 * kWarpgroup;
            const float4 v = make_float4(d[m][i], d[m][i + 1], d[m][i + 2], d[m][i + 3]);
            if constexpr (kAtomics) add_relaxed(to, v);
            else store_global(to, v);
        }
}

__device__ __forceinline__ void clear_sum(float4* sum) {
#pragma unroll
    for (int i = 0; i < kBlocksM * kAccumulators / 4; ++i) store_global(sum + i * kWarpgroup, make_float4(0, 0, 0, 0));
}

// Says that this chunk's sum is left, and returns whether it was the last of the tile's `of`; then d is the tile's sum,
// added in ascending order of k (TAIL 2) or as the chunks came (TAIL 3). Waits for no other CTA.
__device__ __forceinline__ bool gather(Accumulators& d, const Problem& p, int first_slot, int of, int consumer) {
    fence_gpu();  // the sum is there before the ticket says so
    named_barrier(1 + consumer, kWarpgroup);
    int* ticket = p.tickets + part_of(first_slot, consumer);
    const bool draws = threadIdx.x % kWarpgroup == 0;
    bool is_last = false;
    if (draws) {
        fence_gpu();
        is_last = fetch_add_relaxed(ticket, 1) == of - 1;
        fence_gpu();
    }
    // NOTE(sm90): warp-uniform, or the compiler takes the rest of the main loop for divergent.
    if (!warp_uniform(named_barrier_or(1 + consumer, kWarpgroup, is_last))) return false;
    if (draws) store_relaxed(ticket, 0);
    fence_gpu();  // the others' sums are read after the ticket
#pragma unroll
    for (int m = 0; m < kBlocksM; ++m)
#pragma unroll
        for (int i = 0; i < kAccumulators; ++i) d[m][i] = 0;
#pragma unroll 1
    for (int i = 0; i < (kAtomics ? 1 : of); ++i) add_sum(d, sum_of(p, first_slot + i, consumer));
    if (kAtomics) clear_sum(sum_of(p, first_slot, consumer));
    return true;
}

// ---- consumer --------------------------------------------------------------------------------------------------------
// With two blocks along M, wgmma work while a tile is stored: on the second block of the last stage while the first block
// is stored, and on the first block of the next tile's first stage while the second block is.

__device__ __forceinline__ void consume(const Problem& p, const Walk& walk, const TensorMap& out_map, u32 smem,
                                        int cta_row, int cta_col) {
    // NOTE(sm90): warp-uniform, so that descriptors and barriers are computed in uniform registers.
    const int consumer = warp_uniform(threadIdx.x / kWarpgroup - 1), thread = threadIdx.x % kWarpgroup;
    // NOTE(sm90): opaque, since the compiler would compute these anew in each k-block.
    const int first_m = consumer * kWarpgroupM;
    const bool releases = thread < kClusterSize;
    Reader reader{
        smem,
        opaque(descriptor_low(smem) + (first_m * kRowBytes >> 4)),
        opaque(descriptor_low(smem + kTileABytes)),
        opaque(map_to_cta(empty_barrier(smem, 0), releases ? thread : 0)),
        releases,
        Ring{},
    };
    const u32 staging = smem + kStagingOffset + consumer * STAGING * kStagingBytes;
    u32 buffer = 0;
    ClusterTile t{};
    Tile next{};
    Schedule schedule(walk, planned_barrier(smem));
    // Whether this consumer has elements of the output in a tile; with kAccumulate an empty group's keep their bits.
    const auto has_output = [&](const Tile& tile) {
        const int num_cols = p.out_cols() - tile.col;
        const bool cta_has = tile.num_rows > 0 && num_cols > 0 && !(kAccumulate && tile.k_length == 0);
        return cta_has && (kWgrad || first_m < (kSwap ? num_cols : tile.num_rows));
    };
    bool any;         // there is a next tile,
    bool multiplies;  // and this consumer multiplies in it
    const auto locate = [&] {
        multiplies = false;
        any = warp_uniform(schedule.any());
        if (!any) return;
        t = walk.at(schedule.chunk.tile, t.group);
        next = tile_of(p, walk, t, schedule.chunk, cta_row, cta_col);
        multiplies = warp_uniform(has_output(next) && next.k_length > 0);
    };
    const auto locate_next = [&] {
        schedule.advance();
        locate();
    };

    Accumulators d;
    Tile tile{};
    int summed = 0;      // rows of the tile's reduction whose sum is stored already
    bool waits = false;  // the last block of the tile before is not stored yet,
    bool adds = false;   // and whether it adds to the output
    locate();
    while (any) {
        if (!multiplies) {
            if (has_output(next)) store_zeros(p, next, consumer);
            else pass_over(next.k_length, reader, consumer);
            locate_next();
            continue;
        }
        const Tile before = tile;
        if (summed == 0) tile = next;
        const int k_length = warp_uniform(tile.k_length) - summed;
        const bool last = !kFp32 || k_length <= kSumRows;
        const int sum_length = last ? k_length : kSumRows;
        reader.wait(sum_length);
        multiply<0, 1>(d, reader.stage_a(), reader.stage_b(), true);
        if constexpr (kBlocksM == 2) {
            if (waits) {
                // NOTE(sm90): waits for nothing, as only one group is under way; it tells ptxas that d[1] is complete, which
                // else waits for that group.
                wgmma_wait<1>();
                store<1>(d, p, before, out_map, staging, consumer, buffer, adds);
            }
            multiply<1, 2>(d, reader.stage_a(), reader.stage_b(), true);
        }
        const u32 used = accumulate(d, sum_length, reader, reader.advance());
        const Split split = schedule.split();
        const int of = split.of;
        if (last) locate_next();  // while wgmma work on the last stage

        bool stores = true;
        if (of > 1) {
            wgmma_wait<0>();
            pin(d);
            leave_sum(d, sum_of(p, split.slot, consumer), summed > 0);
            stores = last && gather(d, p, split.first_slot, of, consumer);
        }
        adds = kAccumulate || (summed > 0 && of == 1);
        if (kFp32 && summed > 0) {  // what is added to has been stored, and is read from there
            if (thread == 0) tma_store_wait_all();
            named_barrier(1 + consumer, kWarpgroup);
            fence_gpu();
        }
        wgmma_wait<kBlocksM - 1>();
        pin(d[0]);
        if (stores) store<0>(d, p, tile, out_map, staging, consumer, buffer, adds);
        wgmma_wait<0>();
        pin(d);
        reader.release(used);
        waits = stores && multiplies;
        if constexpr (kBlocksM == 2)
            if (stores && !multiplies) store<1>(d, p, tile, out_map, staging, consumer, buffer, adds);
        summed = last ? 0 : summed + kSumRows;
    }
    if (thread == 0) tma_store_wait_all();
}

// ---- kernel --------------------------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    SYMBOL(const __grid_constant__ TensorMap row_map, const __grid_constant__ TensorMap col_map,
           const __grid_constant__ TensorMap out_map, const __grid_constant__ Problem p) {
    const u32 smem = opaque(__cvta_generic_to_shared(shared_memory));
    const int rank = cta_rank();
    const int cta_row = kClusterRows == 2 ? rank : 0, cta_col = kClusterCols == 2 ? rank : 0;
    const Walk walk{
        reinterpret_cast<int*>(shared_memory + kEndsOffset),
        reinterpret_cast<int*>(shared_memory + kFirstTileOffset),
        reinterpret_cast<int*>(shared_memory + kExpertsOffset),
        kWgrad ? p.num_experts : p.num_experts + 1,
        kWgrad ? ceil_div(p.N, kTileRows * kClusterRows) : 0,
        ceil_div(p.out_cols(), kTileCols * kClusterCols),
    };
    const int k_blocks = kWgrad ? 0 : ceil_div(OP == 0 ? p.K : p.N, kBlockK);
    if (threadIdx.x == 0) {
        prefetch_map(row_map);
        prefetch_map(col_map);
        prefetch_map(out_map);
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full_barrier(smem, stage), 1);
            mbarrier_init(empty_barrier(smem, stage), kConsumers * kClusterSize);
        }
        if (kPlans) mbarrier_init(planned_barrier(smem), 32);
        fence_mbarrier_init();
    }
    if (threadIdx.x / 32 == 1) {
        walk.plan(p.offs, p.num_experts, p.M);
        if (kPlans) {
            __syncwarp();
            the_plan().locate(walk, k_blocks, num_clusters());
        }
    }
    // Barriers and tables are there, in the other CTA too.
    cluster_arrive();
    cluster_wait();

    if (threadIdx.x < kWarpgroup) {
        give_registers<kRegistersProducer>();
        const int warp = warp_uniform(threadIdx.x / 32);
        if (warp == 0 && elected()) produce(p, walk, row_map, col_map, smem, cta_row, cta_col);
        if (kPlans && warp == 1) {
            Plan& plan = the_plan();
            plan.make(walk, k_blocks, kSplits);
            plan.take(walk, k_blocks, cluster_id());
            mbarrier_arrive(planned_barrier(smem));  // each lane, for what it has written
        }
    } else {
        take_registers<kRegistersConsumer>();
        consume(p, walk, out_map, smem, cta_row, cta_col);
    }
    // No CTA leaves while another may still write into its shared memory or arrive at its barriers.
    cluster_arrive();
    cluster_wait();
}
