// Mistake: double buffering without the barrier at the end of a round, in the belief that two
//          copies make it superfluous.
// Symptom: two copies let a warp run ahead by one tile, not by two, and never let it read what
//          others haven't stored: errors come and go.
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
        // __syncthreads() belongs here.
        current = 1 - current;
    }

    if (row < m && column < n) {
        float* output = c + static_cast<size_t>(row) * ldc + column;
        *output = scale_output(sum, alpha, beta, output);
    }
}
