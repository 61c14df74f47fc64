// Idea: the tile's size is chosen at launch: it is the block's size, and the tiles lie in
//       dynamic shared memory.
// Tile: blockDim.x x blockDim.x x blockDim.x; a square block of at most 1024 threads, one
//       output each.
// Budget: 8 * blockDim.x^2 bytes of dynamic shared memory, which the launch must ask for; 1
//         accumulator.
// Expect: slower than the same tile fixed at compile time: the inner loop can't be unrolled in
//         full, its addresses are computed and no loads of A merge.
// From: article B, S8. Compare with: tile16 (and tile8, tile32), whose size the compiler knows.
#include "common/epilogue.cuh"
#include "common/tile.cuh"

extern "C" __global__ void __launch_bounds__(1024)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    extern __shared__ float tiles[];
    const int tile = blockDim.x;
    float* a_tile = tiles;
    float* b_tile = tiles + tile * tile;
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int row = blockIdx.y * tile + y;
    const int column = blockIdx.x * tile + x;

    float sum = 0.0f;
    for (int first = 0; first < k; first += tile) {
        a_tile[y * tile + x] = load_or_zero(a, lda, row, first + x, m, k);
        b_tile[y * tile + x] = load_or_zero(b, ldb, first + y, column, k, n);
        __syncthreads();
        for (int p = 0; p < tile; ++p) {
            sum = fmaf(a_tile[y * tile + p], b_tile[p * tile + x], sum);
        }
        __syncthreads();
    }

    if (row < m && column < n) {
        float* output = c + static_cast<size_t>(row) * ldc + column;
        *output = scale_output(sum, alpha, beta, output);
    }
}
