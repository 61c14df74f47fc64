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
        case kZero:
            return std::trunc(value);
        case kDown:
            return std::floor(value);
        case kUp:
            return std::ceil(value);
        default:
            return std::nearbyint(value);  // ties to even: the rounding mode is never left changed
    }
}

// ---- integer to integer ----

template <class Source, class Target>
void widen_or_narrow(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<Source>* a = warp.lanes<Stored<Source>>(instruction.a);
    write_lanes<Target>(warp, instruction.destination, active,
                        [=](int lane) { return static_cast<Target>(Slot<Source>::load(a[lane])); });
}

// cvt.s64.s16 of a 64-bit register takes its low bits.
template <class Narrow>
void extend_in_place(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint64_t* a = warp.lanes<uint64_t>(instruction.a);
    write_lanes<uint64_t>(warp, instruction.destination, active, [=](int lane) {
        return static_cast<uint64_t>(static_cast<int64_t>(static_cast<Narrow>(a[lane])));
    });
}

Handler extension_in_place(Type source) {
    switch (source) {
        case Type::S8:
            return extend_in_place<int8_t>;
        case Type::U8:
            return extend_in_place<uint8_t>;
        case Type::S16:
            return extend_in_place<int16_t>;
        case Type::U16:
            return extend_in_place<uint16_t>;
        case Type::S32:
            return extend_in_place<int32_t>;
        case Type::U32:
            return extend_in_place<uint32_t>;
        default:
            return nullptr;
    }
}

template <class Source>
Handler integer_to_integer(Type target) {
    switch (target) {
        case Type::S8:
            return widen_or_narrow<Source, int8_t>;
        case Type::U8:
            return widen_or_narrow<Source, uint8_t>;
        case Type::S16:
            return widen_or_narrow<Source, int16_t>;
        case Type::U16:
            return widen_or_narrow<Source, uint16_t>;
        case Type::S32:
            return widen_or_narrow<Source, int32_t>;
        case Type::U32:
            return widen_or_narrow<Source, uint32_t>;
        case Type::S64:
            return widen_or_narrow<Source, int64_t>;
        case Type::U64:
            return widen_or_narrow<Source, uint64_t>;
        default:
            return nullptr;
    }
}

uint32_t bits_of(Type type) {
    return 8 * bytes_of(type);
}

// The least and the largest integer of a type.
__int128 least_of(Type type) {
    return is_signed(type) ? -(static_cast<__int128>(1) << (bits_of(type) - 1)) : 0;
}

__int128 most_of(Type type) {
    return (static_cast<__int128>(1) << (is_signed(type) ? bits_of(type) - 1 : bits_of(type))) - 1;
}

