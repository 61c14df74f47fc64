// Float16 and bfloat16 arithmetic, one value or two packed in a register. A sum rounds to float32 first,
// which never shows; a fused multiply-add takes care of the few values where rounding twice would.
#include "../half.h"

#include "../decoder.h"
#include "../lanes.h"

namespace ptx {

namespace {

struct Add {
    static float apply(float a, float b) { return a + b; }
};

struct Subtract {
    static float apply(float a, float b) { return a - b; }
};

// The product is exact in float64 alone: that of two bfloat16 may be a subnormal float32.
struct Multiply {
    static float apply(float a, float b) {
        return round_to_odd(static_cast<double>(a) * static_cast<double>(b));
    }
};

struct Minimum {
    static float apply(float a, float b) {
        const float ordered = a < b || (a == b && std::signbit(a)) ? a : b;
        return std::isnan(a) ? b : std::isnan(b) ? a : ordered;
    }
};

struct Maximum {
    static float apply(float a, float b) {
        const float ordered = a > b || (a == b && !std::signbit(a)) ? a : b;
        return std::isnan(a) ? b : std::isnan(b) ? a : ordered;
    }
};

template <class Operation>
struct PropagatingNan {
    static float apply(float a, float b) {
        return std::isnan(a) || std::isnan(b) ? NAN : Operation::apply(a, b);
    }
};

template <class Format, class Operation>
uint16_t apply_binary(uint32_t a, uint32_t b) {
    return Format::narrow(
        Operation::apply(Format::widen(static_cast<uint16_t>(a)), Format::widen(static_cast<uint16_t>(b))));
}

template <class Format>
uint16_t apply_fma(uint32_t a_bits, uint32_t b_bits, uint32_t c_bits, bool relu) {
    const float a = Format::widen(static_cast<uint16_t>(a_bits));
    const float b = Format::widen(static_cast<uint16_t>(b_bits));
    const float c = Format::widen(static_cast<uint16_t>(c_bits));
    float result = std::fma(a, b, c);
    if (Format::halfway(result)) result = fma_to_odd(a, b, c);
    if (relu && result < 0) result = 0;
    return Format::narrow(result);
}

template <class Format, class Operation, bool kPacked>
void half_binary(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t* a = warp.lanes<uint32_t>(instruction.a);
    const uint32_t* b = warp.lanes<uint32_t>(instruction.b);
    write_lanes<uint32_t>(warp, instruction.destination, active, [=](int lane) -> uint32_t {
        const uint32_t low = apply_binary<Format, Operation>(a[lane], b[lane]);
        if (!kPacked) return low;
        return low | uint32_t{apply_binary<Format, Operation>(a[lane] >> 16, b[lane] >> 16)} << 16;
    });
}

template <class Format, bool kPacked>
void half_fma(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t* a = warp.lanes<uint32_t>(instruction.a);
    const uint32_t* b = warp.lanes<uint32_t>(instruction.b);
    const uint32_t* c = warp.lanes<uint32_t>(instruction.c);
    const bool relu = instruction.option[0] != 0;
    write_lanes<uint32_t>(warp, instruction.destination, active, [=](int lane) -> uint32_t {
        const uint32_t low = apply_fma<Format>(a[lane], b[lane], c[lane], relu);
        if (!kPacked) return low;
        return low | uint32_t{apply_fma<Format>(a[lane] >> 16, b[lane] >> 16, c[lane] >> 16, relu)} << 16;
    });
}

// neg and abs change signs only, in one half or both.
void change_signs(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t* a = warp.lanes<uint32_t>(instruction.a);
    const uint32_t flipped = instruction.target;
    const uint32_t cleared = static_cast<uint32_t>(instruction.displacement);
    write_lanes<uint32_t>(warp, instruction.destination, active,
                          [=](int lane) { return (a[lane] ^ flipped) & ~cleared; });
}

template <class Operation>
Handler binary_handler(Type type) {
    switch (type) {
        case Type::F16:
            return half_binary<Half, Operation, false>;
        case Type::F16x2:
            return half_binary<Half, Operation, true>;
        case Type::BF16:
            return half_binary<Bfloat, Operation, false>;
        case Type::BF16x2:
            return half_binary<Bfloat, Operation, true>;
        default:
            return nullptr;
    }
}

uint8_t lanes_of(Type type) {
    return type == Type::F16x2 || type == Type::BF16x2 ? 2 : 1;
}

template <class Operation>
bool decode_arithmetic(Decoder& decoder) {
    const Type type = decoder.last_type();
    if (!is_half(type)) return false;
    decoder.take_type();
    decoder.take("rn");  // .ftz and .sat are left over, hence refused
    decoder.binary(type);
    decoder.note().flops = lanes_of(type);
    decoder.instruction().execute = binary_handler<Operation>(type);
    return true;
}

template <class Operation>
bool decode_extreme(Decoder& decoder) {
    const Type type = decoder.last_type();
    if (!is_half(type)) return false;
    decoder.take_type();
    decoder.binary(type);
    decoder.instruction().execute = decoder.take("NaN") ? binary_handler<PropagatingNan<Operation>>(type)
                                                        : binary_handler<Operation>(type);
    return true;
}

bool decode_fma(Decoder& decoder) {
    const Type type = decoder.last_type();
    if (!is_half(type)) return false;
    decoder.take_type();
    decoder.take("rn");
    decoder.instruction().option[0] = decoder.take("relu");
    decoder.ternary(type);
    decoder.note().flops = static_cast<uint8_t>(2 * lanes_of(type));
    switch (type) {
        case Type::F16:
            decoder.instruction().execute = half_fma<Half, false>;
            break;
        case Type::F16x2:
            decoder.instruction().execute = half_fma<Half, true>;
            break;
        case Type::BF16:
            decoder.instruction().execute = half_fma<Bfloat, false>;
            break;
        default:
            decoder.instruction().execute = half_fma<Bfloat, true>;
            break;
    }
    return true;
}

bool decode_signs(Decoder& decoder, bool flips) {
    const Type type = decoder.last_type();
    if (!is_half(type)) return false;
    decoder.take_type();
    decoder.unary(type);
    const uint32_t signs = lanes_of(type) == 2 ? 0x80008000u : 0x8000u;
    decoder.instruction().target = flips ? signs : 0;
    decoder.instruction().displacement = flips ? 0 : signs;
    decoder.instruction().execute = change_signs;
    return true;
}

bool decode_negate(Decoder& decoder) {
    return decode_signs(decoder, true);
}

bool decode_absolute(Decoder& decoder) {
    return decode_signs(decoder, false);
}

}  // namespace

void register_half_operations(OpcodeTable& table) {
    table["add"].push_back(decode_arithmetic<Add>);
    table["sub"].push_back(decode_arithmetic<Subtract>);
    table["mul"].push_back(decode_arithmetic<Multiply>);
    table["fma"].push_back(decode_fma);
    table["min"].push_back(decode_extreme<Minimum>);
    table["max"].push_back(decode_extreme<Maximum>);
    table["neg"].push_back(decode_negate);
    table["abs"].push_back(decode_absolute);
}

}  // namespace ptx
