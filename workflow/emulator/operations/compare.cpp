// Comparisons and selections: setp, selp, slct, testp.
#include <cmath>
#include <limits>

#include "../decoder.h"
#include "../half.h"
#include "../lanes.h"

namespace ptx {

namespace {

enum class Combination : uint8_t { None, And, Or, Xor };

struct Equal {
    template <class T>
    static bool test(T a, T b) {
        return a == b;
    }
};

struct Less {
    template <class T>
    static bool test(T a, T b) {
        return a < b;
    }
};

struct LessEqual {
    template <class T>
    static bool test(T a, T b) {
        return a <= b;
    }
};

// Neither is a NaN.
struct Ordered {
    template <class T>
    static bool test(T a, T b) {
        return a == a && b == b;
    }
};

struct LessOrGreater {
    template <class T>
    static bool test(T a, T b) {
        return a < b || a > b;
    }
};

// .ftz: subnormal operands count as zeroes.
template <class Comparison>
struct Flushed {
    static bool test(float a, float b) { return Comparison::test(flush(a), flush(b)); }
    static float flush(float value) {
        return std::fabs(value) < std::numeric_limits<float>::min() ? 0.0f : value;
    }
};

template <class Comparison>
struct Swapped {
    template <class T>
    static bool test(T a, T b) {
        return Comparison::test(b, a);
    }
};

template <class Comparison>
struct Inverse {
    template <class T>
    static bool test(T a, T b) {
        return !Comparison::test(a, b);
    }
};

// Combines the comparison with a predicate and writes it, and its opposite combined likewise to a second one.
void write_comparison(Warp& warp, const Instruction& instruction, uint32_t active, uint32_t bits) {
    const auto combine = [&](uint32_t result) {
        if (instruction.c == kNoRegister) return result;
        const uint32_t other =
            instruction.option[1] != 0 ? ~warp.predicate(instruction.c) : warp.predicate(instruction.c);
        switch (static_cast<Combination>(instruction.option[0])) {
            case Combination::And:
                return result & other;
            case Combination::Or:
                return result | other;
            case Combination::Xor:
                return result ^ other;
            default:
                return result;
        }
    };
    const uint32_t first = combine(bits);
    const uint32_t second = combine(~bits);
    write_predicate(warp, instruction.destination, active, first);
    if (instruction.list_outputs != 0)
        write_predicate(warp, warp.block->launch->program->operand_lists[instruction.list], active, second);
}

template <class T, class Comparison>
void compare(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<T>* a = warp.lanes<Stored<T>>(instruction.a);
    const Stored<T>* b = warp.lanes<Stored<T>>(instruction.b);
    const uint32_t bits = lanes_where(
        [=](int lane) { return Comparison::test(Slot<T>::load(a[lane]), Slot<T>::load(b[lane])); });
    write_comparison(warp, instruction, active, bits);
}

template <class Format, class Comparison>
void compare_half(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t* a = warp.lanes<uint32_t>(instruction.a);
    const uint32_t* b = warp.lanes<uint32_t>(instruction.b);
    const uint32_t bits = lanes_where([=](int lane) {
        return Comparison::test(Format::widen(static_cast<uint16_t>(a[lane])),
                                Format::widen(static_cast<uint16_t>(b[lane])));
    });
    write_comparison(warp, instruction, active, bits);
}

template <class Comparison>
Handler integer_handler(Type type) {
    switch (type) {
        case Type::S16:
            return compare<int16_t, Comparison>;
        case Type::U16:
        case Type::B16:
            return compare<uint16_t, Comparison>;
        case Type::S32:
            return compare<int32_t, Comparison>;
        case Type::U32:
        case Type::B32:
            return compare<uint32_t, Comparison>;
        case Type::S64:
            return compare<int64_t, Comparison>;
        case Type::U64:
        case Type::B64:
            return compare<uint64_t, Comparison>;
        default:
            return nullptr;
    }
}

template <class Comparison>
Handler float_handler(Type type, bool flushes) {
    switch (type) {
        case Type::F32:
            return flushes ? static_cast<Handler>(compare<float, Flushed<Comparison>>)
                           : compare<float, Comparison>;
        case Type::F64:
            return compare<double, Comparison>;
        case Type::F16:
            return compare_half<Half, Comparison>;
        case Type::BF16:
            return compare_half<Bfloat, Comparison>;
        default:
            return nullptr;
    }
}

Handler take_integer_comparison(Decoder& decoder, Type type) {
    switch (decoder.take_one_of({"eq", "ne", "lt", "lo", "le", "ls", "gt", "hi", "ge", "hs"}, -1)) {
        case 0:
            return integer_handler<Equal>(type);
        case 1:
            return integer_handler<Inverse<Equal>>(type);
        case 2:
        case 3:
            return integer_handler<Less>(type);
        case 4:
        case 5:
            return integer_handler<LessEqual>(type);
        case 6:
        case 7:
            return integer_handler<Swapped<Less>>(type);
        case 8:
        case 9:
            return integer_handler<Swapped<LessEqual>>(type);
        default:
            return nullptr;
    }
}

// The names that end in u hold for unordered operands as well: ltu is "not greater or equal".
Handler take_float_comparison(Decoder& decoder, Type type) {
    const bool flushes = type == Type::F32 && decoder.take("ftz");
    switch (decoder.take_one_of(
        {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}, -1)) {
        case 0:
            return float_handler<Equal>(type, flushes);
        case 1:
            return float_handler<LessOrGreater>(type, flushes);
        case 2:
            return float_handler<Less>(type, flushes);
        case 3:
            return float_handler<LessEqual>(type, flushes);
        case 4:
            return float_handler<Swapped<Less>>(type, flushes);
        case 5:
            return float_handler<Swapped<LessEqual>>(type, flushes);
        case 6:
            return float_handler<Inverse<LessOrGreater>>(type, flushes);
        case 7:
            return float_handler<Inverse<Equal>>(type, flushes);
        case 8:
            return float_handler<Inverse<Swapped<LessEqual>>>(type, flushes);
        case 9:
            return float_handler<Inverse<Swapped<Less>>>(type, flushes);
        case 10:
            return float_handler<Inverse<LessEqual>>(type, flushes);
        case 11:
            return float_handler<Inverse<Less>>(type, flushes);
        case 12:
            return float_handler<Ordered>(type, flushes);
        case 13:
            return float_handler<Inverse<Ordered>>(type, flushes);
        default:
            return nullptr;
    }
}

bool decode_compare(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    const Type type = decoder.take_type();
    const bool is_number = is_float(type) || is_half(type);
    instruction.execute =
        is_number ? take_float_comparison(decoder, type) : take_integer_comparison(decoder, type);
    if (instruction.execute == nullptr) decoder.unsupported();
    instruction.option[0] = static_cast<uint8_t>(decoder.take_one_of({"and", "or", "xor"}, -1) + 1);
    const size_t operands = instruction.option[0] != 0 ? 4 : 3;
    decoder.expect_operands(operands, operands);
    const std::vector<std::string> results = decoder.pieces(0);
    instruction.destination = results[0] == "_" ? decoder.scratch(1) : decoder.destination(results[0]);
    if (results.size() == 2 && results[1] != "_") decoder.add_output(decoder.destination(results[1]));
    instruction.a = decoder.source(1, type);
    instruction.b = decoder.source(2, type);
    if (operands == 4) {
        std::string predicate = decoder.operand(3);
        instruction.option[1] = predicate[0] == '!';
        if (predicate[0] == '!') predicate.erase(0, 1);
        instruction.c = decoder.source(predicate, Type::Pred);
    }
    return true;
}

template <class T>
void select(Warp& warp, const Instruction& instruction, uint32_t active) {
    const T* a = warp.lanes<T>(instruction.a);
    const T* b = warp.lanes<T>(instruction.b);
    const uint32_t chosen = warp.predicate(instruction.c);
    write_lanes<T>(warp, instruction.destination, active,
                   [=](int lane) { return (chosen >> lane & 1) != 0 ? a[lane] : b[lane]; });
}

bool decode_select(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    const Type type = decoder.take_type();
    decoder.expect_operands(4, 4);
    instruction.type = type;
    instruction.destination = decoder.destination(0);
    instruction.a = decoder.source(1, type);
    instruction.b = decoder.source(2, type);
    instruction.c = decoder.source(3, Type::Pred);
    instruction.execute = bytes_of(type) == 8 ? static_cast<Handler>(select<uint64_t>) : select<uint32_t>;
    return true;
}

template <class T, class Sign>
void select_by_sign(Warp& warp, const Instruction& instruction, uint32_t active) {
    const T* a = warp.lanes<T>(instruction.a);
    const T* b = warp.lanes<T>(instruction.b);
    const Sign* c = warp.lanes<Sign>(instruction.c);
    write_lanes<T>(warp, instruction.destination, active,
                   [=](int lane) { return c[lane] >= 0 ? a[lane] : b[lane]; });
}

bool decode_select_by_sign(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    Type type = Type::None;
    Type sign = Type::None;
    decoder.take_types(type, sign);
    decoder.expect_operands(4, 4);
    instruction.destination = decoder.destination(0);
    instruction.a = decoder.source(1, type);
    instruction.b = decoder.source(2, type);
    instruction.c = decoder.source(3, sign);
    const bool wide = bytes_of(type) == 8;
    if (sign == Type::S32)
        instruction.execute = wide ? static_cast<Handler>(select_by_sign<uint64_t, int32_t>)
                                   : select_by_sign<uint32_t, int32_t>;
    else if (sign == Type::F32)
        instruction.execute =
            wide ? static_cast<Handler>(select_by_sign<uint64_t, float>) : select_by_sign<uint32_t, float>;
    else
        decoder.unsupported();
    return true;
}

enum FloatClass : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };

template <class T>
void test_class(Warp& warp, const Instruction& instruction, uint32_t active) {
    const T* a = warp.lanes<T>(instruction.a);
    const uint32_t bits = lanes_where([=](int lane) {
        const int kind = std::fpclassify(a[lane]);
        switch (instruction.option[0]) {
            case kFinite:
                return kind != FP_INFINITE && kind != FP_NAN;
            case kInfinite:
                return kind == FP_INFINITE;
            case kNumber:
                return kind != FP_NAN;
            case kNotANumber:
                return kind == FP_NAN;
            case kNormal:
                return kind == FP_NORMAL;
            default:
                return kind == FP_SUBNORMAL;
        }
    });
    write_predicate(warp, instruction.destination, active, bits);
}

bool decode_test_class(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    const Type type = decoder.take_type();
    decoder.unary(type);
    const int kind =
        decoder.take_one_of({"finite", "infinite", "number", "notanumber", "normal", "subnormal"}, -1);
    if (kind < 0 || !is_float(type)) decoder.unsupported();
    instruction.option[0] = static_cast<uint8_t>(kind);
    instruction.execute = type == Type::F64 ? static_cast<Handler>(test_class<double>) : test_class<float>;
    return true;
}

}  // namespace

void register_compare_operations(OpcodeTable& table) {
    table["setp"].push_back(decode_compare);
    table["selp"].push_back(decode_select);
    table["slct"].push_back(decode_select_by_sign);
    table["testp"].push_back(decode_test_class);
}

}  // namespace ptx
