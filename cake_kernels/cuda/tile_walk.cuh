// The tile walk: which tile of which group a cluster computes next. grouped_gemm/sm90/walk.py is the same in Python.
//
// Groups. Group e has the rows ends[e] .. ends[e + 1]; offs that are not monotone or leave 0..M are read as their
// running maximum kept within 0..M. Where rows of the output are grouped (fwd, dgrad) there is one group more, number
// E: the rows up to M that belong to nobody.
// Places. The tables have the groups one after the other; in wgrad those with rows come first, in order, and then those
// without, from the last one to the first, so that full waves of tiles are alike wherever an empty group lies. Below, a
// group is known by its place.
// Tiles are numbered group after group. Inside a group they lie in bands of kBand cluster rows; a band is walked column
// by column, from left to right in even bands and back in odd ones.
// Cluster c of n takes tiles c, c + n, c + 2n, ...: no queue, and no cluster waits for another.
#pragma once

#include "ptx/integers.cuh"

__device__ __forceinline__ int ceil_div(int a, int b) { return (a + b - 1) / b; }

// A tile in units of cluster tiles, counted from the group's first row and column.
struct ClusterTile {
    int group;
    int row;
    int column;
};

// kTileRows: rows of the output in a cluster's tile.
template <bool kRowsAreGrouped, int kTileRows, int kBand>
struct TileWalk {
    int* ends;        // shared memory, [num_groups + 1]
    int* first_tile;  // shared memory, [num_groups + 1]
    int* experts;     // shared memory, [num_groups]: whose group it is; not used where rows are grouped
    int num_groups;   // E, or E + 1 where rows are grouped
    int rows;         // of tiles in a group, where that is the same for all (wgrad)
    int columns;      // of tiles in a group

    __device__ __forceinline__ int num_tiles() const { return first_tile[num_groups]; }

    __device__ __forceinline__ int rows_of(int group) const {
        return kRowsAreGrouped ? ceil_div(ends[group + 1] - ends[group], kTileRows) : rows;
    }

    __device__ __forceinline__ int expert_of(int group) const { return kRowsAreGrouped ? group : experts[group]; }

    // One whole warp writes the tables, from offs[num_experts] and the rows M of X.
    __device__ __forceinline__ void plan(const int* offs, int num_experts, int total_rows) const {
        const u32 all = 0xffffffff;
        const int lane = threadIdx.x % 32;
        int last_end = 0;
        int tiles = 0;
        int filled = 0;  // groups with rows
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
            const int before = __shfl_up_sync(all, end, 1);
            const int length = end - (lane == 0 ? last_end : before);
            if constexpr (kRowsAreGrouped) {
                if (group < num_groups) ends[group + 1] = end;
            } else {
                const u32 with_rows = __ballot_sync(all, length > 0);
                const int filled_before = filled + __popc(with_rows & ((1u << lane) - 1));
                const int place = length > 0 ? filled_before : num_groups - 1 - (group - filled_before);
                if (length > 0) ends[place + 1] = end;
                if (group < num_groups) experts[place] = group;
                filled += __popc(with_rows);
            }

            int count = kRowsAreGrouped ? ceil_div(length, kTileRows) * columns : rows * columns;
            for (int step = 1; step < 32; step *= 2) {
                const int before = __shfl_up_sync(all, count, step);
                if (lane >= step) count += before;
            }
            if (group < num_groups) first_tile[group + 1] = tiles + count;

            last_end = __shfl_sync(all, end, 31);
            tiles += __shfl_sync(all, count, 31);
        }
        if constexpr (!kRowsAreGrouped)
            for (int place = filled + lane; place < num_groups; place += 32) ends[place + 1] = last_end;
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
