// Idea: the shared tile with a barrier after every product, "to be safe". The result is right:
//       within a tile no thread writes what another reads.
// Tile: TILE x TILE x TILE, TILE^2 threads, one output each; TILE + 2 barriers for each tile of
//       k.
// Budget: 8 * TILE * TILE bytes of shared memory; 1 accumulator.
// Expect: slower than tile16: warps wait for the slowest one sixteen times as often, and
//         neither compiler may move or merge shared loads across a barrier.
// From: article C, S24. Compare with: tile16.
#include "common/epilogue.cuh"
#include "common/tile.cuh"

#ifndef TILE
#define TILE 16
#endif

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

    float sum = 0.0f;
    for (int first = 0; first < k; first += TILE) {
        a_tile[y][x] = load_or_zero(a, lda, row, first + x, m, k);
        b_tile[y][x] = load_or_zero(b, ldb, first + y, column, k, n);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < TILE; ++p) {
            sum = fmaf(a_tile[y][p], b_tile[p][x], sum);
            __syncthreads();  // superfluous
        }
        __syncthreads();
    }

    if (row < m && column < n) {
        float* output = c + static_cast<size_t>(row) * ldc + column;
        *output = scale_output(sum, alpha, beta, output);
    }
}
