// Mistake: each thread waits for its own copies only; without the barrier nobody knows of the
//          others'.
// Symptom: a warp multiplies what other warps' copies haven't delivered yet, and its own copies
//          overwrite what others still read.
// Right: kernels/10_double_buffer_async.cu.
#include "../common/cp_async.cuh"
#include "../common/epilogue.cuh"

constexpr int TILE = 16;

// As load_or_zero, straight into shared memory.
__device__ __forceinline__ void copy_or_zero(float* shared, const float* matrix, int pitch,
                                             int row, int column, int rows, int columns) {
    const bool inside = row < rows && column < columns;
    cp_async4(shared, inside ? matrix + static_cast<size_t>(row) * pitch + column : matrix,
              inside);
}

extern "C" __global__ void __launch_bounds__(TILE * TILE)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    __shared__ float a_tile[2][TILE][TILE];
    __shared__ float b_tile[2][TILE][TILE];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int row = blockIdx.y * TILE + y;
    const int column = blockIdx.x * TILE + x;

    copy_or_zero(&a_tile[0][y][x], a, lda, row, x, m, k);
    copy_or_zero(&b_tile[0][y][x], b, ldb, y, column, k, n);
    cp_async_commit();

    float sum = 0.0f;
    int current = 0;
    for (int first = 0; first < k; first += TILE) {
        cp_async_wait<0>();  // this thread's part of the current tiles has arrived
        // __syncthreads() belongs here.
        const int next = first + TILE;
        if (next < k) {
            copy_or_zero(&a_tile[1 - current][y][x], a, lda, row, next + x, m, k);
            copy_or_zero(&b_tile[1 - current][y][x], b, ldb, next + y, column, k, n);
            cp_async_commit();
        }
#pragma unroll
        for (int p = 0; p < TILE; ++p) {
            sum = fmaf(a_tile[current][y][p], b_tile[current][p][x], sum);
        }
        current = 1 - current;
    }

    if (row < m && column < n) {
        float* output = c + static_cast<size_t>(row) * ldc + column;
        *output = scale_output(sum, alpha, beta, output);
    }
}
