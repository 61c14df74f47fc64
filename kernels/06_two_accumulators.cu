// Idea: the inner loop of the shared tile unrolled by two into two accumulators, so that two
//       chains of multiply-adds run side by side and neither waits for the other.
// Tile: TILE x TILE x TILE, TILE^2 threads, one output each.
// Budget: 8 * TILE * TILE bytes of shared memory; 2 accumulators.
// Expect: little: with 16 warps or more on a scheduler's hands the chain's latency is hidden
//         anyway. The sum is taken in another order, so it rounds differently from tile16.
// From: article B, S6. Compare with: tile16.
#include "common/epilogue.cuh"
#include "common/tile.cuh"

#ifndef TILE
#define TILE 16
#endif

static_assert(TILE % 2 == 0, "the inner loop takes two products at a time");
static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads");
static_assert(8 * TILE * TILE <= 48 * 1024, "static shared memory ends at 48 KiB");

extern "C" __global__ void __launch_bounds__(TILE * TILE)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int row = blockIdx.y * TILE + y;
    const int column = blockIdx.x * TILE + x;

    float even_sum = 0.0f;
    float odd_sum = 0.0f;
    for (int first = 0; first < k; first += TILE) {
        a_tile[y][x] = load_or_zero(a, lda, row, first + x, m, k);
        b_tile[y][x] = load_or_zero(b, ldb, first + y, column, k, n);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < TILE; p += 2) {
            even_sum = fmaf(a_tile[y][p], b_tile[p][x], even_sum);
            odd_sum = fmaf(a_tile[y][p + 1], b_tile[p + 1][x], odd_sum);
        }
        __syncthreads();
    }

    if (row < m && column < n) {
        float* output = c + static_cast<size_t>(row) * ldc + column;
        *output = scale_output(even_sum + odd_sum, alpha, beta, output);
    }
}
