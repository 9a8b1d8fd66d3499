// The plan of the tail: which k-blocks of the last tiles a cluster computes. grouped_gemm/sm90/plan.py is the same in
// Python, docs/tail.md says it in words.
//
// One warp of each CTA makes the plan in shared memory while the first tiles run; all come to the same integers, so that
// no CTA asks another. Full waves are those of the tile walk. The tail is what is left of the tiles that have k-blocks:
// fewer than there are clusters. After it come tiles without k-blocks, walked on as before.
// Work of a plan: E / 32 rounds over the groups, then rounds over at most kMaxClusters tiles or clusters; for a split a few
// of these in each step of a bisection.
#pragma once

#include "ptx/integers.cuh"
#include "tile_walk.cuh"

constexpr int kMinChunk = 8;   // fewest k-blocks of a chunk of a split tile
constexpr int kMaxChunks = 8;  // most chunks of one
constexpr int kFixup = 8;      // k-blocks that a split must gain, and more
constexpr int kToTheEnd = 0x7fffffff;

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

// Replaces values[i] by the sum of values[0 .. i], or by `most` where that is more; without `most` values may be negative.
// A whole warp calls it, and what it wrote is there for all of it.
__device__ __forceinline__ void warp_prefix_sum(int* values, int n, int most = kToTheEnd) {
    const u32 all = 0xffffffff;
    const int lane = threadIdx.x % 32;
    int before = 0;
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < n; base += 32) {
        int sum = base + lane < n ? values[base + lane] : 0;
        for (int step = 1; step < 32; step *= 2) {
            const int other = __shfl_up_sync(all, sum, step);
            if (lane >= step) sum = min(sum + other, most);
        }
        sum = min(sum + before, most);
        if (base + lane < n) values[base + lane] = sum;
        before = __shfl_sync(all, sum, 31);
    }
    __syncwarp();
}

