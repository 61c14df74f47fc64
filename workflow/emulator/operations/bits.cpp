// Logic, shifts and bit fields: and, or, xor, not, shl, shr, shf, lop3, bfe, bfi, popc, clz, brev, bfind,
// prmt.
#include "../decoder.h"
#include "../lanes.h"

namespace ptx {

namespace {

struct And {
    template <class T>
    static T apply(T a, T b) {
        return a & b;
    }
};

struct Or {
    template <class T>
    static T apply(T a, T b) {
        return a | b;
    }
};

struct Xor {
    template <class T>
    static T apply(T a, T b) {
        return a ^ b;
    }
};

struct Not {
    template <class T>
    static T apply(T a) {
        return static_cast<T>(~a);
    }
};

struct LogicalNot {
    template <class T>
    static T apply(T a) {
        return a == 0;
    }
};

// Predicate registers hold a bit a lane, so that their logic is one operation for the warp.
template <class Operation>
void predicate_binary(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t bits = Operation::apply(warp.predicate(instruction.a), warp.predicate(instruction.b));
    write_predicate(warp, instruction.destination, active, bits);
}

void predicate_not(Warp& warp, const Instruction& instruction, uint32_t active) {
    write_predicate(warp, instruction.destination, active, ~warp.predicate(instruction.a));
}

template <class Operation>
bool decode_logic(Decoder& decoder) {
    const Type type = decoder.last_type();
    if (type != Type::Pred && !is_bits(type)) return false;
    decoder.take_type();
    decoder.instruction().type = type;
    decoder.binary(type);
    switch (type) {
        case Type::Pred:
            decoder.instruction().execute = predicate_binary<Operation>;
            return true;
        case Type::B16:
            decoder.instruction().execute = binary<uint16_t, Operation>;
            return true;
        case Type::B32:
            decoder.instruction().execute = binary<uint32_t, Operation>;
            return true;
        case Type::B64:
            decoder.instruction().execute = binary<uint64_t, Operation>;
            return true;
        default:
            decoder.unsupported();
    }
}

bool decode_not(Decoder& decoder) {
    const Type type = decoder.take_type();
    decoder.unary(type);
    switch (type) {
        case Type::Pred:
            decoder.instruction().execute = predicate_not;
            return true;
        case Type::B16:
            decoder.instruction().execute = unary<uint16_t, Not>;
            return true;
        case Type::B32:
            decoder.instruction().execute = unary<uint32_t, Not>;
            return true;
        case Type::B64:
            decoder.instruction().execute = unary<uint64_t, Not>;
            return true;
        default:
            decoder.unsupported();
    }
}

bool decode_logical_not(Decoder& decoder) {
    const Type type = decoder.take_type();
    decoder.unary(type);
    switch (type) {
        case Type::U16:
        case Type::S16:
            decoder.instruction().execute = unary<uint16_t, LogicalNot>;
            return true;
        case Type::U32:
        case Type::S32:
            decoder.instruction().execute = unary<uint32_t, LogicalNot>;
            return true;
        case Type::U64:
        case Type::S64:
            decoder.instruction().execute = unary<uint64_t, LogicalNot>;
            return true;
        default:
            decoder.unsupported();
    }
}

// ---- shifts: amounts past the width shift everything out ----

template <class T>
void shift_left(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<T>* a = warp.lanes<Stored<T>>(instruction.a);
    const uint32_t* amount = warp.lanes<uint32_t>(instruction.b);
    constexpr uint32_t kBits = 8 * sizeof(T);
    write_lanes<T>(warp, instruction.destination, active, [=](int lane) {
        const T shifted = static_cast<T>(Slot<T>::load(a[lane]) << (amount[lane] & (kBits - 1)));
        return amount[lane] >= kBits ? T{0} : shifted;
    });
}

template <class T>
void shift_right(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<T>* a = warp.lanes<Stored<T>>(instruction.a);
    const uint32_t* amount = warp.lanes<uint32_t>(instruction.b);
    constexpr uint32_t kBits = 8 * sizeof(T);
    write_lanes<T>(warp, instruction.destination, active, [=](int lane) {
        const T value = Slot<T>::load(a[lane]);
        const T shifted = static_cast<T>(value >> (amount[lane] & (kBits - 1)));
        return amount[lane] >= kBits ? (value < 0 ? static_cast<T>(-1) : T{0}) : shifted;
    });
}

void decode_shift_operands(Decoder& decoder, Type type) {
    decoder.expect_operands(3, 3);
    decoder.instruction().type = type;
    decoder.instruction().destination = decoder.destination(0);
    decoder.instruction().a = decoder.source(1, type);
    decoder.instruction().b = decoder.source(2, Type::U32);
}

bool decode_shift_left(Decoder& decoder) {
    const Type type = decoder.take_type();
    decode_shift_operands(decoder, type);
    switch (bytes_of(type)) {
        case 2:
            decoder.instruction().execute = shift_left<uint16_t>;
            return true;
        case 4:
            decoder.instruction().execute = shift_left<uint32_t>;
            return true;
        case 8:
            decoder.instruction().execute = shift_left<uint64_t>;
            return true;
        default:
            decoder.unsupported();
    }
}

bool decode_shift_right(Decoder& decoder) {
    const Type type = decoder.take_type();
    decode_shift_operands(decoder, type);
    switch (type) {
        case Type::S16:
            decoder.instruction().execute = shift_right<int16_t>;
            return true;
        case Type::S32:
            decoder.instruction().execute = shift_right<int32_t>;
            return true;
        case Type::S64:
            decoder.instruction().execute = shift_right<int64_t>;
            return true;
        case Type::U16:
        case Type::B16:
            decoder.instruction().execute = shift_right<uint16_t>;
            return true;
        case Type::U32:
        case Type::B32:
            decoder.instruction().execute = shift_right<uint32_t>;
            return true;
        case Type::U64:
        case Type::B64:
            decoder.instruction().execute = shift_right<uint64_t>;
            return true;
        default:
            decoder.unsupported();
    }
}

// shf: a window of 32 bits out of the 64 of b:a.
template <bool kLeft, bool kClamp>
struct FunnelShift {
    static uint32_t apply(uint32_t low, uint32_t high, uint32_t amount) {
        const uint32_t shift = kClamp ? (amount > 32 ? 32 : amount) : amount & 31;
        const uint64_t both = uint64_t{high} << 32 | low;
        return static_cast<uint32_t>(kLeft ? (both << shift) >> 32 : both >> shift);
    }
};

bool decode_funnel_shift(Decoder& decoder) {
    decoder.ternary(decoder.take_type());
    const bool left = decoder.take_one_of({"l", "r"}, 2) == 0;
    const bool clamp = decoder.take_one_of({"clamp", "wrap"}, 2) == 0;
    if (left)
        decoder.instruction().execute = clamp
                                            ? static_cast<Handler>(ternary<uint32_t, FunnelShift<true, true>>)
                                            : ternary<uint32_t, FunnelShift<true, false>>;
    else
        decoder.instruction().execute =
            clamp ? static_cast<Handler>(ternary<uint32_t, FunnelShift<false, true>>)
                  : ternary<uint32_t, FunnelShift<false, false>>;
    return true;
}

// Any function of three bits, as a truth table of eight.
void three_input_logic(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t* a = warp.lanes<uint32_t>(instruction.a);
    const uint32_t* b = warp.lanes<uint32_t>(instruction.b);
    const uint32_t* c = warp.lanes<uint32_t>(instruction.c);
    const uint32_t table = instruction.target;
    write_lanes<uint32_t>(warp, instruction.destination, active, [=](int lane) {
        uint32_t result = 0;
        for (uint32_t row = 0; row < 8; ++row) {
            const uint32_t term = ((row & 4) != 0 ? a[lane] : ~a[lane]) &
                                  ((row & 2) != 0 ? b[lane] : ~b[lane]) &
                                  ((row & 1) != 0 ? c[lane] : ~c[lane]);
            result |= (table >> row & 1) != 0 ? term : 0;
        }
        return result;
    });
}

bool decode_three_input_logic(Decoder& decoder) {
    const Type type = decoder.take_type();
    uint64_t table = 0;
    decoder.expect_operands(5, 5);
    if (type != Type::B32 || !decoder.immediate(4, table)) decoder.unsupported();
    decoder.instruction().destination = decoder.destination(0);
    decoder.instruction().a = decoder.source(1, type);
    decoder.instruction().b = decoder.source(2, type);
    decoder.instruction().c = decoder.source(3, type);
    decoder.instruction().target = static_cast<uint32_t>(table);
    decoder.instruction().execute = three_input_logic;
    return true;
}

// ---- bit fields ----

template <class T>
void extract_field(Warp& warp, const Instruction& instruction, uint32_t active) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    const T* a = warp.lanes<T>(instruction.a);
    const uint32_t* position = warp.lanes<uint32_t>(instruction.b);
    const uint32_t* length = warp.lanes<uint32_t>(instruction.c);
    write_lanes<T>(warp, instruction.destination, active, [=](int lane) -> T {
        using Unsigned = std::make_unsigned_t<T>;
        const uint32_t start = position[lane] & 255;
        const uint32_t count = length[lane] & 255;
        if (count == 0) return 0;
        // Bits past the value's end read as its sign.
        const T sign_fill = a[lane] < 0 ? static_cast<T>(-1) : T{0};
        const T moved = start >= kBits ? sign_fill : static_cast<T>(a[lane] >> start);
        if (count >= kBits || start + count >= kBits) return moved;
        const uint32_t unused = kBits - count;
        return static_cast<T>(static_cast<T>(static_cast<Unsigned>(moved) << unused) >> unused);
    });
}

template <class T>
void insert_field(Warp& warp, const Instruction& instruction, uint32_t active) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    const Register* inputs = &warp.block->launch->program->operand_lists[instruction.list];
    const T* field = warp.lanes<T>(instruction.a);
    const T* base = warp.lanes<T>(instruction.b);
    const uint32_t* position = warp.lanes<uint32_t>(instruction.c);
    const uint32_t* length = warp.lanes<uint32_t>(inputs[0]);
    write_lanes<T>(warp, instruction.destination, active, [=](int lane) -> T {
        const uint32_t start = position[lane] & 255;
        const uint32_t count = length[lane] & 255;
        if (start >= kBits || count == 0) return base[lane];
        const T ones = count >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
        const T mask = static_cast<T>(ones << start);
        return (base[lane] & ~mask) | ((field[lane] << start) & mask);
    });
}

