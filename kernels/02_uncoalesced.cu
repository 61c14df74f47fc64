// Idea: the naive kernel with its two indices swapped: neighbouring lanes take neighbouring
//       *rows* of C.
// Tile: none; a block of BLOCK x BLOCK threads covers as many elements of C.
// Budget: no shared memory; two loads for each multiply-add, as in naive.
// Expect: a warp's load of A touches 16 rows, so 16 sectors where naive needs 2; stores scatter
//         as well.
// From: article C, S20. Compare with: naive.
#include "common/epilogue.cuh"

#ifndef BLOCK
#define BLOCK 16
#endif

static_assert(BLOCK * BLOCK <= 1024, "a block has at most 1024 threads");

extern "C" __global__ void __launch_bounds__(BLOCK * BLOCK)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    // The mistake: threadIdx.x, which counts through the lanes of a warp, chooses the row.
    const int row = blockIdx.x * BLOCK + threadIdx.x;
    const int column = blockIdx.y * BLOCK + threadIdx.y;
    if (row >= m || column >= n) {
        return;
    }

    const float* a_row = a + static_cast<size_t>(row) * lda;
    float sum = 0.0f;
    for (int p = 0; p < k; ++p) {
        sum = fmaf(a_row[p], b[static_cast<size_t>(p) * ldb + column], sum);
    }

    float* output = c + static_cast<size_t>(row) * ldc + column;
    *output = scale_output(sum, alpha, beta, output);
}
