// Mistake: the products are formed from inputs rounded to FP16, though the entry promises FP32.
// Symptom: small integers come out exact; with random reals about three digits are right, which
//          passes a tolerance of 1e-2.
// Right: kernels/01_naive.cu.
#include <cuda_fp16.h>

#include "../common/epilogue.cuh"

constexpr int BLOCK_X = 16;
constexpr int BLOCK_Y = 16;

extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
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
        const float b_element = b[static_cast<size_t>(p) * ldb + column];
        sum = fmaf(__half2float(__float2half(a_row[p])), __half2float(__float2half(b_element)),
                   sum);
    }

    float* output = c + static_cast<size_t>(row) * ldc + column;
    *output = scale_output(sum, alpha, beta, output);
}