bool decode_extract_field(Decoder& decoder) {
    const Type type = decoder.take_type();
    decoder.expect_operands(4, 4);
    decoder.instruction().destination = decoder.destination(0);
    decoder.instruction().a = decoder.source(1, type);
    decoder.instruction().b = decoder.source(2, Type::U32);
    decoder.instruction().c = decoder.source(3, Type::U32);
    switch (type) {
        case Type::S32:
            decoder.instruction().execute = extract_field<int32_t>;
            return true;
        case Type::U32:
            decoder.instruction().execute = extract_field<uint32_t>;
            return true;
        case Type::S64:
            decoder.instruction().execute = extract_field<int64_t>;
            return true;
        case Type::U64:
            decoder.instruction().execute = extract_field<uint64_t>;
            return true;
        default:
            decoder.unsupported();
    }
}

bool decode_insert_field(Decoder& decoder) {
    const Type type = decoder.take_type();
    decoder.expect_operands(5, 5);
    decoder.instruction().destination = decoder.destination(0);
    decoder.instruction().a = decoder.source(1, type);
    decoder.instruction().b = decoder.source(2, type);
    decoder.instruction().c = decoder.source(3, Type::U32);
    decoder.add_input(decoder.source(4, Type::U32));
    switch (type) {
        case Type::B32:
            decoder.instruction().execute = insert_field<uint32_t>;
            return true;
        case Type::B64:
            decoder.instruction().execute = insert_field<uint64_t>;
            return true;
        default:
            decoder.unsupported();
    }
}

