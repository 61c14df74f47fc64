// Integer arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg, sad, and the wide and high forms.
#include <limits>
#include <type_traits>

#include "../decoder.h"
#include "../lanes.h"

namespace ptx {

namespace {

// Signed overflow wraps on the device, so arithmetic is done unsigned. 16-bit operands are widened first,
// lest C++ promote them to signed int.
template <class T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;

template <class T>
struct Wider;
template <>
struct Wider<int16_t> {
    using type = int32_t;
};
template <>
struct Wider<uint16_t> {
    using type = uint32_t;
};
template <>
struct Wider<int32_t> {
    using type = int64_t;
};
template <>
struct Wider<uint32_t> {
    using type = uint64_t;
};
template <>
struct Wider<int64_t> {
    using type = __int128;
};
template <>
struct Wider<uint64_t> {
    using type = unsigned __int128;
};

struct Add {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(Wrapping<T>(a) + Wrapping<T>(b));
    }
};

struct Subtract {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(Wrapping<T>(a) - Wrapping<T>(b));
    }
};

struct Multiply {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(Wrapping<T>(a) * Wrapping<T>(b));
    }
};

struct MultiplyHigh {
    template <class T>
    static T apply(T a, T b) {
        using Wide = typename Wider<T>::type;
        return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> (8 * sizeof(T)));
    }
};

struct MultiplyAdd {
    template <class T>
    static T apply(T a, T b, T c) {
        return static_cast<T>(Wrapping<T>(a) * Wrapping<T>(b) + Wrapping<T>(c));
    }
};

struct MultiplyHighAdd {
    template <class T>
    static T apply(T a, T b, T c) {
        return Add::apply(MultiplyHigh::apply(a, b), c);
    }
};

// Division by zero gives all ones on the device, and the remainder the dividend.
struct Divide {
    template <class T>
    static T apply(T a, T b) {
        if (b == 0) return static_cast<T>(~T{0});
        if (std::is_signed<T>::value && b == static_cast<T>(-1)) return static_cast<T>(0 - Wrapping<T>(a));
        return static_cast<T>(a / b);
    }
};

struct Remainder {
    template <class T>
    static T apply(T a, T b) {
        if (b == 0) return a;
        if (std::is_signed<T>::value && b == static_cast<T>(-1)) return 0;
        return static_cast<T>(a % b);
    }
};

struct Minimum {
    template <class T>
    static T apply(T a, T b) {
        return a < b ? a : b;
    }
};

struct Maximum {
    template <class T>
    static T apply(T a, T b) {
        return a > b ? a : b;
    }
};

struct Negate {
    template <class T>
    static T apply(T a) {
        return static_cast<T>(0 - Wrapping<T>(a));
    }
};

struct Absolute {
    template <class T>
    static T apply(T a) {
        return a < 0 ? Negate::apply(a) : a;
    }
};

struct AddSaturating {
    static int32_t apply(int32_t a, int32_t b) { return clamp(int64_t{a} + b); }

    static int32_t clamp(int64_t value) {
        constexpr int64_t least = std::numeric_limits<int32_t>::min();
        constexpr int64_t most = std::numeric_limits<int32_t>::max();
        return static_cast<int32_t>(value < least ? least : value > most ? most : value);
    }
};

struct SubtractSaturating {
    static int32_t apply(int32_t a, int32_t b) { return AddSaturating::clamp(int64_t{a} - b); }
};

struct AbsoluteDifferenceAdd {
    template <class T>
    static T apply(T a, T b, T c) {
        return Add::apply(c, a < b ? Subtract::apply(b, a) : Subtract::apply(a, b));
    }
};

template <class Operation>
Handler binary_handler(Type type) {
    switch (type) {
        case Type::S16:
            return binary<int16_t, Operation>;
        case Type::U16:
            return binary<uint16_t, Operation>;
        case Type::S32:
            return binary<int32_t, Operation>;
        case Type::U32:
            return binary<uint32_t, Operation>;
        case Type::S64:
            return binary<int64_t, Operation>;
        case Type::U64:
            return binary<uint64_t, Operation>;
        default:
            return nullptr;
    }
}

template <class Operation>
Handler ternary_handler(Type type) {
    switch (type) {
        case Type::S16:
            return ternary<int16_t, Operation>;
        case Type::U16:
            return ternary<uint16_t, Operation>;
        case Type::S32:
            return ternary<int32_t, Operation>;
        case Type::U32:
            return ternary<uint32_t, Operation>;
        case Type::S64:
            return ternary<int64_t, Operation>;
        case Type::U64:
            return ternary<uint64_t, Operation>;
        default:
            return nullptr;
    }
}

template <class Operation>
Handler signed_unary_handler(Type type) {
    switch (type) {
        case Type::S16:
            return unary<int16_t, Operation>;
        case Type::S32:
            return unary<int32_t, Operation>;
        case Type::S64:
            return unary<int64_t, Operation>;
        default:
            return nullptr;
    }
}

