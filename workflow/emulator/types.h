// The scalar types of PTX and what the emulator needs to know of each.
#pragma once

#include <cstdint>
#include <string_view>

namespace ptx {

enum class Type : uint8_t {
    None,
    Pred,
    B8,
    U8,
    S8,
    B16,
    U16,
    S16,
    F16,
    BF16,
    B32,
    U32,
    S32,
    F32,
    F16x2,
    BF16x2,
    TF32,
    B64,
    U64,
    S64,
    F64,
};

// Type::None when the text names no type.
Type parse_type(std::string_view text);

// Bytes that a value takes in memory; 0 for predicates, which never go there.
uint32_t bytes_of(Type type);

inline bool is_signed(Type type) {
    return type == Type::S8 || type == Type::S16 || type == Type::S32 || type == Type::S64;
}

inline bool is_unsigned(Type type) {
    return type == Type::U8 || type == Type::U16 || type == Type::U32 || type == Type::U64;
}

inline bool is_bits(Type type) {
    return type == Type::B8 || type == Type::B16 || type == Type::B32 || type == Type::B64;
}

inline bool is_integer(Type type) {
    return is_signed(type) || is_unsigned(type);
}

inline bool is_half(Type type) {
    return type == Type::F16 || type == Type::BF16 || type == Type::F16x2 || type == Type::BF16x2;
}

inline bool is_float(Type type) {
    return type == Type::F32 || type == Type::F64;
}

}  // namespace ptx
