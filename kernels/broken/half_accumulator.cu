// Mistake: the sums are kept in FP16, which WMMA offers too.
// Symptom: 11 bits for a sum of hundreds of products: integers over 2048 are rounded, and over
//          65504 it is infinity. The entry promises FP32 accumulation.
// Right: kernels/50_wmma.cu.
#include <mma.h>

#include "../common/epilogue.cuh"
#include "../common/tile.cuh"

constexpr int BM = 64;
constexpr int BN = 64;
constexpr int BK = 32;

namespace wmma = nvcuda::wmma;

constexpr int THREADS = 128;
constexpr int WM = BM / 2;
constexpr int WN = BN / 2;
constexpr int ROWS = WM / 16;  // of fragments in a warp's piece
constexpr int COLUMNS = WN / 16;

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(int m, int n, int k, float alpha, const half* __restrict__ a, int lda,
         const half* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    // WMMA wants leading dimensions in steps of 16 bytes; 8 halves of padding move each row to
    // other banks.
    __shared__ __align__(32) half a_tile[BM][BK + 8];
    __shared__ __align__(32) half b_tile[BK][BN + 8];
    __shared__ __align__(32) half c_tile[BM][BN + 8];
    const int thread = threadIdx.x;
    const int warp_row = thread / 64 * WM;
    const int warp_column = thread / 32 % 2 * WN;
    const int block_row = blockIdx.y * BM;
    const int block_column = blockIdx.x * BN;

    wmma::fragment<wmma::accumulator, 16, 16, 16, half> sums[ROWS][COLUMNS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            wmma::fill_fragment(sums[i][j], half(0.0f));
        }
    }

    for (int first = 0; first < k; first += BK) {
        copy_tile<BK, THREADS>(a_tile, thread, a, lda, block_row, first, m, k);
        copy_tile<BN, THREADS>(b_tile, thread, b, ldb, first, block_column, k, n);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; p += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a_part[ROWS];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b_part[COLUMNS];
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                wmma::load_matrix_sync(a_part[i], &a_tile[warp_row + 16 * i][p], BK + 8);
            }
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                wmma::load_matrix_sync(b_part[j], &b_tile[p][warp_column + 16 * j], BN + 8);
            }
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j) {
                    wmma::mma_sync(sums[i][j], a_part[i], b_part[j], sums[i][j]);
                }
            }
        }
        __syncthreads();
    }

    // Which lane holds which element of a fragment is WMMA's secret, so the sums go through
    // shared memory.
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            wmma::store_matrix_sync(&c_tile[warp_row + 16 * i][warp_column + 16 * j], sums[i][j],
                                    BN + 8, wmma::mem_row_major);
        }
    }
    __syncthreads();
    for (int element = thread; element < BM * BN; element += THREADS) {
        const int row = block_row + element / BN;
        const int column = block_column + element % BN;
        if (row < m && column < n) {
            float* output = c + static_cast<size_t>(row) * ldc + column;
            *output = scale_output(__half2float(c_tile[element / BN][element % BN]), alpha, beta,
                                   output);
        }
    }
}
