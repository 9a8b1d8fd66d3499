// The plan of the tail: which k-blocks of the last tiles a cluster computes. grouped_gemm/sm90/plan.py is the same in
// Python, docs/tail.md says it in words.
//
// One warp of each CTA makes the plan in shared memory while the first tiles run; all come to the same integers, so that
// no CTA asks another. Full waves are those of the tile walk. The tail is what is left of the tiles that have k-blocks:
// fewer than there are clusters. After it come tiles without k-blocks, walked on as before.
// Work of a plan: E / 32 rounds over the groups, then rounds over at most kMaxClusters tiles or clusters.
#pragma once

#include "ptx/integers.cuh"
#include "tile_walk.cuh"

constexpr int kMinChunk = 8;  // fewest k-blocks of a chunk of a split tile
constexpr int kFixup = 8;     // k-blocks that a split must gain, and more
constexpr int kReductionOfBlock = 64;
constexpr int kToTheEnd = 0x7fffffff;

enum class SplitWhen { kNever, kNoRoom, kGain };
enum class Placement { kPlain, kSlack, kSplit };

// k-blocks k_begin .. k_end of a tile, or up to its last one for kToTheEnd. This is chunk `index` of `of` of the tile,
// ascending in k; 0 of 1: the tile is whole. Of a split tile, `slot` is the place of its first chunk's partial sum, and
// those of the others follow it.
struct Chunk {
    int tile;
    int k_begin;
    int k_end;
    int index;
    int of;
    int slot;
};

// Replaces values[i] by the sum of values[0 .. i]. A whole warp calls it, and what it wrote is there for all of it.
__device__ __forceinline__ void warp_prefix_sum(int* values, int n) {
    const u32 all = 0xffffffff;
    const int lane = threadIdx.x % 32;
    int before = 0;
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < n; base += 32) {
        int sum = base + lane < n ? values[base + lane] : 0;
        for (int step = 1; step < 32; step *= 2) {
            const int other = __shfl_up_sync(all, sum, step);
            if (lane >= step) sum += other;
        }
        sum += before;
        if (base + lane < n) values[base + lane] = sum;
        before = __shfl_sync(all, sum, 31);
    }
    __syncwarp();
}

// Writes the indices of keys, the smallest key's first, ties in order. A whole warp calls it.
__device__ __forceinline__ void warp_sort(const int* keys, int n, int* order) {
    __syncwarp();
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < n; i += 32) {
        int rank = 0;
#pragma unroll 1
        for (int j = 0; j < n; ++j) rank += keys[j] < keys[i] || (keys[j] == keys[i] && j < i);
        order[rank] = i;
    }
    __syncwarp();
}

// Returns i with starts[i] <= at < starts[i + 1], of n + 1 ascending starts; the last one if there are several.
__device__ __forceinline__ int interval_of(const int* starts, int n, int at) {
    int low = 0, high = n;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        (starts[middle] <= at ? low : high) = middle;
    }
    return low;
}

// Lies in shared memory. `locate`, `make` and `take` are called in this order, each by one whole warp. After a barrier any
// thread asks `at`: for a step of a full wave after `locate`, for any other one after `take`.
template <int kMaxClusters>
struct TailPlan {
    int load[kMaxClusters + 1];   // k-blocks of each cluster without the tail
    int start[kMaxClusters + 1];  // the tail's k-blocks in a row: where each tile's begin
    int home[kMaxClusters];       // of a tail tile that is placed by slack: its cluster
    int order[kMaxClusters];      // split: the clusters that get k-blocks of the row
    int cut[kMaxClusters + 1];    // split: order[r] gets cut[r] .. cut[r + 1]
    int placed[kMaxClusters];
    Chunk chunks[kMaxClusters];  // of the cluster that has called `take`
    int clusters;
    int waves;  // full ones
    int tail_begin;
    int tail_end;
    int num_parts;  // split: of the row
    int num_chunks;
    int makespan;  // k-blocks of the cluster that has most
    Placement placement;

    template <typename Walk>
    __device__ __forceinline__ static int k_blocks_of(const Walk& walk, int k_blocks, int group) {
        return k_blocks == 0                ? ceil_div(walk.end_of(group) - walk.begin_of(group), kReductionOfBlock)
               : group < walk.num_groups - 1 ? k_blocks
                                             : 0;
    }