// Writes the indices of keys, the smallest key's first, ties in order. A whole warp calls it.
__device__ __forceinline__ void warp_sort(const int* keys, int n, short* order) {
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

// Returns the first i with values[i] > at, of n ascending values; n if there is none.
__device__ __forceinline__ int upper_bound(const int* values, int n, int at) {
    int low = 0, high = n;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (values[middle] <= at) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Lies in shared memory. `locate`, `make` and `take` are called in this order, each by one whole warp. After a barrier any
// thread asks `at`: for a step of a full wave after `locate`, for any other one after `take`.
template <int kMaxClusters>
struct TailPlan {
    int load[kMaxClusters];       // k-blocks of each cluster in the last full wave
    int cost[kMaxClusters];       // and of each tail tile
    short home[kMaxClusters];     // of a tail tile that is placed by slack: its cluster
    short order[kMaxClusters];    // split: part r is cluster order[r]; part i owns tail tile i
    int start[kMaxClusters + 1];  // split: the remainders in a row, start[i] .. start[i + 1] that of tail tile i
    int whole[kMaxClusters];      // split: part r gets the remainders of tail tiles whole[r - 1] .. whole[r]
    int cut[kMaxClusters + 1];    // split: and, of the row after those, cut[r] .. cut[r + 1]
    Chunk chunks[kMaxClusters];   // of the cluster that has called `take`
    int clusters;
    int waves;  // full ones
    int tail_begin;
    int tail_end;
    int level;  // split: up to which the parts are filled
    int num_chunks;
    int makespan;  // k-blocks of the cluster that has most in the last full wave and the tail
    Placement placement;

    template <typename Walk>
    __device__ __forceinline__ static int k_blocks_of(const Walk& walk, int k_blocks, int group) {
        return k_blocks == 0                ? ceil_div(walk.end_of(group) - walk.begin_of(group), kRowsOfBlock)
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

    // Places the tail: whole if it fits or if `split` is false, else split where that gains enough.
    template <typename Walk>
    __device__ __forceinline__ void make(const Walk& walk, int k_blocks, bool split) {
        const u32 all = 0xffffffff;
        const int lane = threadIdx.x % 32;
        const int num_clusters = clusters, begin = tail_begin, end = tail_end, num_tiles = end - begin;
        // A tile without k-blocks is stored all the same.
        const auto cost_of = [&](int group) { return max(k_blocks_of(walk, k_blocks, group), 1); };

        // ---- loads: clusters begin the last full wave together
#pragma unroll 1
        for (int c = lane; c < num_clusters; c += 32)
            load[c] = begin ? cost_of(interval_of(walk.first_tile, walk.num_groups, begin - num_clusters + c)) : 0;

        // ---- whole: where the walk takes them, or the costliest first, each to the cluster that has least so far
        int* placed = whole;
        int row = 0, largest_cost = 0;
#pragma unroll 1
        for (int i = lane; i < num_tiles; i += 32) {
            cost[i] = cost_of(interval_of(walk.first_tile, walk.num_groups, begin + i));
            cut[i] = -cost[i];
            row += cost[i];
            largest_cost = max(largest_cost, cost[i]);
        }
        row = __reduce_add_sync(all, row);
        warp_sort(cut, num_tiles, order);
        int total = 0, largest = 0, plain = 0;
#pragma unroll 1
        for (int c = lane; c < num_clusters; c += 32) {
            placed[c] = load[c];
            total += load[c];
            largest = max(largest, load[c]);
            plain = max(plain, load[c] + (c < num_tiles ? cost[c] : 0));
        }
        total = row + __reduce_add_sync(all, total);
        largest = __reduce_max_sync(all, largest);
        plain = __reduce_max_sync(all, plain);
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
            if (cluster % 32 == lane) placed[cluster] += cost[tile];
            if (lane == 0) home[tile] = cluster;
        }
        int slack = 0;
#pragma unroll 1
        for (int c = lane; c < num_clusters; c += 32) slack = max(slack, placed[c]);
        slack = __reduce_max_sync(all, slack);
        const int unsplit = min(plain, slack);
        const bool fits = unsplit <= largest + ceil_div(row, num_clusters);
        if (lane == 0) {
            placement = slack < plain ? Placement::kSlack : Placement::kPlain;
            makespan = unsplit;
        }
        __syncwarp();
        int low = max(largest, ceil_div(total, num_clusters));  // no makespan is less
        if (!split || fits || unsplit - low <= kFixup) return;

        // ---- split: up to a level at which nothing is left over, which bisection finds; at the highest one nothing is
        warp_sort(load, num_clusters, order);
        int high = low + least_between_cuts(__reduce_max_sync(all, largest_cost)) - 1;
#pragma unroll 1
        for (;;) {
            const int middle = low + (high - low) / 2;
            const bool is_complete = deal(num_tiles, middle);
            if (low == high) break;
            if (is_complete) high = middle;
            else low = middle + 1;
        }
#pragma unroll 1
        for (int r = lane; r <= num_clusters; r += 32) cut[r] = legal_cut(num_tiles, cut[r]);
        __syncwarp();
        int most = 0;
#pragma unroll 1
        for (int r = lane; r < num_clusters; r += 32) {
            const int dealt = (r < num_tiles ? head_of(r) : 0) + whole_of(r) + cut[r + 1] - cut[r];
            most = max(most, load[order[r]] + dealt);
        }
        most = __reduce_max_sync(all, most);
        if (unsplit - most > kFixup && lane == 0) {
            placement = Placement::kSplit;
            makespan = most;
        }
        __syncwarp();
    }

    // Deals the tail's k-blocks: heads to their owners, remainders whole as far as they fit, and the rest by cuts, which
    // may yet lie too near to the end of a tile. Returns whether nothing is left over. No load is above the level.
    __device__ __forceinline__ bool deal(int num_tiles, int to_level) {
        const u32 all = 0xffffffff;
        const int lane = threadIdx.x % 32;
        if (lane == 0) {
            level = to_level;
            start[0] = 0;
        }
        __syncwarp();
        int longest = 0, first = num_tiles;  // the longest remainder, the first tile that has one
#pragma unroll 1
        for (int i = lane; i < num_tiles; i += 32) {
            const int remainder = cost[i] - head_of(i);
            start[i + 1] = remainder;
            longest = max(longest, remainder);
            if (remainder > 0) first = min(first, i);
        }
        longest = __reduce_max_sync(all, longest);
        first = __reduce_min_sync(all, first);
        warp_prefix_sum(start, num_tiles + 1);

#pragma unroll 1
        for (int r = lane; r < clusters; r += 32)
            whole[r] = (r == 0 ? first : 0) + min(room_of(r, num_tiles) / max(longest, 1), num_tiles);
        warp_prefix_sum(whole, clusters, num_tiles);

        const int least = least_between_cuts(longest);
        const int begin = start[whole[clusters - 1]], end = start[num_tiles];
#pragma unroll 1
        for (int r = lane; r < clusters; r += 32) {
            const int room = room_of(r, num_tiles) - whole_of(r);
            cut[r + 1] = room >= least ? min(room, end) : 0;
        }
        if (lane == 0) cut[0] = begin;
        warp_prefix_sum(cut, clusters + 1, end);
        return cut[clusters] == end;
    }

    // Returns the fewest k-blocks between two cuts of remainders of at most `longest`: a remainder has room for 6 cuts,
    // which leave 7 chunks; its tile has kMaxChunks with the head.
    __device__ __forceinline__ static int least_between_cuts(int longest) {
        return max(kMinChunk, ceil_div(longest, kMaxChunks - 2));
    }

    // k-blocks that part r has room for, with its head.
    __device__ __forceinline__ int capacity_of(int r) const {
        const int room = level - load[order[r]];
        return room >= kMinChunk ? room : 0;
    }

    // k-blocks of tail tile i that its owner computes.
    __device__ __forceinline__ int head_of(int i) const {
        const int room = capacity_of(i);
        return cost[i] - room < kMinChunk ? cost[i] : room;
    }

    // k-blocks that part r has room for once its head is done.
    __device__ __forceinline__ int room_of(int r, int num_tiles) const {
        return r < num_tiles ? max(capacity_of(r) - head_of(r), 0) : capacity_of(r);
    }

    // k-blocks of the remainders that part r gets whole.
    __device__ __forceinline__ int whole_of(int r) const { return start[whole[r]] - start[r == 0 ? 0 : whole[r - 1]]; }

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
        for (int r = lane; is_split && r < clusters; r += 32)
            if (order[r] == cluster) part = r;
        part = __reduce_max_sync(all, part);

        int taken = 0, slots = 0;
#pragma unroll 1
        for (int base = 0; base < num_tiles; base += 32) {
            const int i = base + lane;
            const bool is_tile = i < num_tiles;
            Chunk chunk{tail_begin + i, 0, 0, 0, 1, 0};
            bool mine = is_tile && (placement == Placement::kPlain ? i : home[i]) == cluster;
            if (is_split) {
                mine = false;
                if (is_tile) mine = cut_out(chunk, i, part);
                int end = chunk.of;
                for (int step = 1; step < 32; step *= 2) {
                    const int other = __shfl_up_sync(all, end, step);
                    if (lane >= step) end += other;
                }
                chunk.slot = chunk.of > 1 ? slots + end - chunk.of : 0;
                slots += __shfl_sync(all, end, 31);
            }
            if (mine && chunk.of == 1)
                chunk.k_end = k_blocks_of(walk, k_blocks, interval_of(walk.first_tile, walk.num_groups, chunk.tile));
            const u32 takers = __ballot_sync(all, mine);
            if (mine) chunks[taken + __popc(takers & ((1u << lane) - 1))] = chunk;
            taken += __popc(takers);
        }
        if (lane == 0) num_chunks = taken;
        __syncwarp();
    }

    // Writes the number of chunks of tail tile i, and which of them is `part`'s; returns whether it has one.
    __device__ __forceinline__ bool cut_out(Chunk& chunk, int i, int part) const {
        const int head = head_of(i), begin = start[i], end = start[i + 1];
        chunk.of = head > 0;
        bool mine = part == i && head > 0;
        if (mine) chunk.k_end = head;
        const auto piece = [&](int r, int from, int to) {
            if (from >= to) return;
            if (r == part) {
                mine = true;
                chunk.index = chunk.of;
                chunk.k_begin = head + from - begin;
                chunk.k_end = head + to - begin;
            }
            ++chunk.of;
        };
        if (end <= cut[0]) {
            // The part that gets it whole, if it has a remainder.
            piece(upper_bound(whole, clusters, i), begin, end);
        } else {
#pragma unroll 1
            for (int r = 0; r < clusters; ++r) piece(r, max(cut[r], begin), min(cut[r + 1], end));
        }
        return mine;
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
