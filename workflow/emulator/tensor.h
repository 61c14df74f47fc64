// What the matrix instructions have in common: element formats, and the product itself. Products and their
// sum are made in float64 and rounded once, which is nearer to the exact value than tensor cores are: results
// are to be compared within a bound, never bit for bit with a device.
#pragma once

#include <cstdint>

#include "half.h"
#include "types.h"

namespace ptx {

// The value of an element of an A or B matrix from its bits.
inline float matrix_element(Type type, uint32_t bits) {
    switch (type) {
        case Type::F16:
            return half_to_float(static_cast<uint16_t>(bits));
        case Type::BF16:
            return bfloat_to_float(static_cast<uint16_t>(bits));
        default:
            return bits_as<float>(bits & ~0x1fffu);  // TF32: the low bits aren't looked at
    }
}

template <int kRows, int kColumns, int kDepth>
struct MatrixProduct {
    float a[kRows][kDepth];
    float b[kDepth][kColumns];
    double sum[kRows][kColumns];  // the accumulator before, the result after

    void multiply() {
        for (int row = 0; row < kRows; ++row)
            for (int inner = 0; inner < kDepth; ++inner) {
                const double factor = a[row][inner];
                for (int column = 0; column < kColumns; ++column)
                    sum[row][column] += factor * static_cast<double>(b[inner][column]);
            }
    }
};

// Accumulators are float32, one a register, or float16, two a register.
inline uint32_t rounded_accumulator(Type type, double value) {
    if (type == Type::F32) return bits_as<uint32_t>(static_cast<float>(value));
    return float_to_half(round_to_odd(value));
}

inline double accumulator_value(Type type, uint32_t bits) {
    return type == Type::F32 ? bits_as<float>(bits) : half_to_float(static_cast<uint16_t>(bits));
}

}  // namespace ptx