    // Finds the tail. k_blocks: of every tile (fwd, dgrad; those of the last group, nobody's, have none), or 0: of the
    // group's rows (wgrad). num_clusters is 1 .. kMaxClusters, the k-blocks of all tiles are at most 2^30.
    template <typename Walk>
    __device__ __forceinline__ void locate(const Walk& walk, int k_blocks, int num_clusters) {
        int end = 0;
#pragma unroll 1
        for (int group = threadIdx.x % 32; group < walk.num_groups; group += 32)
            if (k_blocks_of(walk, k_blocks, group) > 0) end = max(end, walk.first_tile[group + 1]);
        end = __reduce_max_sync(0xffffffff, end);
        if (threadIdx.x % 32 == 0) {
            clusters = num_clusters;
            waves = end / num_clusters;
            tail_begin = waves * num_clusters;
            tail_end = end;
        }
        __syncwarp();
    }

    // Places the tail: whole, or split where `split` allows it.
    template <typename Walk>
    __device__ __forceinline__ void make(const Walk& walk, int k_blocks, SplitWhen split) {
        const u32 all = 0xffffffff;
        const int lane = threadIdx.x % 32;
        const int num_clusters = clusters, begin = tail_begin, end = tail_end, num_tiles = end - begin;
        // A tile without k-blocks is stored all the same.
        const auto cost_of = [&](int group) { return max(k_blocks_of(walk, k_blocks, group), 1); };

        // ---- loads: of n tiles in a row each cluster has n / C, and n % C neighbours have one more
#pragma unroll 1
        for (int c = lane; c <= num_clusters; c += 32) load[c] = 0;
        __syncwarp();
        int everyone = 0;
        const auto count = [&](int first, int last, int cost) {
            if (first >= last) return;
            const int rounds = (last - first) / num_clusters, more = (last - first) % num_clusters;
            const int from = first % num_clusters, to = from + more;
            everyone += rounds * cost;
            atomicAdd(&load[from], cost);
            if (to > num_clusters) atomicAdd(&load[0], cost);
            atomicAdd(&load[to > num_clusters ? to - num_clusters : to], -cost);
        };
#pragma unroll 1
        for (int group = lane; group < walk.num_groups; group += 32) {
            const int first = walk.first_tile[group], last = walk.first_tile[group + 1];
            count(first, min(last, begin), cost_of(group));
            count(max(first, end), last, cost_of(group));
        }
        everyone = __reduce_add_sync(all, everyone);
        warp_prefix_sum(load, num_clusters);
#pragma unroll 1
        for (int c = lane; c < num_clusters; c += 32) load[c] += everyone;

        // ---- costs of the tail's tiles
#pragma unroll 1
        for (int i = lane; i < num_tiles; i += 32)
            start[i + 1] = cost_of(interval_of(walk.first_tile, walk.num_groups, begin + i));
        if (lane == 0) start[0] = 0;
        warp_prefix_sum(start, num_tiles + 1);
        const int row = start[num_tiles];

        // ---- whole: where the walk takes them, or the costliest first, each to the cluster that has least so far
        int largest = 0, plain = 0;
#pragma unroll 1
        for (int c = lane; c < num_clusters; c += 32) {
            placed[c] = load[c];
            largest = max(largest, load[c]);
            plain = max(plain, load[c] + (c < num_tiles ? start[c + 1] - start[c] : 0));
        }
        largest = __reduce_max_sync(all, largest);
        plain = __reduce_max_sync(all, plain);
#pragma unroll 1
        for (int i = lane; i < num_tiles; i += 32) cut[i] = start[i] - start[i + 1];
        warp_sort(cut, num_tiles, order);
#pragma unroll 1
        for (int i = 0; i < num_tiles; ++i) {
            int least = kToTheEnd, cluster = kMaxClusters;
#pragma unroll 1
            for (int c = lane; c < num_clusters; c += 32)
                if (placed[c] < least) {
                    least = placed[c];
                    cluster = c;
                }
            const int least_of_all = __reduce_min_sync(all, least);
            cluster = __reduce_min_sync(all, least == least_of_all ? cluster : kMaxClusters);
            const int tile = order[i];
            // Only this lane reads it again.
            if (cluster % 32 == lane) placed[cluster] += start[tile + 1] - start[tile];
            if (lane == 0) home[tile] = cluster;
        }
        int slack = 0;
#pragma unroll 1
        for (int c = lane; c < num_clusters; c += 32) slack = max(slack, placed[c]);
        slack = __reduce_max_sync(all, slack);
        const int whole = min(plain, slack);
        const bool fits = whole <= largest + ceil_div(row, num_clusters);
        if (lane == 0) {
            placement = slack < plain ? Placement::kSlack : Placement::kPlain;
            makespan = whole;
        }
        __syncwarp();
        if (split == SplitWhen::kNever || (split == SplitWhen::kNoRoom && fits)) return;

        // ---- split: who gets a chunk, up to which level, and where the row is cut
        warp_sort(load, num_clusters, order);
        int filled = row;
        int parts = 0;
#pragma unroll 1
        for (; parts < num_clusters; ++parts) {
            const int next = load[order[parts]];
            if (filled + next < i64(parts + 1) * (next + kMinChunk)) break;
            filled += next;
        }
        if (parts == 0) return;
        const int level = ceil_div(filled, parts);
#pragma unroll 1
        for (int r = lane; r < parts; r += 32) cut[r + 1] = level - load[order[r]];
        if (lane == 0) cut[0] = 0;
        warp_prefix_sum(cut, parts + 1);
#pragma unroll 1
        for (int r = lane; r <= parts; r += 32) cut[r] = legal_cut(num_tiles, cut[r]);
        __syncwarp();
        int most = largest;
#pragma unroll 1
        for (int r = lane; r < parts; r += 32) most = max(most, load[order[r]] + cut[r + 1] - cut[r]);
        most = __reduce_max_sync(all, most);
        if (whole - most > kFixup && lane == 0) {
            placement = Placement::kSplit;
            num_parts = parts;
            makespan = most;
        }
        __syncwarp();
    }

