// Exchanges between the lanes of a warp: shfl, vote, match, redux, elect, activemask, bar.warp.sync.
#include <algorithm>
#include <cstring>
#include <string>

#include "../decoder.h"
#include "../lanes.h"
#include "../ordering.h"

namespace ptx {

namespace {

enum ShuffleMode : uint8_t { kUp, kDown, kButterfly, kIndex };

const Register* list_of(const Warp& warp, const Instruction& instruction) {
    return &warp.block->launch->program->operand_lists[instruction.list];
}

// The mask of the lanes that execute together; all have the same.
uint32_t member_mask(const Warp& warp, const Instruction& instruction, uint32_t active) {
    const auto* masks = reinterpret_cast<const uint32_t*>(warp.registers + instruction.c);
    return masks[__builtin_ctz(active)];
}

// What a lane gets from one that its mask doesn't name, or that has ended, is undefined: junk. It is reported
// where that lane is here too; otherwise the kernel may well know that there is nothing to be had.
void spoil_unknown(Warp& warp, const Instruction& instruction, uint32_t active, uint32_t members,
                   const int* source, uint32_t* result) {
    const Launch& launch = *warp.block->launch;
    for_each_lane(active & members, [&](int lane) {
        const uint32_t from = 1u << source[lane];
        if ((from & active & members) != 0) return;
        std::memset(&result[lane], kJunkByte, sizeof result[lane]);
        if (!launch.find || (from & members) != 0 || (from & warp.gathered) == 0) return;
        if (!launch.findings->first(FindingKind::UninitialisedRead, instruction, *launch.program)) return;
        launch.findings->describe(warp, lane,
                                  "takes a value from lane " + std::to_string(source[lane]) +
                                      " of its warp, which its mask doesn't name",
                                  static_cast<int>(warp.thread(source[lane])));
    });
}

// Each lane reads the lane that its argument names, if that lies in its segment, else itself.
template <uint8_t kMode>
void shuffle(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t* a = warp.lanes<uint32_t>(instruction.a);
    const uint32_t* argument = warp.lanes<uint32_t>(instruction.b);
    const Register* list = list_of(warp, instruction);
    const uint32_t* clamp_and_segment = warp.lanes<uint32_t>(list[instruction.list_outputs]);
    int source[kLanes];
    uint32_t in_range[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
        const int value = static_cast<int>(argument[lane] & 31);
        const int clamp = static_cast<int>(clamp_and_segment[lane] & 31);
        const int segment = static_cast<int>(clamp_and_segment[lane] >> 8 & 31);
        const int last = (lane & segment) | (clamp & ~segment);
        const int wanted = kMode == kUp          ? lane - value
                           : kMode == kDown      ? lane + value
                           : kMode == kButterfly ? lane ^ value
                                                 : (lane & segment) | (value & ~segment);
        in_range[lane] = (kMode == kUp ? wanted >= last : wanted <= last) ? 1 : 0;
        source[lane] = (in_range[lane] != 0 ? wanted : lane) & 31;
    }
    uint32_t result[kLanes];
    for (int lane = 0; lane < kLanes; ++lane)
        result[lane] = a[source[lane]];
    const uint32_t members = member_mask(warp, instruction, active);
    if ((active & members) != kAllLanes) spoil_unknown(warp, instruction, active, members, source, result);
    write_lanes<uint32_t>(warp, instruction.destination, active, [&](int lane) { return result[lane]; });
    if (instruction.list_outputs == 0) return;
    write_predicate(warp, list[0], active, lanes_where([&](int lane) { return in_range[lane] != 0; }));
}

Handler shuffle_handler(int mode) {
    switch (mode) {
        case kUp:
            return shuffle<kUp>;
        case kDown:
            return shuffle<kDown>;
        case kButterfly:
            return shuffle<kButterfly>;
        default:
            return shuffle<kIndex>;
    }
}

bool decode_shuffle(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    if (!decoder.take("sync")) return false;
    decoder.take_type();
    decoder.expect_operands(5, 5);
    const int mode = decoder.take_one_of({"up", "down", "bfly", "idx"}, -1);
    if (mode < 0) decoder.unsupported();
    const std::vector<std::string> results = decoder.pieces(0);
    instruction.destination = decoder.destination(results[0]);
    if (results.size() == 2) decoder.add_output(decoder.destination(results[1]));
    instruction.a = decoder.source(1, Type::B32);
    instruction.b = decoder.source(2, Type::B32);
    decoder.add_input(decoder.source(3, Type::B32));
    instruction.c = decoder.source(4, Type::B32);
    instruction.kind = Kind::Converged;
    instruction.execute = shuffle_handler(mode);
    return true;
}

enum VoteMode : uint8_t { kAll, kAny, kUniform, kBallot };

void vote(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t predicate = warp.predicate(instruction.a) ^ (instruction.option[1] != 0 ? kAllLanes : 0);
    const uint32_t ayes = predicate & active;
    bool carried = false;
    switch (instruction.option[0]) {
        case kBallot:
            write_lanes<uint32_t>(warp, instruction.destination, active, [=](int) { return ayes; });
            return;
        case kAll:
            carried = ayes == active;
            break;
        case kAny:
            carried = ayes != 0;
            break;
        default:
            carried = ayes == 0 || ayes == active;
    }
    write_predicate(warp, instruction.destination, active, carried ? kAllLanes : 0);
}

bool decode_vote(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    if (!decoder.take("sync")) return false;
    decoder.take_type();
    decoder.expect_operands(3, 3);
    const int mode = decoder.take_one_of({"all", "any", "uni", "ballot"}, -1);
    if (mode < 0) decoder.unsupported();
    instruction.option[0] = static_cast<uint8_t>(mode);
    instruction.destination = decoder.destination(0);
    std::string predicate = decoder.operand(1);
    instruction.option[1] = predicate[0] == '!';
    if (predicate[0] == '!') predicate.erase(0, 1);
    instruction.a = decoder.source(predicate, Type::Pred);
    instruction.c = decoder.source(2, Type::B32);
    instruction.kind = Kind::Converged;
    instruction.execute = vote;
    return true;
}

// The lanes whose value equals each lane's own; .all wants one value in all of them.
template <class T>
void match(Warp& warp, const Instruction& instruction, uint32_t active) {
    const T* a = warp.lanes<T>(instruction.a);
    uint32_t equal[kLanes] = {};
    bool all = true;
    for_each_lane(active, [&](int lane) {
        equal[lane] = active & lanes_where([=](int other) { return a[other] == a[lane]; });
        all &= equal[lane] == active;
    });
    const bool wants_all = instruction.option[0] != 0;
    write_lanes<uint32_t>(warp, instruction.destination, active,
                          [&](int lane) { return wants_all ? (all ? active : 0u) : equal[lane]; });
    if (instruction.list_outputs != 0)
        write_predicate(warp, list_of(warp, instruction)[0], active, all ? kAllLanes : 0);
}

bool decode_match(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    if (!decoder.take("sync")) return false;
    const Type type = decoder.take_type();
    decoder.expect_operands(3, 3);
    const int mode = decoder.take_one_of({"any", "all"}, -1);
    if (mode < 0) decoder.unsupported();
    instruction.option[0] = static_cast<uint8_t>(mode);
    const std::vector<std::string> results = decoder.pieces(0);
    instruction.destination = decoder.destination(results[0]);
    if (results.size() == 2) decoder.add_output(decoder.destination(results[1]));
    instruction.a = decoder.source(1, type);
    instruction.c = decoder.source(2, Type::B32);
    instruction.kind = Kind::Converged;
    instruction.execute = bytes_of(type) == 8 ? static_cast<Handler>(match<uint64_t>) : match<uint32_t>;
    return true;
}

struct Sum {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
    }
};

struct Least {
    template <class T>
    static T apply(T a, T b) {
        return std::min(a, b);
    }
};

struct Greatest {
    template <class T>
    static T apply(T a, T b) {
        return std::max(a, b);
    }
};

struct All {
    template <class T>
    static T apply(T a, T b) {
        return a & b;
    }
};

struct Any {
    template <class T>
    static T apply(T a, T b) {
        return a | b;
    }
};

struct Parity {
    template <class T>
    static T apply(T a, T b) {
        return a ^ b;
    }
};

template <class T, class Operation>
void reduce(Warp& warp, const Instruction& instruction, uint32_t active) {
    const T* a = warp.lanes<T>(instruction.a);
    T total = a[__builtin_ctz(active)];
    for_each_lane(active & (active - 1), [&](int lane) { total = Operation::apply(total, a[lane]); });
    write_lanes<T>(warp, instruction.destination, active, [=](int) { return total; });
}

template <class Operation>
Handler reduce_handler(Type type) {
    return type == Type::S32 ? static_cast<Handler>(reduce<int32_t, Operation>) : reduce<uint32_t, Operation>;
}

bool decode_reduce(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    if (!decoder.take("sync")) return false;
    const Type type = decoder.take_type();
    if (type != Type::U32 && type != Type::S32 && type != Type::B32) decoder.unsupported();
    decoder.expect_operands(3, 3);
    switch (decoder.take_one_of({"add", "min", "max", "and", "or", "xor"}, -1)) {
        case 0:
            instruction.execute = reduce_handler<Sum>(type);
            break;
        case 1:
            instruction.execute = reduce_handler<Least>(type);
            break;
        case 2:
            instruction.execute = reduce_handler<Greatest>(type);
            break;
        case 3:
            instruction.execute = reduce_handler<All>(type);
            break;
        case 4:
            instruction.execute = reduce_handler<Any>(type);
            break;
        case 5:
            instruction.execute = reduce_handler<Parity>(type);
            break;
        default:
            decoder.unsupported();
    }
    instruction.destination = decoder.destination(0);
    instruction.a = decoder.source(1, type);
    instruction.c = decoder.source(2, Type::B32);
    instruction.kind = Kind::Converged;
    return true;
}

void active_mask(Warp& warp, const Instruction& instruction, uint32_t active) {
    write_lanes<uint32_t>(warp, instruction.destination, active, [=](int) { return active; });
}

bool decode_active_mask(Decoder& decoder) {
    decoder.take_type();
    decoder.expect_operands(1, 1);
    decoder.instruction().destination = decoder.destination(0);
    decoder.instruction().execute = active_mask;
    return true;
}

// The lowest lane is elected.
void elect(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t leader = static_cast<uint32_t>(__builtin_ctz(active));
    if (instruction.destination != kNoRegister)
        write_lanes<uint32_t>(warp, instruction.destination, active, [=](int) { return leader; });
    write_predicate(warp, list_of(warp, instruction)[0], active, 1u << leader);
}

bool decode_elect(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    if (!decoder.take("sync")) return false;
    decoder.expect_operands(2, 2);
    const std::vector<std::string> results = decoder.pieces(0);
    if (results.size() != 2) decoder.unsupported();
    if (results[0] != "_") instruction.destination = decoder.destination(results[0]);
    decoder.add_output(decoder.destination(results[1]));
    instruction.c = decoder.source(1, Type::B32);
    instruction.kind = Kind::Converged;
    instruction.execute = elect;
    return true;
}

void meet(Warp& warp, const Instruction& instruction, uint32_t active) {
    order_some_lanes(warp, active & member_mask(warp, instruction, active));
}

bool decode_warp_barrier(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    if (!decoder.take("warp")) return false;
    if (!decoder.take("sync")) decoder.unsupported();
    decoder.expect_operands(1, 1);
    instruction.c = decoder.source(0, Type::B32);
    uint64_t mask = 0;
    const bool names_all = decoder.immediate(0, mask) && static_cast<uint32_t>(mask) == kAllLanes;
    if (!names_all) decoder.program().lane_ordering = true;
    instruction.kind = Kind::Converged;
    instruction.execute = meet;
    return true;
}

}  // namespace

void register_warp_operations(OpcodeTable& table) {
    table["shfl"].push_back(decode_shuffle);
    table["vote"].push_back(decode_vote);
    table["match"].push_back(decode_match);
    table["redux"].push_back(decode_reduce);
    table["activemask"].push_back(decode_active_mask);
    table["elect"].push_back(decode_elect);
    table["bar"].push_back(decode_warp_barrier);
}

}  // namespace ptx
