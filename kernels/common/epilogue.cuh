// What every kernel does with a finished sum.
#pragma once

// alpha * sum + beta * *c. BLAS rule: beta = 0 never reads C, which may then hold anything, NaN
// too.
__device__ __forceinline__ float scale_output(float sum, float alpha, float beta,
                                              const float* c) {
    const float product = alpha * sum;
    if (beta == 0.0f) {
        return product;
    }
    return fmaf(beta, *c, product);
}
