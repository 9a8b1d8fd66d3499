// The kernels that measuring needs: probe (SM clock and time), read_flush (cold L2), spin (a kernel of known duration).
// Compiled by NVRTC, which brings no <cstdint>.

using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

// ---- PTX: one instruction a function -------------------------------------------------------------------------------

// PTX ISA, special registers: %smid
__device__ __forceinline__ u32 smid() {
    u32 id;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}

// PTX ISA, special registers: %clock64
__device__ __forceinline__ i64 clock_cycles() {
    i64 cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
    return cycles;
}

// PTX ISA, special registers: %globaltimer
__device__ __forceinline__ i64 globaltimer_ns() {
    i64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

// PTX ISA, ld: not kept in L1. The asm is volatile, so that no pass over the buffer is taken for the one before.
__device__ __forceinline__ uint4 load_16_bytes(const uint4* address) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
    return v;
}

// ---- probe ---------------------------------------------------------------------------------------------------------

// Waiting for the timer's next step, whose length the driver may choose, ends after this many cycles.
constexpr i64 kMaxWaitCycles = 1 << 18;

// out: int64 [2, slots]; out[0][s] = clock64 and out[1][s] = globaltimer (ns) of SM s. Other SMs' columns stay.
// One thread a block; launched with so much shared memory that an SM holds one block.
extern "C" __global__ void probe(i64* out, u32 slots) {
    // The timer moves in steps: read the clock right after one, and the pair is exact to a few cycles.
    const i64 begin = globaltimer_ns();
    const i64 limit = clock_cycles() + kMaxWaitCycles;
    i64 ns, cycles;
    do {
        ns = globaltimer_ns();
        cycles = clock_cycles();
    } while (ns == begin && cycles < limit);

    const u32 sm = smid();
    if (sm < slots) {
        out[sm] = cycles;
        out[slots + sm] = ns;
    }
}

// ---- read_flush ----------------------------------------------------------------------------------------------------

constexpr int kInFlight = 8;

// Reads data[0 .. num_vectors) `repeat` times and writes nothing, unless a thread's 32-bit words sum to `never`; then
// *sink goes up by one. The caller fills the buffer so that no sum does.
extern "C" __global__ void __launch_bounds__(512)
    read_flush(const uint4* data, u64 num_vectors, u32 repeat, u32 never, u32* sink) {
    const u64 stride = u64(gridDim.x) * blockDim.x;
    const u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    u32 sum = 0;
    for (u32 r = 0; r < repeat; ++r) {
        u64 i = first;
        for (; i + (kInFlight - 1) * stride < num_vectors; i += kInFlight * stride) {
            uint4 v[kInFlight];
#pragma unroll
            for (int k = 0; k < kInFlight; ++k) v[k] = load_16_bytes(data + i + k * stride);
#pragma unroll
            for (int k = 0; k < kInFlight; ++k) sum += v[k].x + v[k].y + v[k].z + v[k].w;
        }
        for (; i < num_vectors; i += stride) {
            const uint4 v = load_16_bytes(data + i);
            sum += v.x + v.y + v.z + v.w;
        }
    }
    if (sum == never) atomicAdd(sink, 1u);
}

// ---- spin ----------------------------------------------------------------------------------------------------------

// Ends `ns` after it began, to one step of the timer.
extern "C" __global__ void spin(i64 ns) {
    const i64 begin = globaltimer_ns();
    while (globaltimer_ns() - begin < ns) {
    }
}
