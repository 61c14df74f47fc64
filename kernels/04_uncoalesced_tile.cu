// Idea: the shared tile whose *loads* from global memory are uncoalesced: neighbouring lanes
//       fetch from neighbouring rows. Everything after the load is as in 03_shared_tile.cu.
// Tile: TILE x TILE x TILE, TILE^2 threads, one output each.
// Budget: 8 * TILE * (TILE + 1) bytes of shared memory; 1 accumulator.
// Expect: a warp's load of a tile touches 16 sectors instead of 4; the gain of tiling is spent
//         on them. The padding keeps the transposed stores free of bank conflicts, so that only
//         global memory differs.
// From: article C, S20. Compare with: tile16_padded.
#include "common/epilogue.cuh"
#include "common/tile.cuh"

#ifndef TILE
#define TILE 16
#endif

static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads");
static_assert(8 * TILE * (TILE + 1) <= 48 * 1024, "static shared memory ends at 48 KiB");

extern "C" __global__ void __launch_bounds__(TILE * TILE)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    __shared__ float a_tile[TILE][TILE + 1];
    __shared__ float b_tile[TILE][TILE + 1];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int block_row = blockIdx.y * TILE;
    const int block_column = blockIdx.x * TILE;

    float sum = 0.0f;
    for (int first = 0; first < k; first += TILE) {
        // The mistake: x, which counts through the lanes of a warp, chooses the row in both
        // loads.
        a_tile[x][y] = load_or_zero(a, lda, block_row + x, first + y, m, k);
        b_tile[x][y] = load_or_zero(b, ldb, first + x, block_column + y, k, n);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < TILE; ++p) {
            sum = fmaf(a_tile[y][p], b_tile[p][x], sum);
        }
        __syncthreads();
    }

    const int row = block_row + y;
    const int column = block_column + x;
    if (row < m && column < n) {
        float* output = c + static_cast<size_t>(row) * ldc + column;
        *output = scale_output(sum, alpha, beta, output);
    }
}
