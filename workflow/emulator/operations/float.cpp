// Float32 and float64 arithmetic. Everything PTX defines as IEEE is exact to the last bit, but for the
// payload of a NaN; the .approx and .full forms are computed as exactly as the C library does, which the
// hardware doesn't.
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

#include "../decoder.h"
#include "../lanes.h"

namespace ptx {

namespace {

struct Add {
    template <class T>
    static T apply(T a, T b) {
        return a + b;
    }
};

struct Subtract {
    template <class T>
    static T apply(T a, T b) {
        return a - b;
    }
};

struct Multiply {
    template <class T>
    static T apply(T a, T b) {
        return a * b;
    }
};

struct Divide {
    template <class T>
    static T apply(T a, T b) {
        return a / b;
    }
};

struct FusedMultiplyAdd {
    template <class T>
    static T apply(T a, T b, T c) {
        return std::fma(a, b, c);
    }
};

// A NaN gives way to a number, and -0 is less than +0.
struct Minimum {
    template <class T>
    static T apply(T a, T b) {
        const T ordered = a < b || (a == b && std::signbit(a)) ? a : b;
        return std::isnan(a) ? b : std::isnan(b) ? a : ordered;
    }
};

struct Maximum {
    template <class T>
    static T apply(T a, T b) {
        const T ordered = a > b || (a == b && !std::signbit(a)) ? a : b;
        return std::isnan(a) ? b : std::isnan(b) ? a : ordered;
    }
};

template <class Operation>
struct PropagatingNan {
    template <class T>
    static T apply(T a, T b) {
        return std::isnan(a) || std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : Operation::apply(a, b);
    }
};

struct Negate {
    template <class T>
    static T apply(T a) {
        return -a;
    }
};

struct Absolute {
    template <class T>
    static T apply(T a) {
        return std::fabs(a);
    }
};

struct CopySign {
    template <class T>
    static T apply(T a, T b) {
        return std::copysign(b, a);  // PTX names the sign first
    }
};

struct SquareRoot {
    template <class T>
    static T apply(T a) {
        return std::sqrt(a);
    }
};

struct Reciprocal {
    template <class T>
    static T apply(T a) {
        return T{1} / a;
    }
};

struct ReciprocalSquareRoot {
    template <class T>
    static T apply(T a) {
        return static_cast<T>(1.0 / std::sqrt(static_cast<double>(a)));
    }
};

struct Exponential2 {
    static float apply(float a) { return std::exp2(a); }
};

struct Logarithm2 {
    static float apply(float a) { return std::log2(a); }
};

struct Sine {
    static float apply(float a) { return std::sin(a); }
};

struct Cosine {
    static float apply(float a) { return std::cos(a); }
};

struct HyperbolicTangent {
    static float apply(float a) { return std::tanh(a); }
};

// ---- .ftz and .sat ----

inline float flush(float value) {
    return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}

inline float saturate(float value) {
    return value > 0.0f ? (value < 1.0f ? value : 1.0f) : 0.0f;  // a NaN becomes 0
}

template <class Operation, bool kFlushes, bool kSaturates>
struct Adjusted {
    template <class... Operands>
    static float apply(Operands... operands) {
        const float result =
            kFlushes ? flush(Operation::apply(flush(operands)...)) : Operation::apply(operands...);
        return kSaturates ? saturate(result) : result;
    }
};

struct Adjustment {
    bool flushes;
    bool saturates;
};

Adjustment take_adjustment(Decoder& decoder) {
    const bool flushes = decoder.take("ftz");
    return {flushes, decoder.take("sat")};
}

template <template <class, class> class Shape, class Operation>
Handler adjusted_handler(Type type, Adjustment adjustment) {
    if (type == Type::F64) {
        if (adjustment.flushes || adjustment.saturates) return nullptr;
        return Shape<double, Operation>::run;
    }
    if (adjustment.flushes && adjustment.saturates) return Shape<float, Adjusted<Operation, true, true>>::run;
    if (adjustment.flushes) return Shape<float, Adjusted<Operation, true, false>>::run;
    if (adjustment.saturates) return Shape<float, Adjusted<Operation, false, true>>::run;
    return Shape<float, Operation>::run;
}

template <class T, class Operation>
struct Unary {
    static constexpr Handler run = unary<T, Operation>;
};

template <class T, class Operation>
struct Binary {
    static constexpr Handler run = binary<T, Operation>;
};

template <class T, class Operation>
struct Ternary {
    static constexpr Handler run = ternary<T, Operation>;
};

// ---- rounding other than to nearest ----

constexpr int kRoundingModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

class RoundingScope {
  public:
    explicit RoundingScope(int mode) { std::fesetround(kRoundingModes[mode]); }
    ~RoundingScope() { std::fesetround(FE_TONEAREST); }
};

// Operands and result are volatile, lest the compiler move the arithmetic out of the scope.
template <class T, class Operation>
void rounded_binary(Warp& warp, const Instruction& instruction, uint32_t active) {
    const RoundingScope scope(instruction.option[0]);
    for_each_lane(active, [&](int lane) {
        volatile T a = warp.lanes<T>(instruction.a)[lane];
        volatile T b = warp.lanes<T>(instruction.b)[lane];
        volatile T result = Operation::apply(T{a}, T{b});
        warp.lanes<T>(instruction.destination)[lane] = result;
    });
}

template <class T>
void rounded_fma(Warp& warp, const Instruction& instruction, uint32_t active) {
    const RoundingScope scope(instruction.option[0]);
    for_each_lane(active, [&](int lane) {
        volatile T a = warp.lanes<T>(instruction.a)[lane];
        volatile T b = warp.lanes<T>(instruction.b)[lane];
        volatile T c = warp.lanes<T>(instruction.c)[lane];
        volatile T result = std::fma(T{a}, T{b}, T{c});
        warp.lanes<T>(instruction.destination)[lane] = result;
    });
}

bool finish(Decoder& decoder, Handler handler) {
    if (handler == nullptr) decoder.unsupported();
    decoder.instruction().execute = handler;
    return true;
}

int take_rounding(Decoder& decoder) {
    return decoder.take_one_of({"rn", "rz", "rm", "rp"}, 0);
}

template <class Operation>
bool decode_arithmetic(Decoder& decoder) {
    if (!is_float(decoder.last_type())) return false;
    const Type type = decoder.take_type();
    decoder.binary(type);
    decoder.note().flops = 1;
    const int rounding = take_rounding(decoder);
    if (rounding == 0)
        return finish(decoder, adjusted_handler<Binary, Operation>(type, take_adjustment(decoder)));
    decoder.instruction().option[0] = static_cast<uint8_t>(rounding);
    return finish(decoder, type == Type::F64 ? static_cast<Handler>(rounded_binary<double, Operation>)
                                             : rounded_binary<float, Operation>);
}

bool decode_fma(Decoder& decoder) {
    if (!is_float(decoder.last_type())) return false;
    const Type type = decoder.take_type();
    decoder.ternary(type);
    decoder.note().flops = 2;
    decoder.note().is_fma = type == Type::F32;
    const int rounding = take_rounding(decoder);
    if (rounding == 0)
        return finish(decoder, adjusted_handler<Ternary, FusedMultiplyAdd>(type, take_adjustment(decoder)));
    decoder.instruction().option[0] = static_cast<uint8_t>(rounding);
    return finish(decoder,
                  type == Type::F64 ? static_cast<Handler>(rounded_fma<double>) : rounded_fma<float>);
}

bool decode_division(Decoder& decoder) {
    if (!is_float(decoder.last_type())) return false;
    const Type type = decoder.take_type();
    decoder.binary(type);
    if (decoder.take_one_of({"rn", "full", "approx"}, 3) == 3) decoder.unsupported();
    return finish(decoder, adjusted_handler<Binary, Divide>(type, take_adjustment(decoder)));
}

template <class Operation>
bool decode_extreme(Decoder& decoder) {
    if (!is_float(decoder.last_type())) return false;
    const Type type = decoder.take_type();
    decoder.binary(type);
    if (decoder.take("NaN"))
        return finish(decoder,
                      adjusted_handler<Binary, PropagatingNan<Operation>>(type, take_adjustment(decoder)));
    return finish(decoder, adjusted_handler<Binary, Operation>(type, take_adjustment(decoder)));
}

template <class Operation>
bool decode_sign(Decoder& decoder) {
    if (!is_float(decoder.last_type())) return false;
    const Type type = decoder.take_type();
    decoder.unary(type);
    return finish(decoder, adjusted_handler<Unary, Operation>(type, take_adjustment(decoder)));
}

bool decode_copysign(Decoder& decoder) {
    const Type type = decoder.take_type();
    decoder.binary(type);
    return finish(decoder, adjusted_handler<Binary, CopySign>(type, {false, false}));
}

// sqrt, rcp and rsqrt: to nearest or approximate.
template <class Operation>
bool decode_root(Decoder& decoder) {
    if (!is_float(decoder.last_type())) return false;
    const Type type = decoder.take_type();
    decoder.unary(type);
    if (decoder.take_one_of({"rn", "approx"}, 2) == 2) decoder.unsupported();
    return finish(decoder, adjusted_handler<Unary, Operation>(type, take_adjustment(decoder)));
}

template <class Operation>
bool decode_approximate(Decoder& decoder) {
    if (decoder.last_type() != Type::F32 || !decoder.take("approx")) return false;
    decoder.unary(decoder.take_type());
    const Handler handler = decoder.take("ftz")
                                ? static_cast<Handler>(unary<float, Adjusted<Operation, true, false>>)
                                : unary<float, Operation>;
    return finish(decoder, handler);
}

}  // namespace

void register_float_operations(OpcodeTable& table) {
    table["add"].push_back(decode_arithmetic<Add>);
    table["sub"].push_back(decode_arithmetic<Subtract>);
    table["mul"].push_back(decode_arithmetic<Multiply>);
    table["fma"].push_back(decode_fma);
    table["mad"].push_back(decode_fma);
    table["div"].push_back(decode_division);
    table["min"].push_back(decode_extreme<Minimum>);
    table["max"].push_back(decode_extreme<Maximum>);
    table["neg"].push_back(decode_sign<Negate>);
    table["abs"].push_back(decode_sign<Absolute>);
    table["copysign"].push_back(decode_copysign);
    table["sqrt"].push_back(decode_root<SquareRoot>);
    table["rcp"].push_back(decode_root<Reciprocal>);
    table["rsqrt"].push_back(decode_root<ReciprocalSquareRoot>);
    table["ex2"].push_back(decode_approximate<Exponential2>);
    table["lg2"].push_back(decode_approximate<Logarithm2>);
    table["sin"].push_back(decode_approximate<Sine>);
    table["cos"].push_back(decode_approximate<Cosine>);
    table["tanh"].push_back(decode_approximate<HyperbolicTangent>);
}

}  // namespace ptx
