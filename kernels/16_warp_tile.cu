// Idea: a level between block and thread. Each warp owns a WM x WN piece of the block's tile,
//       so that its lanes share operands: 8 x 4 lanes with 8 x 8 outputs read 64 + 32 elements
//       for 2048 multiply-adds. With GROUP > 1 there is a level above as well: blocks run in
//       groups of GROUP rows of tiles, so that what is resident at one time covers a compact
//       piece of C and its operands stay in L2.
// Tile: BM x BN x BK; (BM / WM) * (BN / WN) warps; a lane's 8 x 8 outputs are four 4 x 4
//       patches in the four quarters of the warp's piece, which makes every 128-bit shared load
//       free of bank conflicts.
// Budget: 4 * BK * (BM + 4 + BN) bytes of shared memory; 64 accumulators and 16 operands.
// Expect: fewer wavefronts of shared memory than vector_loads, bound by the issue of
//         multiply-adds; GROUP pays where A and B together exceed L2.
// From: articles B and C, S18. Compare with: vector_loads; three_level_tile with warp_tile.
#include "common/vector.cuh"

#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 128
#endif
#ifndef BK
#define BK 16
#endif
#ifndef WM
#define WM 64
#endif
#ifndef WN
#define WN 32
#endif
#ifndef GROUP
#define GROUP 1
#endif

constexpr int LANES_M = WM / 8;
constexpr int LANES_N = WN / 8;
constexpr int WARPS_N = BN / WN;
constexpr int THREADS = 32 * (BM / WM) * (BN / WN);

static_assert(LANES_M * LANES_N == 32, "a warp's piece is 32 lanes of 8 x 8");
static_assert(BM % WM == 0 && BN % WN == 0, "warps fill the tile");
static_assert(BK % 4 == 0, "vectors hold four elements");
static_assert(BM * BK % (4 * THREADS) == 0 && BN * BK % (4 * THREADS) == 0,
              "every thread copies equally many vectors");
static_assert(THREADS <= 1024, "a block has at most 1024 threads");
static_assert(4 * BK * (BM + 4 + BN) <= 48 * 1024, "static shared memory ends at 48 KiB");

// The block's tile in the order of groups: down GROUP rows of tiles, then one column of tiles
// to the right.
__device__ __forceinline__ int2 tile_of_block() {
    const int block = blockIdx.y * gridDim.x + blockIdx.x;
    const int first_row = block / (GROUP * gridDim.x) * GROUP;
    const int within = block % (GROUP * gridDim.x);
    const int rows = min(static_cast<int>(gridDim.y) - first_row, GROUP);
    return make_int2(first_row + within % rows, within / rows);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(int m, int n, int k, float alpha, const float* __restrict__ a, int lda,
         const float* __restrict__ b, int ldb, float beta, float* __restrict__ c, int ldc) {
    __shared__ __align__(16) float a_tile[BK][BM + 4];
    __shared__ __align__(16) float b_tile[BK][BN];
    const int thread = threadIdx.x;
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int2 tile = tile_of_block();
    const int block_row = tile.x * BM;
    const int block_column = tile.y * BN;
    const int lane_row = warp / WARPS_N * WM + lane / LANES_N * 4;
    const int lane_column = warp % WARPS_N * WN + lane % LANES_N * 4;

    float sums[8][8] = {};
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
            float a_part[8];
            float b_part[8];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                unpack4(a_part + 4 * half,
                        *reinterpret_cast<const float4*>(&a_tile[p][lane_row + half * (WM / 2)]));
                unpack4(b_part + 4 * half, *reinterpret_cast<const float4*>(
                                               &b_tile[p][lane_column + half * (WN / 2)]));
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    sums[i][j] = fmaf(a_part[i], b_part[j], sums[i][j]);
                }
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int row = block_row + lane_row + i / 4 * (WM / 2) + i % 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int column = block_column + lane_column + half * (WN / 2);
            store4(c, ldc, row, column, m, n, &sums[i][4 * half], alpha, beta);
        }
    }
}
