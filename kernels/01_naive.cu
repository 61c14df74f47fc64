// Idea: one thread computes one element of C and fetches everything that it needs from global
//       memory.
// Tile: none; a block of BLOCK_X x BLOCK_Y threads covers as many elements of C.
// Budget: no shared memory; two loads for each multiply-add.
// Expect: the load-store unit is the limiter; L1 and L2 serve what neighbours ask for again.
//         With a block 16 wide a warp spans two rows of C: 16 addresses of B, each wanted
//         twice, and 2 addresses of A.
// From: article A, S1 (16x16). A 32x32 block is A's second, "more hidden" case of S4: as many
//       threads as tile32, one output each, and nothing kept close by.
#include "common/epilogue.cuh"
#include "common/restrict.cuh"

#ifndef BLOCK_X
#define BLOCK_X 16
#endif
#ifndef BLOCK_Y
#define BLOCK_Y 16
#endif

static_assert(BLOCK_X * BLOCK_Y <= 1024, "a block has at most 1024 threads");

extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y)
    gemm(int m, int n, int k, float alpha, const float* MAYBE_RESTRICT a, int lda,
         const float* MAYBE_RESTRICT b, int ldb, float beta, float* MAYBE_RESTRICT c, int ldc) {
    // Neighbouring lanes take neighbouring columns, so that a warp's loads of B and stores of C
    // coalesce.
    const int row = blockIdx.y * BLOCK_Y + threadIdx.y;
    const int column = blockIdx.x * BLOCK_X + threadIdx.x;
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