template <class Source>
void saturate_integer(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<Source>* a = warp.lanes<Stored<Source>>(instruction.a);
    const __int128 least = least_of(instruction.type);
    const __int128 most = most_of(instruction.type);
    const bool wide = bytes_of(instruction.type) == 8;
    for_each_lane(active, [&](int lane) {
        const __int128 value = Slot<Source>::load(a[lane]);
        const __int128 limited = value < least ? least : value > most ? most : value;
        if (wide)
            warp.lanes<uint64_t>(instruction.destination)[lane] = static_cast<uint64_t>(limited);
        else
            warp.lanes<uint32_t>(instruction.destination)[lane] = static_cast<uint32_t>(limited);
    });
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
struct IntegerTarget {
    double least;
    double most;  // may have rounded up, so that only values below it convert
    uint64_t least_bits;
    uint64_t most_bits;
    uint64_t nan_bits;
    bool with_sign;

    IntegerTarget(Type type, bool from_double)
        : least(static_cast<double>(least_of(type))),
          most(static_cast<double>(most_of(type))),
          least_bits(static_cast<uint64_t>(least_of(type))),
          most_bits(static_cast<uint64_t>(most_of(type))),
          nan_bits(from_double || bytes_of(type) == 8 ? uint64_t{1} << (bits_of(type) - 1) : 0),
          with_sign(is_signed(type)) {}

    uint64_t convert(double integral) const {
        if (std::isnan(integral)) return nan_bits;
        if (integral <= least) return least_bits;
        if (integral >= most) return most_bits;
        return with_sign ? static_cast<uint64_t>(static_cast<int64_t>(integral))
                         : static_cast<uint64_t>(integral);
    }
};

template <class From, class Slot>
void to_integer(Warp& warp, const Instruction& instruction, uint32_t active) {
    const auto* a = warp.lanes<typename From::Stored>(instruction.a);
    const IntegerTarget target(instruction.type, std::is_same<From, FromDouble>::value);
    const uint8_t rounding = instruction.option[0];
    const bool flushes = (instruction.option[1] & kFlush) != 0;
    write_lanes<Slot>(warp, instruction.destination, active, [&](int lane) {
        const double value = From::load(a[lane]);
        return static_cast<Slot>(target.convert(to_integral(flushes ? flushed(value) : value, rounding)));
    });
}

// ---- to a number ----

// Whether a neighbour of the nearest value is wanted, and on which side: -1, 0 or 1.
int correction(double nearest, double exact, uint8_t rounding) {
    if (std::isnan(exact) || nearest == exact) return 0;
    const bool above = nearest > exact;
    switch (rounding) {
        case kZero:
            return exact > 0 ? (above ? -1 : 0) : (above ? 0 : 1);
        case kDown:
            return above ? -1 : 0;
        case kUp:
            return above ? 0 : 1;
        default:
            return 0;
    }
}

float to_float(double value, uint8_t rounding) {
    const float nearest = static_cast<float>(value);
    const int step = correction(nearest, value, rounding);
    if (step == 0) return nearest;
    return std::nextafter(nearest, step > 0 ? INFINITY : -INFINITY);
}

template <class Format>
uint16_t to_sixteen_bits(double value, uint8_t rounding) {
    const uint16_t nearest = Format::narrow(round_to_odd(value));
    const int step = correction(Format::widen(nearest), value, rounding);
    if (step == 0) return nearest;
    const bool away = (step > 0) == ((nearest & 0x8000) == 0);
    // From zero the next value may be of the other sign, which its bits can't reach by counting.
    if (!away && (nearest & 0x7fff) == 0) return step > 0 ? 0x0001 : 0x8001;
    return static_cast<uint16_t>(nearest + (away ? 1 : -1));
}

inline uint32_t to_tf32(float value, uint8_t rounding) {
    const uint32_t bits = bits_as<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t tie = rounding == kNearestAway ? 0x1000u : 0xfffu + (bits >> 13 & 1u);
    const uint32_t added = rounding == kZero || magnitude == 0x7f800000u ? 0 : tie;
    return magnitude > 0x7f800000u ? 0x7fffffffu : (bits + added) & ~0x1fffu;
}

// The bits of any number but a float64.
uint32_t number_bits(Type type, double value, uint8_t rounding) {
    switch (type) {
        case Type::F16:
            return to_sixteen_bits<Half>(value, rounding);
        case Type::BF16:
            return to_sixteen_bits<Bfloat>(value, rounding);
        case Type::TF32:
            return to_tf32(static_cast<float>(value), rounding);
        default:
            return bits_as<uint32_t>(to_float(value, rounding));
    }
}

double limited(double value, uint8_t flags) {
    if ((flags & kSaturate) != 0) return value > 0 ? (value < 1 ? value : 1) : 0;
    if ((flags & kRelu) != 0 && !(value > 0) && !std::isnan(value)) return 0;
    return value;
}

// What a number becomes before it is put into its new format.
double prepared(double value, const Instruction& instruction) {
    const uint8_t flags = instruction.option[1];
    if ((flags & kFlush) != 0) value = flushed(value);
    if ((flags & kToInteger) != 0) value = to_integral(value, instruction.option[0]);
    return limited(value, flags);
}

template <class From>
void to_number(Warp& warp, const Instruction& instruction, uint32_t active) {
    const auto* a = warp.lanes<typename From::Stored>(instruction.a);
    const bool flushes_result = (instruction.option[1] & kFlush) != 0 && instruction.type == Type::F32;
    write_lanes<uint32_t>(warp, instruction.destination, active, [&](int lane) {
        const double value = prepared(From::load(a[lane]), instruction);
        const uint32_t bits = number_bits(instruction.type, value, instruction.option[0]);
        return flushes_result ? bits_as<uint32_t>(static_cast<float>(flushed(bits_as<float>(bits)))) : bits;
    });
}

template <class From>
void to_double(Warp& warp, const Instruction& instruction, uint32_t active) {
    const auto* a = warp.lanes<typename From::Stored>(instruction.a);
    write_lanes<double>(warp, instruction.destination, active,
                        [&](int lane) { return prepared(From::load(a[lane]), instruction); });
}

// The conversions that kernels do by the million, in a form that vectorises.
void half_to_float_lanes(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t* a = warp.lanes<uint32_t>(instruction.a);
    write_lanes<float>(warp, instruction.destination, active,
                       [=](int lane) { return half_to_float(static_cast<uint16_t>(a[lane])); });
}

template <class Format>
void float_to_sixteen_bits_lanes(Warp& warp, const Instruction& instruction, uint32_t active) {
    const float* a = warp.lanes<float>(instruction.a);
    write_lanes<uint32_t>(warp, instruction.destination, active,
                          [=](int lane) { return uint32_t{Format::narrow(a[lane])}; });
}

template <uint8_t kRounding>
void float_to_tf32_lanes(Warp& warp, const Instruction& instruction, uint32_t active) {
    const float* a = warp.lanes<float>(instruction.a);
    write_lanes<uint32_t>(warp, instruction.destination, active,
                          [=](int lane) { return to_tf32(a[lane], kRounding); });
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

template <class Source>
void integer_to_number(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<Source>* a = warp.lanes<Stored<Source>>(instruction.a);
    write_lanes<uint32_t>(warp, instruction.destination, active, [&](int lane) {
        return number_bits(instruction.type, exact_or_odd(Slot<Source>::load(a[lane])),
                           instruction.option[0]);
    });
}

template <class Source>
void integer_to_double(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<Source>* a = warp.lanes<Stored<Source>>(instruction.a);
    write_lanes<double>(warp, instruction.destination, active, [&](int lane) {
        return rounded_double(Slot<Source>::load(a[lane]), instruction.option[0]);
    });
}

template <class Source>
void integer_to_float_lanes(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<Source>* a = warp.lanes<Stored<Source>>(instruction.a);
    write_lanes<float>(warp, instruction.destination, active,
                       [=](int lane) { return static_cast<float>(Slot<Source>::load(a[lane])); });
}

// ---- two floats packed into one register ----

template <class Format>
void pack_floats(Warp& warp, const Instruction& instruction, uint32_t active) {
    const float* high = warp.lanes<float>(instruction.a);
    const float* low = warp.lanes<float>(instruction.b);
    const uint8_t rounding = instruction.option[0];
    const uint8_t flags = instruction.option[1];
    write_lanes<uint32_t>(warp, instruction.destination, active, [=](int lane) -> uint32_t {
        if (rounding == kNearest && flags == 0)
            return uint32_t{Format::narrow(high[lane])} << 16 | Format::narrow(low[lane]);
        const uint32_t upper = to_sixteen_bits<Format>(limited(high[lane], flags), rounding);
        return upper << 16 | to_sixteen_bits<Format>(limited(low[lane], flags), rounding);
    });
}

// ---- choosing ----

template <class Source>
Handler from_integer(const Instruction& instruction) {
    if (is_integer(instruction.type)) {
        const bool saturates = (instruction.option[1] & kSaturate) != 0;
        return saturates ? saturate_integer<Source> : integer_to_integer<Source>(instruction.type);
    }
    if (instruction.type == Type::F64) return integer_to_double<Source>;
    if (instruction.type == Type::F32 && instruction.option[0] == kNearest)
        return integer_to_float_lanes<Source>;
    return integer_to_number<Source>;
}

template <class From>
Handler from_number(const Instruction& instruction) {
    if (instruction.type == Type::F64) return to_double<From>;
    if (!is_integer(instruction.type)) return to_number<From>;
    return bytes_of(instruction.type) == 8 ? static_cast<Handler>(to_integer<From, uint64_t>)
                                           : to_integer<From, uint32_t>;
}

// A handler that vectorises, for the commonest conversions of float32.
Handler from_float_quickly(const Instruction& instruction) {
    const uint8_t rounding = instruction.option[0];
    if (instruction.option[1] != 0) return nullptr;
    if (instruction.type == Type::F16 && rounding == kNearest) return float_to_sixteen_bits_lanes<Half>;
    if (instruction.type == Type::BF16 && rounding == kNearest) return float_to_sixteen_bits_lanes<Bfloat>;
    if (instruction.type == Type::TF32 && rounding == kNearest) return float_to_tf32_lanes<kNearest>;
    if (instruction.type == Type::TF32 && rounding == kNearestAway) return float_to_tf32_lanes<kNearestAway>;
    return nullptr;
}

Handler choose(const Instruction& instruction, Type source) {
    const bool plain = instruction.option[0] == kNearest && instruction.option[1] == 0;
    switch (source) {
        case Type::S8:
            return from_integer<int8_t>(instruction);
        case Type::U8:
            return from_integer<uint8_t>(instruction);
        case Type::S16:
            return from_integer<int16_t>(instruction);
        case Type::U16:
            return from_integer<uint16_t>(instruction);
        case Type::S32:
            return from_integer<int32_t>(instruction);
        case Type::U32:
            return from_integer<uint32_t>(instruction);
        case Type::S64:
            return from_integer<int64_t>(instruction);
        case Type::U64:
            return from_integer<uint64_t>(instruction);
        case Type::F16:
            return plain && instruction.type == Type::F32 ? half_to_float_lanes
                                                          : from_number<FromHalf>(instruction);
        case Type::BF16:
            return from_number<FromBfloat>(instruction);
        case Type::F32: {
            const Handler quick = from_float_quickly(instruction);
            return quick != nullptr ? quick : from_number<FromFloat>(instruction);
        }
        case Type::F64:
            return from_number<FromDouble>(instruction);
        default:
            return nullptr;
    }
}

bool is_target(Type type) {
    return is_integer(type) || is_float(type) || type == Type::F16 || type == Type::BF16 ||
           type == Type::TF32;
}

void take_rounding(Decoder& decoder, Instruction& instruction) {
    const int to_integer = decoder.take_one_of({"rni", "rzi", "rmi", "rpi"}, -1);
    if (to_integer >= 0) {
        instruction.option[0] = static_cast<uint8_t>(to_integer);
        instruction.option[1] |= kToInteger;
        return;
    }
    instruction.option[0] =
        static_cast<uint8_t>(decoder.take_one_of({"rn", "rz", "rm", "rp", "rna"}, kNearest));
}

void take_flags(Decoder& decoder, Instruction& instruction) {
    if (decoder.take("sat")) instruction.option[1] |= kSaturate;
    if (decoder.take("ftz")) instruction.option[1] |= kFlush;
    if (decoder.take("relu")) instruction.option[1] |= kRelu;
}

uint8_t slot_bits(Type type) {
    return bytes_of(type) == 8 ? 64 : 32;
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
    if (source_bits != 0 && source_bits != slot_bits(source)) {
        if (!is_integer(target) || bytes_of(target) != 8 || instruction.option[1] != 0) decoder.unsupported();
        instruction.execute = extension_in_place(source);
        if (instruction.execute == nullptr) decoder.unsupported();
        return true;
    }
    if (is_target(target)) instruction.execute = choose(instruction, source);
    if (instruction.execute == nullptr) decoder.unsupported();
    return true;
}

}  // namespace

void register_convert_operations(OpcodeTable& table) {
    table["cvt"].push_back(decode_convert);
}

}  // namespace ptx
