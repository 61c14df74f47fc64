// Mistake: double buffering as an article's listing has it. Tile 0 is never loaded, the tile
//          after the current one is multiplied instead of the current, the last is multiplied
//          twice, and the indices of the B tile are swapped.
// Symptom: wrong for every shape, though no barrier is missing and nothing races; for k <= 16
//          no tile is loaded at all, so that uninitialised shared memory is multiplied.
// Right: kernels/09_double_buffer.cu.
#include "../common/epilogue.cuh"
#include "../common/tile.cuh"

constexpr int TILE = 16;

extern "C" __global__ void __launch_bounds__(TILE * TILE)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    __shared__ float a_tile[2][TILE][TILE];
    __shared__ float b_tile[2][TILE][TILE];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int row = blockIdx.y * TILE + y;
    const int column = blockIdx.x * TILE + x;

    // The first tiles belong here.
    float sum = 0.0f;
    int current = 0;
    for (int first = 0; first < k; first += TILE) {
        const int next = first + TILE;
        if (next < k) {
            current = 1 - current;
            a_tile[current][y][x] = load_or_zero(a, lda, row, next + x, m, k);
            b_tile[current][y][x] = load_or_zero(b, ldb, next + y, column, k, n);
        }
        __syncthreads();
        // Now `current` holds the next tiles, not the current ones, and so it does in the last
        // round.
#pragma unroll
        for (int p = 0; p < TILE; ++p) {
            sum = fmaf(a_tile[current][y][p], b_tile[current][x][p], sum);
        }
        __syncthreads();
    }

    if (row < m && column < n) {
        float* output = c + static_cast<size_t>(row) * ldc + column;
        *output = scale_output(sum, alpha, beta, output);
    }
}
