// Mistake: alpha is multiplied into A where it lies.
// Symptom: right for alpha = 1. Otherwise every thread of a row scales it again, so sums come
//          out differently from run to run, and the caller's A is gone.
// Right: kernels/01_naive.cu.
#include "../common/epilogue.cuh"

constexpr int BLOCK_X = 16;
constexpr int BLOCK_Y = 16;

extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y)
    gemm(int m, int n, int k, float alpha, float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    // Neighbouring lanes take neighbouring columns, so that a warp's loads of B and stores of C
    // coalesce.
    const int row = blockIdx.y * BLOCK_Y + threadIdx.y;
    const int column = blockIdx.x * BLOCK_X + threadIdx.x;
    if (row >= m || column >= n) {
        return;
    }

    float* a_row = a + static_cast<size_t>(row) * lda;
    float sum = 0.0f;
    for (int p = 0; p < k; ++p) {
        a_row[p] *= alpha;  // scale_output does this to the sum
        sum = fmaf(a_row[p], b[static_cast<size_t>(p) * ldb + column], sum);
    }

    float* output = c + static_cast<size_t>(row) * ldc + column;
    *output = scale_output(sum, 1.0f, beta, output);
}
