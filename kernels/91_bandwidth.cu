// Idea: every block reads as fast as it can, from global and then from shared memory, and
//       divides its bytes by its cycles. Added over the blocks this is the device's rate in
//       bytes for each cycle.
// Launch: one block of 1024 threads for each SM; the buffer is much larger than L2. Two blocks
//         on an SM would take turns, each with a rate of its own that the other lacks, and
//         their sum would be more than the SM has.
// Result: global_rate[block], shared_rate[block] in bytes for each cycle.
// From: article B, claim B4: the ratio of the two needs no clock rate.

#ifndef ROUNDS
#define ROUNDS 4096
#endif

constexpr int THREADS = 1024;
constexpr int VECTORS = 1024;  // in shared memory: 16 KiB

// Stores a value that never occurs, so that no load can be left out.
__device__ __forceinline__ void keep(float4 sum, float* never) {
    if (sum.x + sum.y + sum.z + sum.w == 1.2345e33f) {
        *never = sum.x;
    }
}

__device__ __forceinline__ void add(float4& sum, float4 value) {
    sum.x += value.x;
    sum.y += value.y;
    sum.z += value.z;
    sum.w += value.w;
}

// Vectors of 16 bytes; blocks read neighbouring pieces in turn.
extern "C" __global__ void __launch_bounds__(THREADS)
    read_global(const float4* __restrict__ data, int vectors, float* global_rate) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    long long bytes = 0;
    __syncthreads();
    const long long start = clock64();
    const int stride = gridDim.x * THREADS;
#pragma unroll 8
    for (int vector = blockIdx.x * THREADS + threadIdx.x; vector < vectors; vector += stride) {
        add(sum, data[vector]);
        bytes += 16;
    }
    keep(sum, global_rate);
    __syncthreads();
    const long long cycles = clock64() - start;
    if (threadIdx.x == 0) {
        global_rate[blockIdx.x] = static_cast<float>(bytes) * THREADS / cycles;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    read_shared(float* shared_rate) {
    __shared__ float4 data[VECTORS];
    data[threadIdx.x] = make_float4(threadIdx.x, 0.0f, 0.0f, 0.0f);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    __syncthreads();
    const long long start = clock64();
#pragma unroll 16
    for (int round = 0; round < ROUNDS; ++round) {
        // Another row of 32 vectors each round: a warp reads 512 bytes without a conflict.
        add(sum, data[(threadIdx.x + 32 * round) % VECTORS]);
    }
    keep(sum, shared_rate);
    __syncthreads();
    const long long cycles = clock64() - start;
    if (threadIdx.x == 0) {
        shared_rate[blockIdx.x] = 16.0f * THREADS * ROUNDS / cycles;
    }
}
