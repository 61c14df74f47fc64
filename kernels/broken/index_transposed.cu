// Mistake: the two indices of the B tile are swapped when it is read.
// Symptom: the product of A with a B whose 16 x 16 blocks are transposed: wrong for every B
//          that isn't symmetric in that way.
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
        a_tile[y][x] = load_or_zero(a, lda, row, first + x, m, k);
        b_tile[y][x] = load_or_zero(b, ldb, first + y, column, k, n);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < TILE; ++p) {
            sum = fmaf(a_tile[y][p], b_tile[x][p], sum);
        }
        __syncthreads();
    }

    if (row < m && column < n) {
        float* output = c + static_cast<size_t>(row) * ldc + column;
        *output = scale_output(sum, alpha, beta, output);
    }
}
