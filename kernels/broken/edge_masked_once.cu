// Mistake: past the end of k only the tile of B is filled with zeros, in the belief that a zero
//          on one side is enough.
// Symptom: right while what lies behind a row of A is finite; a NaN or an infinity there times
//          zero is NaN. Behind the last row it is outside the buffer.
// Right: kernels/03_shared_tile.cu.
#include "../common/epilogue.cuh"
#include "../common/tile.cuh"

constexpr int TILE = 16;

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
        a_tile[y][x] = row < m ? a[static_cast<size_t>(row) * lda + first + x]
                               : 0.0f;  // lacks `first + x < k`
        b_tile[y][x] = load_or_zero(b, ldb, first + y, column, k, n);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < TILE; ++p) {
            sum = fmaf(a_tile[y][p], b_tile[p][x], sum);
        }
        __syncthreads();
    }

    if (row < m && column < n) {
        float* output = c + static_cast<size_t>(row) * ldc + column;
        *output = scale_output(sum, alpha, beta, output);
    }
}
