// Four floats at a time: always, where the caller knows that K, N and the leading dimensions
// are multiples of 4 (load4_aligned, store4_aligned), or where address and edge allow it
// (load4_or_zero, store4).
#pragma once

#include "epilogue.cuh"

__device__ __forceinline__ bool aligned16(const void* address) {
    return reinterpret_cast<size_t>(address) % 16 == 0;
}

// Four elements of a row from (row, column) on, or zeros outside the matrix.
__device__ __forceinline__ float4 load4_aligned(const float* matrix, int pitch, int row,
                                                int column, int rows, int columns) {
    if (row < rows && column < columns) {
        return *reinterpret_cast<const float4*>(matrix + static_cast<size_t>(row) * pitch +
                                                column);
    }
    return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

// The same for any matrix. A leading dimension that is no multiple of 4 leaves up to three rows
// in four unaligned: those take single loads, as do a row's last columns.
__device__ __forceinline__ float4 load4_or_zero(const float* matrix, int pitch, int row,
                                                int column, int rows, int columns) {
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row < rows && column < columns) {
        const float* first = matrix + static_cast<size_t>(row) * pitch + column;
        if (column + 3 < columns && aligned16(first)) {
            four = *reinterpret_cast<const float4*>(first);
        } else {
            four.x = first[0];
            four.y = column + 1 < columns ? first[1] : 0.0f;
            four.z = column + 2 < columns ? first[2] : 0.0f;
            four.w = column + 3 < columns ? first[3] : 0.0f;
        }
    }
    return four;
}

__device__ __forceinline__ void store4_at(float* first, const float* sums, float alpha,
                                          float beta) {
    float4 old = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (beta != 0.0f) {
        old = *reinterpret_cast<const float4*>(first);
    }
    *reinterpret_cast<float4*>(first) = make_float4(
        scale_output(sums[0], alpha, beta, &old.x), scale_output(sums[1], alpha, beta, &old.y),
        scale_output(sums[2], alpha, beta, &old.z), scale_output(sums[3], alpha, beta, &old.w));
}

// Finishes four neighbouring sums and stores them unless they lie outside the matrix.
__device__ __forceinline__ void store4_aligned(float* c, int pitch, int row, int column, int rows,
                                               int columns, const float* sums, float alpha,
                                               float beta) {
    if (row < rows && column < columns) {
        store4_at(c + static_cast<size_t>(row) * pitch + column, sums, alpha, beta);
    }
}

// The same for any matrix.
__device__ __forceinline__ void store4(float* c, int pitch, int row, int column, int rows,
                                       int columns, const float* sums, float alpha, float beta) {
    if (row >= rows || column >= columns) {
        return;
    }
    float* first = c + static_cast<size_t>(row) * pitch + column;
    if (column + 3 < columns && aligned16(first)) {
        store4_at(first, sums, alpha, beta);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        if (column + j < columns) {
            first[j] = scale_output(sums[j], alpha, beta, first + j);
        }
    }
}

// Spreads a vector into four registers of an array.
__device__ __forceinline__ void unpack4(float* to, float4 four) {
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
}
