// Idea: a block copies a TILE x TILE piece of A and of B into shared memory, where each element
//       then serves TILE threads instead of being fetched from global memory TILE times.
// Tile: TILE x TILE x TILE, TILE^2 threads, one output each; two barriers for each tile of k.
// Budget: 4 * TILE * (2 * TILE + PAD_A + PAD_B) bytes of shared memory; 1 accumulator.
// Expect: two shared loads for each multiply-add: the load-store unit is the limiter, no longer
//         L2 or DRAM. Unpadded, ptxas merges four neighbouring loads of A into one; a padded
//         row loses the alignment for that and makes the stores of a 16-wide tile two-way
//         conflicts.
// From: articles A and B: S2 (padded), S3 (not padded), S4 (TILE 32), S5 (TILE 17). Compare
//       with: naive.
#include "common/epilogue.cuh"
#include "common/restrict.cuh"
#include "common/tile.cuh"

#ifndef TILE
#define TILE 16
#endif
#ifndef PAD_A
#define PAD_A 0
#endif
#ifndef PAD_B
#define PAD_B 0
#endif

static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads");
static_assert(4 * TILE * (2 * TILE + PAD_A + PAD_B) <= 48 * 1024,
              "static shared memory ends at 48 KiB");

extern "C" __global__ void __launch_bounds__(TILE * TILE)
    gemm(int m, int n, int k, float alpha, const float* MAYBE_RESTRICT a, int lda,
         const float* MAYBE_RESTRICT b, int ldb, float beta, float* MAYBE_RESTRICT c, int ldc) {
    __shared__ float a_tile[TILE][TILE + PAD_A];
    __shared__ float b_tile[TILE][TILE + PAD_B];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int row = blockIdx.y * TILE + y;
    const int column = blockIdx.x * TILE + x;

    float sum = 0.0f;
    for (int first = 0; first < k; first += TILE) {
        a_tile[y][x] = load_or_zero(a, lda, row, first + x, m, k);
        b_tile[y][x] = load_or_zero(b, ldb, first + y, column, k, n);
        __syncthreads();  // the tiles are complete
#pragma unroll
        for (int p = 0; p < TILE; ++p) {
            sum = fmaf(a_tile[y][p], b_tile[p][x], sum);
        }
        __syncthreads();  // nobody reads the tiles any more; the next round may overwrite them
    }

    if (row < m && column < n) {
        float* output = c + static_cast<size_t>(row) * ldc + column;
        *output = scale_output(sum, alpha, beta, output);
    }
}