    // Returns `at`, or the nearer end of the tile that it would cut into a chunk of less than kMinChunk.
    __device__ __forceinline__ int legal_cut(int num_tiles, int at) const {
        if (at >= start[num_tiles]) return start[num_tiles];
        const int tile = interval_of(start, num_tiles, at);
        const int before = at - start[tile], after = start[tile + 1] - at;
        if (min(before, after) >= kMinChunk) return at;
        return before < after ? start[tile] : start[tile + 1];
    }

    // Writes what `cluster` has of the tail, in ascending order of tiles.
    template <typename Walk>
    __device__ __forceinline__ void take(const Walk& walk, int k_blocks, int cluster) {
        const u32 all = 0xffffffff;
        const int lane = threadIdx.x % 32;
        const int num_tiles = tail_end - tail_begin;
        const bool is_split = placement == Placement::kSplit;
        int part = -1;
#pragma unroll 1
        for (int r = lane; is_split && r < num_parts; r += 32)
            if (order[r] == cluster) part = r;
        part = __reduce_max_sync(all, part);
        const int part_begin = part < 0 ? 0 : cut[part], part_end = part < 0 ? 0 : cut[part + 1];

        int taken = 0;
#pragma unroll 1
        for (int base = 0; base < num_tiles; base += 32) {
            const int i = base + lane;
            const bool is_tile = i < num_tiles;
            int begin = is_tile ? start[i] : 0, end = is_tile ? start[i + 1] : 0;
            Chunk chunk{tail_begin + i, 0, 0, 0, 1, 0};
            bool mine = is_tile && (placement == Placement::kPlain ? i : home[i]) == cluster;
            if (is_split) {
                mine = is_tile && max(begin, part_begin) < min(end, part_end);
#pragma unroll 1
                for (int r = 0; mine && r <= num_parts; ++r) {
                    const bool inside = begin < cut[r] && cut[r] < end;
                    chunk.index += inside && cut[r] <= part_begin;
                    chunk.of += inside;
                }
            }
            if (mine) {
                chunk.k_end = k_blocks_of(walk, k_blocks, interval_of(walk.first_tile, walk.num_groups, chunk.tile));
                if (chunk.of > 1) {
                    chunk.k_begin = max(begin, part_begin) - begin;
                    chunk.k_end = min(end, part_end) - begin;
                    chunk.slot = i - 1;  // a chunk before it for each tile and each cut before it, but cut[0]
#pragma unroll 1
                    for (int r = 0; r <= num_parts; ++r) chunk.slot += cut[r] <= begin;
                }
            }
            const u32 takers = __ballot_sync(all, mine);
            if (mine) chunks[taken + __popc(takers & ((1u << lane) - 1))] = chunk;
            taken += __popc(takers);
        }
        if (lane == 0) num_chunks = taken;
        __syncwarp();
    }

    // Returns the cluster's piece of work number `step`, or one whose tile is not below num_tiles: there are no more.
    // Tiles ascend. `cluster` is the one that has called `take`.
    __device__ __forceinline__ Chunk at(int step, int cluster) const {
        if (step < waves) return {step * clusters + cluster, 0, kToTheEnd, 0, 1, 0};
        step -= waves;
        if (step < num_chunks) return chunks[step];
        step -= num_chunks;
        const int first = tail_begin + cluster < tail_end ? tail_begin + cluster + clusters : tail_begin + cluster;
        return {first + step * clusters, 0, kToTheEnd, 0, 1, 0};
    }
};
