// Idea: a whole block computes one element of D = alpha A B^T + beta C. Each thread adds up
//       every THREADS-th product, then a tree in shared memory joins the partial sums.
// Tile: 1 x 1, all of k; a block per element, so the grid is n x m.
// Budget: 4 * THREADS bytes of shared memory; 1 accumulator; log2(THREADS) + 1 barriers.
// Expect: no element is ever used twice by a block: 2 m n k loads leave L1. Blocks that live
//         for a few microseconds spend much of their life starting and reducing.
// From: article C, S16. B is stored n x k here, so that both rows are read side by side.
//       Compare with: naive.
#include "common/epilogue.cuh"

#ifndef THREADS
#define THREADS 128
#endif

static_assert(THREADS <= 1024, "a block has at most 1024 threads");
static_assert((THREADS & (THREADS - 1)) == 0,
              "the tree halves the block until one thread is left");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, const float* __restrict__ c, int ldc,
         float* __restrict__ d, int ldd) {
    __shared__ float partial[THREADS];
    const int thread = threadIdx.x;
    const int row = blockIdx.y;
    const int column = blockIdx.x;

    const float* a_row = a + static_cast<size_t>(row) * lda;
    const float* b_row = b + static_cast<size_t>(column) * ldb;
    float sum = 0.0f;
    for (int p = thread; p < k; p += THREADS) {
        sum = fmaf(a_row[p], b_row[p], sum);
    }
    partial[thread] = sum;

    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();  // the partial sums of the round before are written
        if (thread < half) {
            partial[thread] += partial[thread + half];
        }
    }

    if (thread == 0) {
        d[static_cast<size_t>(row) * ldd + column] =
            scale_output(partial[0], alpha, beta, c + static_cast<size_t>(row) * ldc + column);
    }
}
