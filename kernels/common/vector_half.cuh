// Eight FP16 numbers at a time, as vector.cuh does with four of FP32.
#pragma once

#include <cuda_fp16.h>

// Eight elements of a row from (row, column) on, zeros past the matrix's edge. Rows whose
// address is no multiple of 16 bytes take single loads, as do a row's last columns.
__device__ __forceinline__ uint4 load8_or_zero(const half* matrix, int pitch, int row, int column,
                                               int rows, int columns) {
    uint4 eight = make_uint4(0, 0, 0, 0);
    if (row < rows && column < columns) {
        const half* first = matrix + static_cast<size_t>(row) * pitch + column;
        if (column + 7 < columns && reinterpret_cast<size_t>(first) % 16 == 0) {
            eight = *reinterpret_cast<const uint4*>(first);
        } else {
            unsigned pairs[4];
#pragma unroll
            for (int pair = 0; pair < 4; ++pair) {
                const int at = 2 * pair;
                const half low = column + at < columns ? first[at] : half(0.0f);
                const half high = column + at + 1 < columns ? first[at + 1] : half(0.0f);
                pairs[pair] = __half_as_ushort(low) | __half_as_ushort(high) << 16;
            }
            eight = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
    }
    return eight;
}
