// Idea: tensor cores by the instructions beneath WMMA: ldmatrix gives each lane its part of a
//       fragment in one go, mma.sync multiplies 16 x 8 x 16, and since the lanes' places are
//       documented the sums need no detour.
// Tile: BM x BN x BK, warps of WM x WN; FP16 inputs, FP32 sums.
// Budget: 2 * (BM * (BK + 8) + BK * (BN + 8)) bytes of shared memory; WM * WN / 32
//         accumulators.
// Expect: several times wmma_fp16: 128-bit copies and larger pieces for each warp. Still one
//         buffer, so the tensor cores wait while tiles are copied.
// From: article B, S19. Compare with: wmma_fp16. Needs sm_80.
#include <cuda_fp16.h>

#include "common/epilogue.cuh"
#include "common/vector_half.cuh"

#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 128
#endif
#ifndef BK
#define BK 32
#endif
#ifndef WM
#define WM 64
#endif
#ifndef WN
#define WN 32
#endif

constexpr int WARPS_N = BN / WN;
constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
constexpr int ROWS = WM / 16;  // of 16 x 8 sums in a warp's piece
constexpr int COLUMNS = WN / 8;

static_assert(BM % WM == 0 && BN % WN == 0, "warps fill the tile");
static_assert(WM % 16 == 0 && WN % 16 == 0 && BK % 16 == 0,
              "mma is 16 x 8 x 16, and B comes in pairs of 8");
static_assert(BM * BK % (8 * THREADS) == 0 && BN * BK % (8 * THREADS) == 0,
              "every thread copies equally many vectors");
static_assert(THREADS <= 1024, "a block has at most 1024 threads");
static_assert(2 * (BM * (BK + 8) + BK * (BN + 8)) <= 48 * 1024,
              "static shared memory ends at 48 KiB");

// Four 8 x 8 matrices: lanes 0-7 give the rows of the first, 8-15 of the second and so on.
__device__ __forceinline__ void ldmatrix(unsigned (&to)[4], const half* row) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// The same with each matrix transposed: B lies row by row, and mma wants it column by column.
__device__ __forceinline__ void ldmatrix_transposed(unsigned (&to)[4], const half* row) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void mma(float (&sums)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(int m, int n, int k, float alpha, const half* __restrict__ a, int lda,
         const half* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    // Rows of 80 and 272 bytes: the eight rows of a matrix that ldmatrix reads lie in different
    // banks.
    __shared__ __align__(16) half a_tile[BM][BK + 8];
    __shared__ __align__(16) half b_tile[BK][BN + 8];
    const int thread = threadIdx.x;
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int warp_row = warp / WARPS_N * WM;
    const int warp_column = warp % WARPS_N * WN;
    const int block_row = blockIdx.y * BM;
    const int block_column = blockIdx.x * BN;

    float sums[ROWS][COLUMNS][4] = {};
    for (int first = 0; first < k; first += BK) {
#pragma unroll
        for (int element = 8 * thread; element < BM * BK; element += 8 * THREADS) {
            const int row = element / BK;
            const int p = element % BK;
            *reinterpret_cast<uint4*>(&a_tile[row][p]) =
                load8_or_zero(a, lda, block_row + row, first + p, m, k);
        }
#pragma unroll
        for (int element = 8 * thread; element < BK * BN; element += 8 * THREADS) {
            const int p = element / BN;
            const int column = element % BN;
            *reinterpret_cast<uint4*>(&b_tile[p][column]) =
                load8_or_zero(b, ldb, first + p, block_column + column, k, n);
        }
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; p += 16) {
            unsigned a_part[ROWS][4];
            unsigned b_part[COLUMNS / 2][4];
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                ldmatrix(a_part[i], &a_tile[warp_row + 16 * i + lane % 16][p + lane / 16 * 8]);
            }
#pragma unroll
            for (int j = 0; j < COLUMNS / 2; ++j) {
                ldmatrix_transposed(b_part[j],
                                    &b_tile[p + lane % 16][warp_column + 16 * j + lane / 16 * 8]);
            }
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j) {
                    mma(sums[i][j], a_part[i], b_part[j / 2][j % 2 * 2],
                        b_part[j / 2][j % 2 * 2 + 1]);
                }
            }
        }
        __syncthreads();
    }

    // Of a 16 x 8 piece a lane holds two neighbours in row lane / 4 and two in the row eight
    // further down.
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                const int row = block_row + warp_row + 16 * i + lane / 4 + part / 2 * 8;
                const int column = block_column + warp_column + 8 * j + lane % 4 * 2 + part % 2;
                if (row < m && column < n) {
                    float* output = c + static_cast<size_t>(row) * ldc + column;
                    *output = scale_output(sums[i][j][part], alpha, beta, output);
                }
            }
        }
    }
}