// Products of twice the width: 16 bits give 32, 32 give 64.
template <class Narrow, bool kAdds>
void multiply_wide(Warp& warp, const Instruction& instruction, uint32_t active) {
    using Wide = typename Wider<Narrow>::type;
    const Stored<Narrow>* a = warp.lanes<Stored<Narrow>>(instruction.a);
    const Stored<Narrow>* b = warp.lanes<Stored<Narrow>>(instruction.b);
    const Wide* c = kAdds ? warp.lanes<Wide>(instruction.c) : nullptr;
    write_lanes<Wide>(warp, instruction.destination, active, [=](int lane) {
        const Wide product =
            static_cast<Wide>(Slot<Narrow>::load(a[lane])) * static_cast<Wide>(Slot<Narrow>::load(b[lane]));
        return kAdds ? Add::apply(product, c[lane]) : product;
    });
}

template <bool kAdds>
Handler multiply_wide_handler(Type type) {
    switch (type) {
        case Type::S16:
            return multiply_wide<int16_t, kAdds>;
        case Type::U16:
            return multiply_wide<uint16_t, kAdds>;
        case Type::S32:
            return multiply_wide<int32_t, kAdds>;
        case Type::U32:
            return multiply_wide<uint32_t, kAdds>;
        default:
            return nullptr;
    }
}

Type twice_as_wide(Type type) {
    switch (type) {
        case Type::S16:
            return Type::S32;
        case Type::U16:
            return Type::U32;
        case Type::S32:
            return Type::S64;
        default:
            return Type::U64;
    }
}

bool finish(Decoder& decoder, Handler handler) {
    if (handler == nullptr) decoder.unsupported();
    decoder.instruction().execute = handler;
    return true;
}

template <class Operation>
bool decode_binary(Decoder& decoder) {
    if (!is_integer(decoder.last_type())) return false;
    const Type type = decoder.take_type();
    decoder.instruction().type = type;
    decoder.binary(type);
    return finish(decoder, binary_handler<Operation>(type));
}

template <class Operation, class Saturating>
bool decode_add(Decoder& decoder) {
    if (!is_integer(decoder.last_type())) return false;
    if (!decoder.has("sat")) return decode_binary<Operation>(decoder);
    if (decoder.last_type() != Type::S32) decoder.unsupported();
    decoder.take("sat");
    decoder.binary(decoder.take_type());
    return finish(decoder, binary<int32_t, Saturating>);
}

bool decode_multiply(Decoder& decoder) {
    if (!is_integer(decoder.last_type())) return false;
    const Type type = decoder.take_type();
    decoder.binary(type);
    switch (decoder.take_one_of({"lo", "hi", "wide"}, 3)) {
        case 0:
            return finish(decoder, binary_handler<Multiply>(type));
        case 1:
            return finish(decoder, binary_handler<MultiplyHigh>(type));
        case 2:
            return finish(decoder, multiply_wide_handler<false>(type));
        default:
            decoder.unsupported();
    }
}

bool decode_multiply_add(Decoder& decoder) {
    if (!is_integer(decoder.last_type())) return false;
    const Type type = decoder.take_type();
    if (decoder.take("wide")) {
        decoder.expect_operands(4, 4);
        decoder.instruction().destination = decoder.destination(0);
        decoder.instruction().a = decoder.source(1, type);
        decoder.instruction().b = decoder.source(2, type);
        decoder.instruction().c = decoder.source(3, twice_as_wide(type));
        return finish(decoder, multiply_wide_handler<true>(type));
    }
    decoder.ternary(type);
    if (decoder.take("hi")) return finish(decoder, ternary_handler<MultiplyHighAdd>(type));
    if (decoder.take("lo")) return finish(decoder, ternary_handler<MultiplyAdd>(type));
    decoder.unsupported();
}

bool decode_absolute_difference(Decoder& decoder) {
    if (!is_integer(decoder.last_type())) return false;
    const Type type = decoder.take_type();
    decoder.ternary(type);
    return finish(decoder, ternary_handler<AbsoluteDifferenceAdd>(type));
}

template <class Operation>
bool decode_signed_unary(Decoder& decoder) {
    if (!is_integer(decoder.last_type())) return false;
    const Type type = decoder.take_type();
    decoder.unary(type);
    return finish(decoder, signed_unary_handler<Operation>(type));
}

}  // namespace

void register_integer_operations(OpcodeTable& table) {
    table["add"].push_back(decode_add<Add, AddSaturating>);
    table["sub"].push_back(decode_add<Subtract, SubtractSaturating>);
    table["mul"].push_back(decode_multiply);
    table["mad"].push_back(decode_multiply_add);
    table["div"].push_back(decode_binary<Divide>);
    table["rem"].push_back(decode_binary<Remainder>);
    table["min"].push_back(decode_binary<Minimum>);
    table["max"].push_back(decode_binary<Maximum>);
    table["neg"].push_back(decode_signed_unary<Negate>);
    table["abs"].push_back(decode_signed_unary<Absolute>);
    table["sad"].push_back(decode_absolute_difference);
}

}  // namespace ptx
