// cvt: between integers, floats and halves, with every rounding and saturation that PTX has for them.
#include <cmath>
#include <limits>
#include <type_traits>

#include "../decoder.h"
#include "../half.h"
#include "../lanes.h"

namespace ptx {

namespace {

enum Rounding : uint8_t { kNearest, kZero, kDown, kUp, kNearestAway };

enum Flag : uint8_t { kSaturate = 1, kFlush = 2, kRelu = 4, kToInteger = 8 };

// A subnormal float32 becomes a zero of its sign.
double flushed(double value) {
    return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0, value) : value;
}

double to_integral(double value, uint8_t rounding) {
    switch (rounding) {
        case kZero: return std::trunc(value);
        case kDown: return std::floor(value);
        case kUp: return std::ceil(value);
        default: return std::nearbyint(value);  // ties to even: the rounding mode is never left changed
    }
}

// ---- integer to integer ----

template <class Source, class Target>
void widen_or_narrow(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<Source>* a = warp.lanes<Stored<Source>>(instruction.a);
    write_lanes<Target>(warp, instruction.destination, active,
                        [=](int lane) { return static_cast<Target>(Slot<Source>::load(a[lane])); });
}

template <class Target, class Source>
Target saturated(Source value) {
    using Limits = std::numeric_limits<Target>;
    const __int128 wide = value;
    if (wide < static_cast<__int128>(Limits::min())) return Limits::min();
    if (wide > static_cast<__int128>(Limits::max())) return Limits::max();
    return static_cast<Target>(value);
}

template <class Source, class Target>
void saturate_integer(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<Source>* a = warp.lanes<Stored<Source>>(instruction.a);
    write_lanes<Target>(warp, instruction.destination, active,
                        [=](int lane) { return saturated<Target>(Slot<Source>::load(a[lane])); });
}

template <class Source>
Handler integer_to_integer(Type target, bool saturates) {
    switch (target) {
        case Type::S8: return saturates ? saturate_integer<Source, int8_t> : widen_or_narrow<Source, int8_t>;
        case Type::U8: return saturates ? saturate_integer<Source, uint8_t> : widen_or_narrow<Source, uint8_t>;
        case Type::S16: return saturates ? saturate_integer<Source, int16_t> : widen_or_narrow<Source, int16_t>;
        case Type::U16: return saturates ? saturate_integer<Source, uint16_t> : widen_or_narrow<Source, uint16_t>;
        case Type::S32: return saturates ? saturate_integer<Source, int32_t> : widen_or_narrow<Source, int32_t>;
        case Type::U32: return saturates ? saturate_integer<Source, uint32_t> : widen_or_narrow<Source, uint32_t>;
        case Type::S64: return saturates ? saturate_integer<Source, int64_t> : widen_or_narrow<Source, int64_t>;
        case Type::U64: return saturates ? saturate_integer<Source, uint64_t> : widen_or_narrow<Source, uint64_t>;
        default: return nullptr;
    }
}

// ---- from a number ----

// How each format lies in a register, and its value as float64, which holds all of them exactly.
struct FromFloat {
    using Stored = float;
    static double load(float value) { return value; }
};

struct FromDouble {
    using Stored = double;
    static double load(double value) { return value; }
};

struct FromHalf {
    using Stored = uint32_t;
    static double load(uint32_t bits) { return half_to_float(static_cast<uint16_t>(bits)); }
};

struct FromBfloat {
    using Stored = uint32_t;
    static double load(uint32_t bits) { return bfloat_to_float(static_cast<uint16_t>(bits)); }
};

// Past the range the nearest limit; a NaN becomes 0, or the top bit alone where either side has 64 bits.
template <class Target, bool kWide>
Target integer_of(double integral) {
    using Limits = std::numeric_limits<Target>;
    if (std::isnan(integral))
        return kWide ? static_cast<Target>(std::make_unsigned_t<Target>{1} << (8 * sizeof(Target) - 1)) : Target{0};
    // The limits as float64: the upper one may round up, so that only values below it convert.
    if (integral <= static_cast<double>(Limits::min())) return Limits::min();
    if (integral >= static_cast<double>(Limits::max())) return Limits::max();
    return static_cast<Target>(integral);
}

template <class From, class Target>
void to_integer(Warp& warp, const Instruction& instruction, uint32_t active) {
    constexpr bool kWide = sizeof(Target) == 8 || std::is_same<From, FromDouble>::value;
    const auto* a = warp.lanes<typename From::Stored>(instruction.a);
    const uint8_t rounding = instruction.option[0];
    const bool flushes = (instruction.option[1] & kFlush) != 0;
    write_lanes<Target>(warp, instruction.destination, active, [=](int lane) {
        double value = From::load(a[lane]);
        if (flushes) value = flushed(value);
        return integer_of<Target, kWide>(to_integral(value, rounding));
    });
}

template <class From>
Handler to_integer_handler(Type target) {
    switch (target) {
        case Type::S8: return to_integer<From, int8_t>;
        case Type::U8: return to_integer<From, uint8_t>;
        case Type::S16: return to_integer<From, int16_t>;
        case Type::U16: return to_integer<From, uint16_t>;
        case Type::S32: return to_integer<From, int32_t>;
        case Type::U32: return to_integer<From, uint32_t>;
        case Type::S64: return to_integer<From, int64_t>;
        case Type::U64: return to_integer<From, uint64_t>;
        default: return nullptr;
    }
}

// ---- to a number ----

// Whether a neighbour of the nearest value is wanted, and on which side: -1, 0 or 1.
int correction(double nearest, double exact, uint8_t rounding) {
    if (std::isnan(exact) || nearest == exact) return 0;
    const bool above = nearest > exact;
    switch (rounding) {
        case kZero: return exact > 0 ? (above ? -1 : 0) : (above ? 0 : 1);
        case kDown: return above ? -1 : 0;
        case kUp: return above ? 0 : 1;
        default: return 0;
    }
}

struct ToDouble {
    using Stored = double;
    static double store(double value, uint8_t) { return value; }
};

struct ToFloat {
    using Stored = float;
    static float store(double value, uint8_t rounding) {
        const float nearest = static_cast<float>(value);
        const int step = correction(nearest, value, rounding);
        if (step == 0) return nearest;
        return std::nextafter(nearest, step > 0 ? INFINITY : -INFINITY);
    }
};

template <class Format>
struct ToSixteenBits {
    using Stored = uint32_t;
    static uint32_t store(double value, uint8_t rounding) {
        const uint16_t nearest = Format::narrow(round_to_odd(value));
        const int step = correction(Format::widen(nearest), value, rounding);
        if (step == 0) return nearest;
        const bool away = (step > 0) == ((nearest & 0x8000) == 0);
        // From zero the next value may be of the other sign, which its bits can't reach by counting.
        if (!away && (nearest & 0x7fff) == 0) return step > 0 ? 0x0001 : 0x8001;
        return static_cast<uint16_t>(nearest + (away ? 1 : -1));
    }
};

struct ToTf32 {
    using Stored = uint32_t;
    static uint32_t store(double value, uint8_t rounding) {
        const uint32_t bits = bits_as<uint32_t>(static_cast<float>(value));
        if (std::isnan(value)) return 0x7fffffffu;
        if (std::isinf(value) || rounding == kZero) return bits & ~0x1fffu;
        const uint32_t half = rounding == kNearestAway ? 0x1000u : 0xfffu + (bits >> 13 & 1u);
        return (bits + half) & ~0x1fffu;
    }
};

double limited(double value, uint8_t flags) {
    if ((flags & kSaturate) != 0) return value > 0 ? (value < 1 ? value : 1) : 0;
    if ((flags & kRelu) != 0 && !(value > 0) && !std::isnan(value)) return 0;
    return value;
}

template <class From, class To>
void to_number(Warp& warp, const Instruction& instruction, uint32_t active) {
    const auto* a = warp.lanes<typename From::Stored>(instruction.a);
    const uint8_t rounding = instruction.option[0];
    const uint8_t flags = instruction.option[1];
    write_lanes<typename To::Stored>(warp, instruction.destination, active, [=](int lane) {
        double value = From::load(a[lane]);
        if ((flags & kFlush) != 0) value = flushed(value);
        if ((flags & kToInteger) != 0) value = to_integral(value, rounding);
        typename To::Stored result = To::store(limited(value, flags), rounding);
        if (std::is_same<To, ToFloat>::value && (flags & kFlush) != 0)
            result = static_cast<typename To::Stored>(flushed(static_cast<double>(result)));
        return result;
    });
}

// The conversions that kernels do by the million, in a form that vectorises.
void half_to_float_lanes(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t* a = warp.lanes<uint32_t>(instruction.a);
    write_lanes<float>(warp, instruction.destination, active,
                       [=](int lane) { return half_to_float(static_cast<uint16_t>(a[lane])); });
}

void float_to_half_lanes(Warp& warp, const Instruction& instruction, uint32_t active) {
    const float* a = warp.lanes<float>(instruction.a);
    write_lanes<uint32_t>(warp, instruction.destination, active,
                          [=](int lane) { return uint32_t{float_to_half(a[lane])}; });
}

template <class From>
Handler to_number_handler(Type target) {
    switch (target) {
        case Type::F16: return to_number<From, ToSixteenBits<Half>>;
        case Type::BF16: return to_number<From, ToSixteenBits<Bfloat>>;
        case Type::F32: return to_number<From, ToFloat>;
        case Type::F64: return to_number<From, ToDouble>;
        case Type::TF32: return to_number<From, ToTf32>;
        default: return nullptr;
    }
}

// ---- integer to number ----

// A 64-bit integer that float64 can't hold is first cut to its top bits, the last of which tells of the rest.
template <class Source>
double exact_or_odd(Source value) {
    if (sizeof(Source) < 8) return static_cast<double>(value);
    const bool negative = value < 0;
    uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    int shift = 0;
    while (magnitude >> 53 != 0) {
        magnitude = magnitude >> 1 | (magnitude & 1);
        ++shift;
    }
    const double scaled = std::ldexp(static_cast<double>(magnitude), shift);
    return negative ? -scaled : scaled;
}

// Only float64 itself feels a rounding of its own.
template <class Source>
double rounded_double(Source value, uint8_t rounding) {
    const double nearest = static_cast<double>(value);
    if (sizeof(Source) < 8 || rounding == kNearest) return nearest;
    const __int128 error = static_cast<__int128>(nearest) - static_cast<__int128>(value);
    const bool towards_zero_is_down = value > 0;
    const bool down = rounding == kDown || (rounding == kZero && towards_zero_is_down);
    if (down) return error > 0 ? std::nextafter(nearest, -INFINITY) : nearest;
    return error < 0 ? std::nextafter(nearest, INFINITY) : nearest;
}

template <class Source, class To>
void from_integer(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<Source>* a = warp.lanes<Stored<Source>>(instruction.a);
    const uint8_t rounding = instruction.option[0];
    write_lanes<typename To::Stored>(warp, instruction.destination, active, [=](int lane) {
        const Source value = Slot<Source>::load(a[lane]);
        if (std::is_same<To, ToDouble>::value)
            return static_cast<typename To::Stored>(rounded_double(value, rounding));
        return static_cast<typename To::Stored>(To::store(exact_or_odd(value), rounding));
    });
}

template <class Source>
void integer_to_float_lanes(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<Source>* a = warp.lanes<Stored<Source>>(instruction.a);
    write_lanes<float>(warp, instruction.destination, active,
                       [=](int lane) { return static_cast<float>(Slot<Source>::load(a[lane])); });
}

template <class Source>
Handler from_integer_handler(Type target, uint8_t rounding) {
    switch (target) {
        case Type::F16: return from_integer<Source, ToSixteenBits<Half>>;
        case Type::BF16: return sizeof(Source) == 8 ? nullptr : from_integer<Source, ToSixteenBits<Bfloat>>;
        case Type::F32: return rounding == kNearest ? integer_to_float_lanes<Source> : from_integer<Source, ToFloat>;
        case Type::F64: return from_integer<Source, ToDouble>;
        default: return nullptr;
    }
}

// ---- two floats packed into one register ----

template <class Format>
void pack_floats(Warp& warp, const Instruction& instruction, uint32_t active) {
    const float* high = warp.lanes<float>(instruction.a);
    const float* low = warp.lanes<float>(instruction.b);
    const uint8_t rounding = instruction.option[0];
    const uint8_t flags = instruction.option[1];
    write_lanes<uint32_t>(warp, instruction.destination, active, [=](int lane) {
        const uint32_t upper = ToSixteenBits<Format>::store(limited(high[lane], flags), rounding);
        const uint32_t lower = ToSixteenBits<Format>::store(limited(low[lane], flags), rounding);
        return upper << 16 | lower;
    });
}

template <template <class> class Choose, class... Arguments>
Handler by_integer_source(Type source, Arguments... arguments) {
    switch (source) {
        case Type::S8: return Choose<int8_t>::handler(arguments...);
        case Type::U8: return Choose<uint8_t>::handler(arguments...);
        case Type::S16: return Choose<int16_t>::handler(arguments...);
        case Type::U16: return Choose<uint16_t>::handler(arguments...);
        case Type::S32: return Choose<int32_t>::handler(arguments...);
        case Type::U32: return Choose<uint32_t>::handler(arguments...);
        case Type::S64: return Choose<int64_t>::handler(arguments...);
        case Type::U64: return Choose<uint64_t>::handler(arguments...);
        default: return nullptr;
    }
}

template <class Source>
struct IntegerToInteger {
    static Handler handler(Type target, bool saturates) { return integer_to_integer<Source>(target, saturates); }
};

template <class Source>
struct IntegerToNumber {
    static Handler handler(Type target, uint8_t rounding) { return from_integer_handler<Source>(target, rounding); }
};

template <class From>
Handler from_number_handler(Type target) {
    return is_integer(target) ? to_integer_handler<From>(target) : to_number_handler<From>(target);
}

void take_rounding(Decoder& decoder, Instruction& instruction) {
    const int to_integer = decoder.take_one_of({"rni", "rzi", "rmi", "rpi"}, -1);
    if (to_integer >= 0) {
        instruction.option[0] = static_cast<uint8_t>(to_integer);
        instruction.option[1] |= kToInteger;
        return;
    }
    instruction.option[0] = static_cast<uint8_t>(decoder.take_one_of({"rn", "rz", "rm", "rp", "rna"}, kNearest));
}

void take_flags(Decoder& decoder, Instruction& instruction) {
    if (decoder.take("sat")) instruction.option[1] |= kSaturate;
    if (decoder.take("ftz")) instruction.option[1] |= kFlush;
    if (decoder.take("relu")) instruction.option[1] |= kRelu;
}

uint8_t slot_bits(Type type) {
    return bytes_of(type) == 8 ? 64 : 32;
}

Handler choose(const Instruction& instruction, Type target, Type source) {
    const bool plain = instruction.option[0] == kNearest && instruction.option[1] == 0;
    if (is_integer(source))
        return is_integer(target)
                   ? by_integer_source<IntegerToInteger>(source, target, (instruction.option[1] & kSaturate) != 0)
                   : by_integer_source<IntegerToNumber>(source, target, instruction.option[0]);
    if (plain && source == Type::F16 && target == Type::F32) return half_to_float_lanes;
    if (plain && source == Type::F32 && target == Type::F16) return float_to_half_lanes;
    switch (source) {
        case Type::F16: return from_number_handler<FromHalf>(target);
        case Type::BF16: return from_number_handler<FromBfloat>(target);
        case Type::F32: return from_number_handler<FromFloat>(target);
        case Type::F64: return from_number_handler<FromDouble>(target);
        default: return nullptr;
    }
}

bool decode_convert(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    Type target = Type::None;
    Type source = Type::None;
    decoder.take_types(target, source);
    take_rounding(decoder, instruction);
    take_flags(decoder, instruction);
    instruction.type = target;
    if (target == Type::F16x2 || target == Type::BF16x2) {
        if (source != Type::F32) decoder.unsupported();
        decoder.binary(source);
        instruction.execute = target == Type::F16x2 ? pack_floats<Half> : pack_floats<Bfloat>;
        return true;
    }
    decoder.unary(source);
    const uint8_t source_bits = decoder.register_bits(decoder.operand(1));
    if (decoder.register_bits(decoder.operand(0)) != slot_bits(target)) decoder.unsupported();
    if (source_bits != 0 && source_bits != slot_bits(source)) decoder.unsupported();
    instruction.execute = choose(instruction, target, source);
    if (instruction.execute == nullptr) decoder.unsupported();
    return true;
}

}  // namespace

void register_convert_operations(OpcodeTable& table) {
    table["cvt"].push_back(decode_convert);
}

}  // namespace ptx
