// Idea: two copies of the tiles. While a block multiplies one, the next waits in registers on
//       its way from global memory and is stored into the other copy: one barrier for each tile
//       of k instead of two.
// Tile: TILE x TILE x TILE, TILE^2 threads, one output each.
// Budget: 16 * TILE * TILE bytes of shared memory; 1 accumulator and 2 elements under way.
// Expect: the latency of global memory overlaps the multiplications. That helps where few warps
//         are resident; a full SM hides most of it already.
// From: article B, S7, which announces this; its own listing overlaps nothing and computes
//       something else: kernels/broken/double_buffer_listing.cu. Compare with: tile16.
#include "common/epilogue.cuh"
#include "common/tile.cuh"

#ifndef TILE
#define TILE 16
#endif

static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads");
static_assert(16 * TILE * TILE <= 48 * 1024, "static shared memory ends at 48 KiB");

extern "C" __global__ void __launch_bounds__(TILE * TILE)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    __shared__ float a_tile[2][TILE][TILE];
    __shared__ float b_tile[2][TILE][TILE];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int row = blockIdx.y * TILE + y;
    const int column = blockIdx.x * TILE + x;

    a_tile[0][y][x] = load_or_zero(a, lda, row, x, m, k);
    b_tile[0][y][x] = load_or_zero(b, ldb, y, column, k, n);
    __syncthreads();

    float sum = 0.0f;
    int current = 0;
    for (int first = 0; first < k; first += TILE) {
        // Asked for before the multiplications, needed after them. Past the end of k these are
        // zeros.
        const int next = first + TILE;
        const float next_a = load_or_zero(a, lda, row, next + x, m, k);
        const float next_b = load_or_zero(b, ldb, next + y, column, k, n);
#pragma unroll
        for (int p = 0; p < TILE; ++p) {
            sum = fmaf(a_tile[current][y][p], b_tile[current][p][x], sum);
        }
        // The other copy was last read before the last barrier, so it may be overwritten now.
        a_tile[1 - current][y][x] = next_a;
        b_tile[1 - current][y][x] = next_b;
        __syncthreads();
        current = 1 - current;
    }

    if (row < m && column < n) {
        float* output = c + static_cast<size_t>(row) * ldc + column;
        *output = scale_output(sum, alpha, beta, output);
    }
}
