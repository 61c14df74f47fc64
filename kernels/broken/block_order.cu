// Mistake: two blocks share an output's k: the first stores its half, the second adds its own,
//          and nothing makes the second wait.
// Symptom: right as long as blocks run in the order of their numbers, which nobody promises; on
//          a full GPU a store wipes out a sum, or both add to what C held before.
// Right: kernels/01_naive.cu.
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
    const int begin = blockIdx.z * (k / 2);
    const int end = blockIdx.z == 0 ? k / 2 : k;
    for (int p = begin; p < end; ++p) {
        sum = fmaf(a_row[p], b[static_cast<size_t>(p) * ldb + column], sum);
    }

    float* output = c + static_cast<size_t>(row) * ldc + column;
    // The blocks need a workspace each and a second launch that adds.
    *output = scale_output(sum, alpha, blockIdx.z == 0 ? beta : 1.0f, output);
}
