// Read-modify-write: atom and red on global and shared memory, lane after lane.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "../access.h"
#include "../decoder.h"
#include "../global_check.h"
#include "../half.h"
#include "../lanes.h"
#include "../ordering.h"

namespace ptx {

namespace {

// What becomes of the old value, given the operand and, for cas, the value to put.
struct Add {
    template <class T>
    static T apply(T old, T operand, T) {
        return static_cast<T>(old + operand);
    }
};

struct Minimum {
    template <class T>
    static T apply(T old, T operand, T) {
        return std::min(old, operand);
    }
};

struct Maximum {
    template <class T>
    static T apply(T old, T operand, T) {
        return std::max(old, operand);
    }
};

struct And {
    template <class T>
    static T apply(T old, T operand, T) {
        return old & operand;
    }
};

struct Or {
    template <class T>
    static T apply(T old, T operand, T) {
        return old | operand;
    }
};

struct Xor {
    template <class T>
    static T apply(T old, T operand, T) {
        return old ^ operand;
    }
};

struct Exchange {
    template <class T>
    static T apply(T, T operand, T) {
        return operand;
    }
};

struct CompareAndSwap {
    template <class T>
    static T apply(T old, T operand, T put) {
        return old == operand ? put : old;
    }
};

struct Increment {
    template <class T>
    static T apply(T old, T operand, T) {
        return old >= operand ? T{0} : static_cast<T>(old + 1);
    }
};

struct Decrement {
    template <class T>
    static T apply(T old, T operand, T) {
        return old == 0 || old > operand ? operand : static_cast<T>(old - 1);
    }
};

template <class Format>
struct PackedAdd {
    static uint32_t apply(uint32_t old, uint32_t operand, uint32_t) {
        const uint32_t low = sum(old, operand);
        return low | sum(old >> 16, operand >> 16) << 16;
    }

