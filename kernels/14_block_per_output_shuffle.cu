// Idea: one block for each element of D, as in 13_block_per_output.cu, but the lanes of a warp
//       add up through shuffles: registers talk to registers, and shared memory carries one
//       number for each warp.
// Tile: 1 x 1, all of k; the grid is n x m.
// Budget: 4 * THREADS / 32 bytes of shared memory; 1 accumulator; 1 barrier instead of
//         log2(THREADS) + 1.
// Expect: a shorter end for each block; loads, which dominate for large k, stay the same. The
//         partial sums meet in another order than in the tree, so the last bits differ.
// From: article C, S16. Compare with: block_per_output.
#include "common/epilogue.cuh"

#ifndef THREADS
#define THREADS 128
#endif

constexpr int WARPS = THREADS / 32;

static_assert(THREADS % 32 == 0 && THREADS <= 1024, "whole warps, at most 1024 threads");

// The sum over the 32 lanes of a warp, in lane 0.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_down_sync(0xffffffffu, value, distance);
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, const float* __restrict__ c, int ldc,
         float* __restrict__ d, int ldd) {
    __shared__ float partial[WARPS];
    const int thread = threadIdx.x;
    const int row = blockIdx.y;
    const int column = blockIdx.x;

    const float* a_row = a + static_cast<size_t>(row) * lda;
    const float* b_row = b + static_cast<size_t>(column) * ldb;
    float sum = 0.0f;
    for (int p = thread; p < k; p += THREADS) {
        sum = fmaf(a_row[p], b_row[p], sum);
    }

    sum = warp_sum(sum);
    if (thread % 32 == 0) {
        partial[thread / 32] = sum;
    }
    __syncthreads();
    if (thread < 32) {
        sum = warp_sum(thread < WARPS ? partial[thread] : 0.0f);
    }

    if (thread == 0) {
        d[static_cast<size_t>(row) * ldd + column] =
            scale_output(sum, alpha, beta, c + static_cast<size_t>(row) * ldc + column);
    }
}
