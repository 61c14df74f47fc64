// Float16 and bfloat16 as bits, and their conversions. No intrinsics: the same results everywhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace ptx {

template <class To, class From>
inline To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From), "bits of one size");
    To result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}

inline float half_to_float(uint16_t half) {
    const uint32_t sign = uint32_t{half & 0x8000u} << 16;
    const uint32_t magnitude = uint32_t{half & 0x7fffu} << 13;
    // Read as a float32 the value is too small by 2^112, subnormals included.
    const float scaled = bits_as<float>(magnitude) * 0x1p112f;
    const uint32_t finite = bits_as<uint32_t>(scaled);
    const bool special = (half & 0x7c00u) == 0x7c00u;
    return bits_as<float>(sign | (special ? magnitude | 0x7f800000u : finite));
}

// To nearest, ties to even; a NaN becomes PTX's 0x7fff.
inline uint16_t float_to_half(float value) {
    const uint32_t bits = bits_as<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    // Adding 1/2, whose last bit is worth a subnormal's, makes the addition round where float16 does.
    const uint32_t subnormal = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
    half = magnitude >= 0x47800000u ? 0x7c00u : half;
    half = sign | half;
    return static_cast<uint16_t>(magnitude > 0x7f800000u ? 0x7fffu : half);
}

inline float bfloat_to_float(uint16_t bfloat) {
    return bits_as<float>(uint32_t{bfloat} << 16);
}

inline uint16_t float_to_bfloat(float value) {
    const uint32_t bits = bits_as<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

// The nearest float32 in the direction of zero, with its last bit set when that isn't exact: rounding this to
// at most 22 bits gives what rounding the float64 would.
inline float round_to_odd(double value) {
    float nearest = static_cast<float>(value);
    if (static_cast<double>(nearest) == value || std::isnan(value) || std::isinf(value)) return nearest;
    if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) nearest = std::nextafter(nearest, 0.0f);
    return bits_as<float>(bits_as<uint32_t>(nearest) | 1u);
}

// a * b + c of values of at most 11 bits, ready for the one rounding to their own format.
inline float fma_to_odd(float a, float b, float c) {
    const double product = static_cast<double>(a) * static_cast<double>(b);  // exact
    const double addend = c;
    const double sum = product + addend;
    const double addend_seen = sum - product;
    const double error = (product - (sum - addend_seen)) + (addend - addend_seen);
    if (error == 0 || std::isnan(error) || (bits_as<uint64_t>(sum) & 1u) != 0) return round_to_odd(sum);
    // The exact sum lies between two float64: the odd one of them stands for it.
    const double towards = error > 0 ? INFINITY : -INFINITY;
    return round_to_odd(std::nextafter(sum, towards));
}

struct Half {
    uint16_t bits;
    static float widen(uint16_t bits) { return half_to_float(bits); }
    static uint16_t narrow(float value) { return float_to_half(value); }
    // A float32 that lies halfway between two float16, where rounding twice may go wrong.
    static bool halfway(float value) {
        return (bits_as<uint32_t>(value) & 0xfffu) == 0 || std::fabs(value) < 0x1p-14f;
    }
};

struct Bfloat {
    uint16_t bits;
    static float widen(uint16_t bits) { return bfloat_to_float(bits); }
    static uint16_t narrow(float value) { return float_to_bfloat(value); }
    static bool halfway(float value) {
        return (bits_as<uint32_t>(value) & 0x7fffu) == 0 || std::fabs(value) < 0x1p-126f;
    }
};

}  // namespace ptx
