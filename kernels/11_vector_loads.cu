// Idea: the register tile with 128-bit accesses: four elements for each load from global
//       memory, each load from shared memory and each store. The tile of A is transposed on its
//       way, so that a thread's rows are neighbours.
// Tile: BM x BN x BK, a patch of TM x TN for each of (BM / TM) * (BN / TN) threads.
// Budget: 4 * BK * (BM + 4 + BN) bytes of shared memory; TM * TN accumulators and TM + TN
//         operands.
// Expect: a quarter of register8x8's load instructions. Rows whose length or leading dimension
//         is no multiple of 4 take single loads: right for every shape, but slower; see
//         vector_loads_only for what that saves.
// From: article A, S13. Compare with: register8x8.
#include "common/vector.cuh"

#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 128
#endif
#ifndef BK
#define BK 8
#endif
#ifndef TM
#define TM 8
#endif
#ifndef TN
#define TN 8
#endif

constexpr int THREADS_X = BN / TN;
constexpr int THREADS_Y = BM / TM;
constexpr int THREADS = THREADS_X * THREADS_Y;

static_assert(TM % 4 == 0 && TN % 4 == 0 && BK % 4 == 0, "vectors hold four elements");
static_assert(BM % TM == 0 && BN % TN == 0, "patches fill the tile");
static_assert(BM * BK % (4 * THREADS) == 0 && BN * BK % (4 * THREADS) == 0,
              "every thread copies equally many vectors");
static_assert(THREADS <= 1024, "a block has at most 1024 threads");
static_assert(4 * BK * (BM + 4 + BN) <= 48 * 1024, "static shared memory ends at 48 KiB");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    // Four columns of padding keep rows aligned and put the two halves of a transposed store in
    // different banks.
    __shared__ __align__(16) float a_tile[BK][BM + 4];
    __shared__ __align__(16) float b_tile[BK][BN];
    const int thread = threadIdx.x;
    const int block_row = blockIdx.y * BM;
    const int block_column = blockIdx.x * BN;
    const int patch_row = thread / THREADS_X * TM;
    const int patch_column = thread % THREADS_X * TN;

    float sums[TM][TN] = {};
    for (int first = 0; first < k; first += BK) {
#pragma unroll
        for (int element = 4 * thread; element < BM * BK; element += 4 * THREADS) {
            const int row = element / BK;
            const int p = element % BK;
            const float4 four = load4_or_zero(a, lda, block_row + row, first + p, m, k);
            a_tile[p + 0][row] = four.x;
            a_tile[p + 1][row] = four.y;
            a_tile[p + 2][row] = four.z;
            a_tile[p + 3][row] = four.w;
        }
#pragma unroll
        for (int element = 4 * thread; element < BK * BN; element += 4 * THREADS) {
            const int p = element / BN;
            const int column = element % BN;
            *reinterpret_cast<float4*>(&b_tile[p][column]) =
                load4_or_zero(b, ldb, first + p, block_column + column, k, n);
        }
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; ++p) {
            float a_part[TM];
            float b_part[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4) {
                unpack4(a_part + i, *reinterpret_cast<const float4*>(&a_tile[p][patch_row + i]));
            }
#pragma unroll
            for (int j = 0; j < TN; j += 4) {
                unpack4(b_part + j,
                        *reinterpret_cast<const float4*>(&b_tile[p][patch_column + j]));
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
        for (int j = 0; j < TN; j += 4) {
            store4(c, ldc, block_row + patch_row + i, block_column + patch_column + j, m, n,
                   &sums[i][j], alpha, beta);
        }
    }
}
