// Idea: a block computes a BM x BN piece of D = alpha A B^T + beta C in steps of BK along k:
//       every element that it loads serves a whole row or column of the piece. The counterpart
//       of one block for each output.
// Tile: BM x BN x BK, a patch of TM x TN for each of (BM / TM) * (BN / TN) threads.
// Budget: 4 * (BK + 1) * (BM + BN) bytes of shared memory; TM * TN accumulators; 2 barriers for
//         each tile of k.
// Expect: m n k (1/BM + 1/BN) loads leave L1 instead of 2 m n k. Small tiles lose reuse, large
//         ones resident blocks.
// From: article C, S17. B is stored n x k here, so both tiles are read along k; the column of
//       padding keeps the walk down b_tile, whose lanes are BK apart, free of bank conflicts.
//       Compare with: block_per_output.
#include "common/epilogue.cuh"
#include "common/tile.cuh"

#ifndef BM
#define BM 32
#endif
#ifndef BN
#define BN 32
#endif
#ifndef BK
#define BK 16
#endif
#ifndef TM
#define TM 2
#endif
#ifndef TN
#define TN 2
#endif

constexpr int THREADS_X = BN / TN;
constexpr int THREADS_Y = BM / TM;
constexpr int THREADS = THREADS_X * THREADS_Y;

static_assert(BM % TM == 0 && BN % TN == 0, "patches fill the tile");
static_assert(THREADS <= 1024, "a block has at most 1024 threads");
static_assert(4 * (BK + 1) * (BM + BN) <= 48 * 1024, "static shared memory ends at 48 KiB");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, const float* __restrict__ c, int ldc,
         float* __restrict__ d, int ldd) {
    __shared__ float a_tile[BM][BK + 1];
    __shared__ float b_tile[BN][BK + 1];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int thread = y * THREADS_X + x;
    const int block_row = blockIdx.y * BM;
    const int block_column = blockIdx.x * BN;

    float sums[TM][TN] = {};
    for (int first = 0; first < k; first += BK) {
        copy_tile<BK, THREADS>(a_tile, thread, a, lda, block_row, first, m, k);
        copy_tile<BK, THREADS>(b_tile, thread, b, ldb, block_column, first, n, k);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; ++p) {
            // A thread's outputs lie THREADS_Y rows and THREADS_X columns apart: neighbours
            // stay neighbours.
            float a_part[TM];
            float b_part[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_part[i] = a_tile[y + i * THREADS_Y][p];
            }
#pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_part[j] = b_tile[x + j * THREADS_X][p];
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
            const int row = block_row + y + i * THREADS_Y;
            const int column = block_column + x + j * THREADS_X;
            if (row < m && column < n) {
                d[static_cast<size_t>(row) * ldd + column] = scale_output(
                    sums[i][j], alpha, beta, c + static_cast<size_t>(row) * ldc + column);
            }
        }
    }
}
