// The tile walk: which tile of which group a cluster computes next. grouped_gemm/sm90/walk.py is the same in Python.
//
// Groups. Expert e has the rows ends[e] .. ends[e + 1]; offs that are not monotone or leave 0..M are read as their
// running maximum kept within 0..M. Where rows of the output are grouped (fwd, dgrad) there is one group more, number
// E: the rows up to M that belong to nobody.
// Places. A group is known by its place in the walk. In fwd and dgrad that is its number. In wgrad groups of most
// k-blocks come first, ties in the order of the experts: so clusters that begin a wave of tiles together wait least for
// its longest one, and the last tiles are the shortest.
// Tiles are numbered group after group. Inside a group they lie in bands of kBand cluster rows; a band is walked column
// by column, from left to right in even bands and back in odd ones.
// Cluster c of n takes tiles c, c + n, c + 2n, ...: no queue, and no cluster waits for another.
#pragma once

#include "ptx/integers.cuh"

constexpr int kRowsOfBlock = 64;  // of a group, in one k-block of wgrad

__device__ __forceinline__ int ceil_div(int a, int b) { return (a + b - 1) / b; }

// A number 0 .. 31 of each of a warp's lanes, known to all of them. A whole warp makes it.
struct LaneDigits {
    static constexpr int kBits = 5;  // so that there are as many digits as lanes
    u32 zeros[kBits];                // lanes whose digit lacks that bit

    __device__ __forceinline__ explicit LaneDigits(int digit) {
#pragma unroll
        for (int bit = 0; bit < kBits; ++bit) zeros[bit] = __ballot_sync(0xffffffff, !(digit >> bit & 1));
    }

    // Lanes that have `digit`.
    __device__ __forceinline__ u32 with(int digit) const {
        u32 lanes = 0xffffffff;
#pragma unroll
        for (int bit = 0; bit < kBits; ++bit) lanes &= digit >> bit & 1 ? ~zeros[bit] : zeros[bit];
        return lanes;
    }

    // Lanes that have a smaller one, and those of `ties` that have the same.
    __device__ __forceinline__ u32 before(int digit, u32 ties) const {
        u32 lanes = ties;  // by the bits so far, the lowest first
#pragma unroll
        for (int bit = 0; bit < kBits; ++bit) lanes = digit >> bit & 1 ? lanes | zeros[bit] : lanes & zeros[bit];
        return lanes;
    }
};

// A tile in units of cluster tiles, counted from the group's first row and column.
struct ClusterTile {
    int group;
    int row;
    int column;
};

// kTileRows: rows of the output in a cluster's tile.
template <bool kRowsAreGrouped, int kTileRows, int kBand>
struct TileWalk {
    int* ends;        // shared memory, [num_groups + 1], by expert
    int* first_tile;  // shared memory, [num_groups + 1], by place
    int* experts;     // shared memory, [num_groups], by place: whose group it is; not used where rows are grouped
    int num_groups;   // E, or E + 1 where rows are grouped
    int rows;         // of tiles in a group, where that is the same for all (wgrad)
    int columns;      // of tiles in a group

    __device__ __forceinline__ int num_tiles() const { return first_tile[num_groups]; }

    // Where the rows of a group begin and end.
    __device__ __forceinline__ int begin_of(int group) const { return ends[expert_of(group)]; }
    __device__ __forceinline__ int end_of(int group) const { return ends[expert_of(group) + 1]; }

    __device__ __forceinline__ int rows_of(int group) const {
        return kRowsAreGrouped ? ceil_div(end_of(group) - begin_of(group), kTileRows) : rows;
    }

    __device__ __forceinline__ int expert_of(int group) const { return kRowsAreGrouped ? group : experts[group]; }

    // One whole warp writes the tables, from offs[num_experts] and the rows M of X.
    __device__ __forceinline__ void plan(const int* offs, int num_experts, int total_rows) const {
        const u32 all = 0xffffffff;
        const int lane = threadIdx.x % 32;
        int last_end = 0;
        int tiles = 0;
        if (lane == 0) ends[0] = first_tile[0] = 0;
        for (int base = 0; base < num_groups; base += 32) {
            const int group = base + lane;
            int end = group < num_experts                      ? min(offs[group], total_rows)
                      : kRowsAreGrouped && group == num_experts ? total_rows
                                                                : 0;
            end = max(end, last_end);
            for (int step = 1; step < 32; step *= 2) {
                const int before = __shfl_up_sync(all, end, step);
                if (lane >= step) end = max(end, before);
            }
            if (group < num_groups) ends[group + 1] = end;
            if constexpr (kRowsAreGrouped) {
                const int before = __shfl_up_sync(all, end, 1);
                const int length = end - (lane == 0 ? last_end : before);
                int count = ceil_div(length, kTileRows) * columns;
                for (int step = 1; step < 32; step *= 2) {
                    const int before = __shfl_up_sync(all, count, step);
                    if (lane >= step) count += before;
                }
                if (group < num_groups) first_tile[group + 1] = tiles + count;
                tiles += __shfl_sync(all, count, 31);
            }
            last_end = __shfl_sync(all, end, 31);
        }
        if constexpr (!kRowsAreGrouped) plan_longest_first();
    }

