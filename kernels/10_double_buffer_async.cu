// Idea: double buffering by cp.async: the next tiles travel from global to shared memory by
//       themselves while the block multiplies, without a register and without a store
//       instruction.
// Tile: TILE x TILE x TILE, TILE^2 threads, one output each; one barrier for each tile of k.
// Budget: 16 * TILE * TILE bytes of shared memory; 1 accumulator.
// Expect: as double_buffer, with fewer instructions between the multiplications.
// From: article B, S7. Compare with: double_buffer. Needs sm_80.
#include "common/cp_async.cuh"
#include "common/epilogue.cuh"

#ifndef TILE
#define TILE 16
#endif

static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads");
static_assert(16 * TILE * TILE <= 48 * 1024, "static shared memory ends at 48 KiB");

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
        __syncthreads();     // everybody's has, and nobody reads the other copy any more
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
