// Mistake: 128-bit accesses for every shape, though they are only right where K, N and the
//          leading dimensions are multiples of 4.
// Symptom: a misaligned address ends the launch where a leading dimension is no multiple of 4;
//          otherwise the last access of a row reads and writes behind it. Right for all the
//          usual test sizes.
// Right: kernels/12_vector_loads_only.cu.
#include "../common/vector.cuh"

constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 8;
constexpr int TM = 8;
constexpr int TN = 8;

constexpr int THREADS_X = BN / TN;
constexpr int THREADS_Y = BM / TM;
constexpr int THREADS = THREADS_X * THREADS_Y;

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
            const float4 four = load4_aligned(a, lda, block_row + row, first + p, m, k);
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
                load4_aligned(b, ldb, first + p, block_column + column, k, n);
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
            store4_aligned(c, ldc, block_row + patch_row + i, block_column + patch_column + j, m,
                           n, &sums[i][j], alpha, beta);
        }
    }
}