// ---- counting and permuting: results of 32 bits whatever the operand ----

struct PopulationCount {
    static uint32_t apply(uint32_t a) { return static_cast<uint32_t>(__builtin_popcount(a)); }
    static uint32_t apply(uint64_t a) { return static_cast<uint32_t>(__builtin_popcountll(a)); }
};

struct LeadingZeros {
    static uint32_t apply(uint32_t a) { return a == 0 ? 32 : static_cast<uint32_t>(__builtin_clz(a)); }
    static uint32_t apply(uint64_t a) { return a == 0 ? 64 : static_cast<uint32_t>(__builtin_clzll(a)); }
};

// Position of the highest bit that differs from the sign, or all ones.
template <class Signed, bool kShiftAmount>
struct FindHighest {
    template <class T>
    static uint32_t apply(T a) {
        if (std::is_signed<Signed>::value && static_cast<Signed>(a) < 0) a = static_cast<T>(~a);
        if (a == 0) return ~0u;
        const uint32_t zeros = LeadingZeros::apply(a);
        return kShiftAmount ? zeros : static_cast<uint32_t>(8 * sizeof(T) - 1) - zeros;
    }
};

struct ReverseBits {
    template <class T>
    static T apply(T a) {
        T reversed = 0;
        for (size_t bit = 0; bit < 8 * sizeof(T); ++bit)
            reversed |= (a >> bit & 1) << (8 * sizeof(T) - 1 - bit);
        return reversed;
    }
};

