// Idea: every block does multiply-adds as fast as it can and divides their number by its cycles.
//       Added over the blocks this is the device's rate in multiply-adds for each cycle.
// Launch: one block of 1024 threads for each SM, as in 91_bandwidth.cu. Each thread has 8 sums
//         that don't wait for each other.
// Result: rate[block] in multiply-adds for each cycle.
// From: article A, claim A4: over the rate of 91_bandwidth.cu this is the ridge of the roofline,
//       and it needs no clock rate.

#ifndef ROUNDS
#define ROUNDS 4096
#endif

constexpr int THREADS = 1024;
constexpr int SUMS = 8;

extern "C" __global__ void __launch_bounds__(THREADS)
    multiply_add(float* rate) {
    const float factor = 1.0f + 1.0e-7f * threadIdx.x;
    float sums[SUMS];
    for (int i = 0; i < SUMS; ++i) {
        sums[i] = static_cast<float>(i);
    }
    __syncthreads();
    const long long start = clock64();
#pragma unroll 8
    for (int round = 0; round < ROUNDS; ++round) {
#pragma unroll
        for (int i = 0; i < SUMS; ++i) {
            sums[i] = fmaf(sums[i], factor, 1.0f);
        }
    }
    float total = 0.0f;
    for (int i = 0; i < SUMS; ++i) {
        total += sums[i];
    }
    // The sums are positive, so this never holds; it makes them count.
    if (total < 0.0f) {
        *rate = total;
    }
    __syncthreads();
    const long long cycles = clock64() - start;
    if (threadIdx.x == 0) {
        rate[blockIdx.x] = static_cast<float>(SUMS) * ROUNDS * THREADS / cycles;
    }
}
