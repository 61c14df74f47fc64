// Idea: each thread keeps a TM x TN patch of C in registers, so that one shared load feeds
//       several multiply-adds (2x2: 4 loads for 4, 4x4: 8 for 16, 8x8: 16 for 64).
// Tile: BM x BN x BK with BM = THREADS_Y * TM and BN = THREADS_X * TN; THREADS_X * THREADS_Y
//       threads.
// Budget: 4 * (BM * (BK + PAD_A) + BK * (BN + PAD_B)) bytes of shared memory; TM * TN
//         accumulators and TM + TN operands in registers.
// Expect: bound by shared loads up to 4x4, by the issue of multiply-adds at 8x8; 16x16 needs
//         256 accumulators of at most 255 registers and spills, as does 8x8 where MIN_BLOCKS =
//         4 leaves 64 registers.
// From: article A, S9 to S12. Compare with: tile16.
#include "common/epilogue.cuh"
#include "common/restrict.cuh"
#include "common/tile.cuh"

#ifndef TM
#define TM 4
#endif
#ifndef TN
#define TN 4
#endif
#ifndef THREADS_X
#define THREADS_X 16
#endif
#ifndef THREADS_Y
#define THREADS_Y 16
#endif
#ifndef BK
#define BK 16
#endif
#ifndef PAD_A
#define PAD_A 0
#endif
#ifndef PAD_B
#define PAD_B 0
#endif

// Blocks that an SM must hold: the more, the fewer registers for each thread. Left out, ptxas
// chooses freely.
#ifdef MIN_BLOCKS
#define BOUNDS THREADS, MIN_BLOCKS
#else
#define BOUNDS THREADS
#endif

constexpr int BM = THREADS_Y * TM;
constexpr int BN = THREADS_X * TN;
constexpr int THREADS = THREADS_X * THREADS_Y;

static_assert(THREADS <= 1024, "a block has at most 1024 threads");
static_assert(4 * (BM * (BK + PAD_A) + BK * (BN + PAD_B)) <= 48 * 1024,
              "static shared memory ends at 48 KiB");

extern "C" __global__ void __launch_bounds__(BOUNDS)
    gemm(int m, int n, int k, float alpha, const float* MAYBE_RESTRICT a, int lda,
         const float* MAYBE_RESTRICT b, int ldb, float beta, float* MAYBE_RESTRICT c, int ldc) {
    __shared__ float a_tile[BM][BK + PAD_A];
    __shared__ float b_tile[BK][BN + PAD_B];
    const int thread = threadIdx.y * THREADS_X + threadIdx.x;
    const int block_row = blockIdx.y * BM;
    const int block_column = blockIdx.x * BN;
    const int patch_row = threadIdx.y * TM;
    const int patch_column = threadIdx.x * TN;

    float sums[TM][TN] = {};
    for (int first = 0; first < k; first += BK) {
        copy_tile<BK, THREADS>(a_tile, thread, a, lda, block_row, first, m, k);
        copy_tile<BN, THREADS>(b_tile, thread, b, ldb, first, block_column, k, n);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; ++p) {
            float a_part[TM];
            float b_part[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_part[i] = a_tile[patch_row + i][p];
            }
#pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_part[j] = b_tile[p][patch_column + j];
            }
#pragma unroll
            for (int i = 0; i < TM; ++i) {
#pragma unroll
                for (int j = 0; j < TN; ++j) {
                    sums[i][j] = fmaf(a_part[i], b_part[j], sums[i][j]);
                }
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int row = block_row + patch_row + i;
            const int column = block_column + patch_column + j;
            if (row < m && column < n) {
                float* output = c + static_cast<size_t>(row) * ldc + column;
                *output = scale_output(sums[i][j], alpha, beta, output);
            }
        }
    }
}