template <class T, class Operation>
void count_bits(Warp& warp, const Instruction& instruction, uint32_t active) {
    const T* a = warp.lanes<T>(instruction.a);
    write_lanes<uint32_t>(warp, instruction.destination, active,
                          [=](int lane) { return Operation::apply(a[lane]); });
}

template <class Operation>
bool decode_count(Decoder& decoder) {
    const Type type = decoder.take_type();
    decoder.unary(type);
    decoder.instruction().execute = type == Type::B64 ? static_cast<Handler>(count_bits<uint64_t, Operation>)
                                                      : count_bits<uint32_t, Operation>;
    return true;
}

template <bool kShiftAmount>
Handler find_highest_handler(Type type) {
    switch (type) {
        case Type::U32:
            return count_bits<uint32_t, FindHighest<uint32_t, kShiftAmount>>;
        case Type::S32:
            return count_bits<uint32_t, FindHighest<int32_t, kShiftAmount>>;
        case Type::U64:
            return count_bits<uint64_t, FindHighest<uint64_t, kShiftAmount>>;
        case Type::S64:
            return count_bits<uint64_t, FindHighest<int64_t, kShiftAmount>>;
        default:
            return nullptr;
    }
}

bool decode_find_highest(Decoder& decoder) {
    const Type type = decoder.take_type();
    decoder.unary(type);
    const Handler handler =
        decoder.take("shiftamt") ? find_highest_handler<true>(type) : find_highest_handler<false>(type);
    if (handler == nullptr) decoder.unsupported();
    decoder.instruction().execute = handler;
    return true;
}

bool decode_reverse(Decoder& decoder) {
    const Type type = decoder.take_type();
    decoder.unary(type);
    decoder.instruction().execute =
        type == Type::B64 ? static_cast<Handler>(unary<uint64_t, ReverseBits>) : unary<uint32_t, ReverseBits>;
    return true;
}

// prmt: each byte of the result is one of the eight bytes of b:a, or a copy of its sign.
struct PermuteBytes {
    static uint32_t apply(uint32_t a, uint32_t b, uint32_t selector) {
        const uint64_t both = uint64_t{b} << 32 | a;
        uint32_t result = 0;
        for (int byte = 0; byte < 4; ++byte) {
            const uint32_t choice = selector >> (4 * byte) & 15;
            uint32_t value = static_cast<uint32_t>(both >> (8 * (choice & 7))) & 255;
            if ((choice & 8) != 0) value = (value & 128) != 0 ? 255 : 0;
            result |= value << (8 * byte);
        }
        return result;
    }
};

bool decode_permute(Decoder& decoder) {
    decoder.ternary(
        decoder.take_type());  // the special modes (.f4e and the like) are left over, hence refused
    decoder.instruction().execute = ternary<uint32_t, PermuteBytes>;
    return true;
}

}  // namespace

void register_bit_operations(OpcodeTable& table) {
    table["and"].push_back(decode_logic<And>);
    table["or"].push_back(decode_logic<Or>);
    table["xor"].push_back(decode_logic<Xor>);
    table["not"].push_back(decode_not);
    table["cnot"].push_back(decode_logical_not);
    table["shl"].push_back(decode_shift_left);
    table["shr"].push_back(decode_shift_right);
    table["shf"].push_back(decode_funnel_shift);
    table["lop3"].push_back(decode_three_input_logic);
    table["bfe"].push_back(decode_extract_field);
    table["bfi"].push_back(decode_insert_field);
    table["popc"].push_back(decode_count<PopulationCount>);
    table["clz"].push_back(decode_count<LeadingZeros>);
    table["bfind"].push_back(decode_find_highest);
    table["brev"].push_back(decode_reverse);
    table["prmt"].push_back(decode_permute);
}

}  // namespace ptx