    static uint32_t sum(uint32_t a, uint32_t b) {
        return Format::narrow(Format::widen(static_cast<uint16_t>(a)) +
                              Format::widen(static_cast<uint16_t>(b)));
    }
};

template <class T, class Operation>
void update(Warp& warp, const Instruction& instruction, uint32_t lanes, uint8_t* base,
            const uint64_t* offsets) {
    const T* operand = warp.lanes<T>(instruction.b);
    const T* put = warp.lanes<T>(instruction.c != kNoRegister ? instruction.c : instruction.b);
    for_each_lane(lanes, [&](int lane) {
        T old;
        std::memcpy(&old, base + offsets[lane], sizeof old);
        const T changed = Operation::apply(old, operand[lane], put[lane]);
        std::memcpy(base + offsets[lane], &changed, sizeof changed);
        if (instruction.destination != kNoRegister) warp.lanes<T>(instruction.destination)[lane] = old;
    });
}

template <class T, class Operation>
void update_shared(Warp& warp, const Instruction& instruction, uint32_t active, const uint64_t* addresses) {
    uint32_t narrow[kLanes];
    narrow_addresses(addresses, narrow);
    const uint32_t good = check_shared(warp, instruction, active, narrow, sizeof(T), sizeof(T), "updates");
    if (good == 0) return;
    if (warp.block->launch->find)
        warp.block->shared_check.strong(warp, instruction, narrow, good, sizeof(T), true);
    update<T, Operation>(warp, instruction, good, warp.block->shared.data(), addresses);
}

template <class T, class Operation>
void update_global(Warp& warp, const Instruction& instruction, uint32_t active, const uint64_t* addresses) {
    for_each_buffer(warp, instruction, active, addresses, sizeof(T), sizeof(T), "updates",
                    [&](Buffer* buffer, const uint64_t* offsets, uint32_t good, uint32_t) {
                        if (good == 0) return;
                        if (warp.block->launch->find)
                            check_global(warp, instruction, *buffer, good, offsets, sizeof(T),
                                         GlobalAccess::Atomic, nullptr);
                        update<T, Operation>(warp, instruction, good, buffer->data, offsets);
                    });
}

template <class T, class Operation>
void atomic(Warp& warp, const Instruction& instruction, uint32_t active) {
    const bool orders = instruction.option[0] != 0;
    uint64_t addresses[kLanes];
    lane_addresses(warp, instruction, active, addresses);
    if (orders) order_by_fence(warp);
    Space space = instruction.space;
    if (space == Space::Generic) {
        // Lanes of several spaces at once don't occur: an atomic's target is one array.
        const SpaceLanes chosen = lanes_of_one_space(active, addresses);
        space = chosen.space;
        if (space == Space::Shared)
            for (uint64_t& address : addresses)
                address -= kSharedWindow;
    }
    if (space == Space::Shared)
        update_shared<T, Operation>(warp, instruction, active, addresses);
    else
        update_global<T, Operation>(warp, instruction, active, addresses);
    if (orders) order_by_fence(warp);
}

template <class Operation>
Handler integer_handler(Type type) {
    switch (type) {
        case Type::U32:
            return atomic<uint32_t, Operation>;
        case Type::S32:
            return atomic<int32_t, Operation>;
        case Type::U64:
            return atomic<uint64_t, Operation>;
        case Type::S64:
            return atomic<int64_t, Operation>;
        default:
            return nullptr;
    }
}

template <class Operation>
Handler bits_handler(Type type) {
    if (type == Type::B32) return atomic<uint32_t, Operation>;
    if (type == Type::B64) return atomic<uint64_t, Operation>;
    return nullptr;
}

Handler add_handler(Type type) {
    switch (type) {
        case Type::F32:
            return atomic<float, Add>;
        case Type::F64:
            return atomic<double, Add>;
        case Type::F16x2:
            return atomic<uint32_t, PackedAdd<Half>>;
        case Type::BF16x2:
            return atomic<uint32_t, PackedAdd<Bfloat>>;
        default:
            return integer_handler<Add>(type);
    }
}

Handler take_operation(Decoder& decoder, Type type) {
    switch (decoder.take_one_of({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}, -1)) {
        case 0:
            decoder.take("noftz");
            return add_handler(type);
        case 1:
            return integer_handler<Minimum>(type);
        case 2:
            return integer_handler<Maximum>(type);
        case 3:
            return bits_handler<And>(type);
        case 4:
            return bits_handler<Or>(type);
        case 5:
            return bits_handler<Xor>(type);
        case 6:
            return bits_handler<Exchange>(type);
        case 7:
            return bits_handler<CompareAndSwap>(type);
        case 8:
            return type == Type::U32 ? atomic<uint32_t, Increment> : nullptr;
        case 9:
            return type == Type::U32 ? atomic<uint32_t, Decrement> : nullptr;
        default:
            return nullptr;
    }
}

bool decode_atomic(Decoder& decoder, bool returns) {
    Instruction& instruction = decoder.instruction();
    const Type type = decoder.take_type();
    const size_t first = returns ? 1 : 0;
    instruction.access = Access::Atomic;
    instruction.space = decoder.take_space();
    instruction.type = type;
    instruction.width = static_cast<uint8_t>(bytes_of(type));
    const bool compares = decoder.has("cas");
    instruction.execute = take_operation(decoder, type);
    if (instruction.execute == nullptr) decoder.unsupported();
    if (decoder.take("acquire") || decoder.take("release") || decoder.take("acq_rel")) {
        instruction.option[0] = 1;
        decoder.program().partial_ordering = true;
    }
    decoder.take("relaxed");
    decoder.take_one_of({"cta", "cluster", "gpu", "sys"}, -1);
    decoder.expect_operands(first + (compares ? 3 : 2), first + (compares ? 3 : 2));
    if (returns && decoder.operand(0) != "_") instruction.destination = decoder.destination(0);
    decoder.address(first);
    instruction.b = decoder.source(first + 1, type);
    if (compares) instruction.c = decoder.source(first + 2, type);
    if (instruction.space != Space::Shared) {
        decoder.program().blocks_communicate = true;
        decoder.program().stores_global = true;
    }
    return true;
}

bool decode_atomic_with_result(Decoder& decoder) {
    return decode_atomic(decoder, true);
}

bool decode_reduction(Decoder& decoder) {
    return decode_atomic(decoder, false);
}

}  // namespace

void register_atomic_operations(OpcodeTable& table) {
    table["atom"].push_back(decode_atomic_with_result);
    table["red"].push_back(decode_reduction);
}

}  // namespace ptx
