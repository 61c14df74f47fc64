// Mistake: below 32 partial sums the tree goes on without any synchronisation, as was usual
//          when the lanes of a warp ran in lockstep.
// Symptom: since Volta lanes may drift apart and the compiler may keep sums in registers: a
//          lane adds what its neighbour hasn't stored yet.
// Right: kernels/13_block_per_output.cu.
#include "../common/epilogue.cuh"

constexpr int THREADS = 128;

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, const float* __restrict__ c, int ldc,
         float* __restrict__ d, int ldd) {
    __shared__ float partial[THREADS];
    const int thread = threadIdx.x;
    const int row = blockIdx.y;
    const int column = blockIdx.x;

    const float* a_row = a + static_cast<size_t>(row) * lda;
    const float* b_row = b + static_cast<size_t>(column) * ldb;
    float sum = 0.0f;
    for (int p = thread; p < k; p += THREADS) {
        sum = fmaf(a_row[p], b_row[p], sum);
    }
    partial[thread] = sum;

    for (int half = THREADS / 2; half >= 32; half /= 2) {
        __syncthreads();
        if (thread < half) {
            partial[thread] += partial[thread + half];
        }
    }
    if (thread < 32) {
        for (int half = 16; half > 0; half /= 2) {
            // __syncwarp() belongs here, and after the read below.
            partial[thread] += partial[thread + half];
        }
    }

    if (thread == 0) {
        d[static_cast<size_t>(row) * ldd + column] =
            scale_output(partial[0], alpha, beta, c + static_cast<size_t>(row) * ldc + column);
    }
}