    // Writes `experts` and `first_tile` from `ends`, by one whole warp: a radix sort by how many k-blocks fewer an
    // expert has than the longest one. Ties keep their order; where all are alike there is nothing to sort.
    // NOTE(sm90): every launch waits for it, so up to 32 experts it needs no pass: each lane counts who comes before.
    __device__ __forceinline__ void plan_longest_first() const {
        const u32 all = 0xffffffff;
        const int lane = threadIdx.x % 32;
        const u32 lower_lanes = (1u << lane) - 1;
        const auto k_blocks_of = [&](int expert) {
            return int(u32(ends[expert + 1] - ends[expert] + kRowsOfBlock - 1) / kRowsOfBlock);
        };
        __syncwarp();
        int most = 0, least = 0x7fffffff;
#pragma unroll 1
        for (int expert = lane; expert < num_groups; expert += 32) {
            experts[expert] = expert;
            most = max(most, k_blocks_of(expert));
            least = min(least, k_blocks_of(expert));
        }
        most = __reduce_max_sync(all, most);
        const int range = most - __reduce_min_sync(all, least);
        // Of no expert -1, whose digits are the last ones.
        const auto missing_of = [&](int expert) { return expert < num_groups ? most - k_blocks_of(expert) : -1; };

        int *from = experts, *to = first_tile;  // the two tables in turn
        if (num_groups <= 32) {
            const int missing = missing_of(lane);
            u32 before = lower_lanes;
#pragma unroll 1
            for (int shift = 0; range >> shift > 0; shift += LaneDigits::kBits) {
                const int digit = missing >> shift & 31;
                before = LaneDigits(digit).before(digit, before);
            }
            if (lane < num_groups) to[__popc(before)] = lane;
            __syncwarp();
            from = to;
        } else {
#pragma unroll 1
            for (int shift = 0; range >> shift > 0; shift += LaneDigits::kBits) {
                int next = 0;  // place of the next expert whose digit is this lane's number
#pragma unroll 1
                for (int base = 0; base < num_groups; base += 4 * 32)
#pragma unroll
                    for (int expert = base + lane; expert < base + 4 * 32; expert += 32)
                        next += __popc(LaneDigits(missing_of(expert) >> shift & 31).before(lane, 0));
#pragma unroll 1
                for (int base = 0; base < num_groups; base += 32) {
                    const bool is_expert = base + lane < num_groups;
                    const int expert = is_expert ? from[base + lane] : num_groups;
                    const int digit = missing_of(expert) >> shift & 31;
                    const LaneDigits digits(digit);
                    const int place = __shfl_sync(all, next, digit) + __popc(digits.with(digit) & lower_lanes);
                    if (is_expert) to[place] = expert;
                    next += __popc(digits.with(lane));
                }
                __syncwarp();
                int* const sorted = to;
                to = from;
                from = sorted;
            }
        }

#pragma unroll 1
        for (int place = lane; place < num_groups; place += 32) {
            experts[place] = from[place];
            first_tile[place] = place * rows * columns;
        }
        if (lane == 0) first_tile[num_groups] = num_groups * rows * columns;
    }

    // Returns tile number `tile` < num_tiles(); `group` is that of an earlier tile of the same walk, at first 0.
    __device__ __forceinline__ ClusterTile at(int tile, int group) const {
        while (tile >= first_tile[group + 1]) ++group;
        const int inside = tile - first_tile[group];
        const int band = inside / (kBand * columns);
        const int in_band = inside - band * kBand * columns;
        const int height = min(kBand, rows_of(group) - band * kBand);
        const int column = in_band / height;
        const int row = band * kBand + in_band - column * height;
        return {group, row, band % 2 ? columns - 1 - column : column};
    }
};
