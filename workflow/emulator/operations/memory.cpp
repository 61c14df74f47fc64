// Loads and stores of every space: ld, ldu, st.
#include <algorithm>
#include <cstring>

#include "../access.h"
#include "../decoder.h"
#include "../global_check.h"
#include "../lanes.h"
#include "../ordering.h"

namespace ptx {

namespace {

// How an element reaches its register.
enum Form : uint8_t { kWord, kDoubleWord, kExtended };

// Flags in option[1].
enum Flag : uint8_t {
    kStrong = 1,        // volatile, relaxed, acquire, release
    kOrdering = 2,      // acquire or release
    kWideRegister = 4,  // the registers have 64 bits
    kReadOnly = 8,      // .nc: of memory that nobody writes in this launch
};

uint64_t extended(const uint8_t* from, uint32_t width, bool with_sign) {
    uint64_t value = 0;
    std::memcpy(&value, from, width);
    const uint32_t unused = 64 - 8 * width;
    if (with_sign) value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
    return value;
}

void write_extended(Warp& warp, const Instruction& instruction, Register place, int lane,
                    const uint8_t* from) {
    const uint64_t value = extended(from, instruction.width, is_signed(instruction.type));
    if ((instruction.option[1] & kWideRegister) != 0)
        warp.lanes<uint64_t>(place)[lane] = value;
    else
        warp.lanes<uint32_t>(place)[lane] = static_cast<uint32_t>(value);
}

template <class Offset>
void deliver(Warp& warp, const Instruction& instruction, uint32_t active, const uint8_t* base,
             const Offset* offsets) {
    const Register* places = element_registers(warp, instruction);
    for (int element = 0; element < instruction.elements; ++element) {
        const uint8_t* from = base + element * instruction.width;
        const auto word = [=](int lane) {
            uint32_t value;
            std::memcpy(&value, from + offsets[lane], sizeof value);
            return value;
        };
        const auto double_word = [=](int lane) {
            uint64_t value;
            std::memcpy(&value, from + offsets[lane], sizeof value);
            return value;
        };
        switch (instruction.option[0]) {
            case kWord:
                if (active == kAllLanes)
                    write_lanes<uint32_t>(warp, places[element], active, word);
                else
                    for_each_lane(
                        active, [&](int lane) { warp.lanes<uint32_t>(places[element])[lane] = word(lane); });
                break;
            case kDoubleWord:
                for_each_lane(active, [&](int lane) {
                    warp.lanes<uint64_t>(places[element])[lane] = double_word(lane);
                });
                break;
            default:
                for_each_lane(active, [&](int lane) {
                    write_extended(warp, instruction, places[element], lane, from + offsets[lane]);
                });
        }
    }
}

void deliver_junk(Warp& warp, const Instruction& instruction, uint32_t lanes) {
    if (lanes == 0) return;
    const uint32_t nowhere[kLanes] = {};
    uint8_t junk[64];
    std::memset(junk, kJunkByte, sizeof junk);
    deliver(warp, instruction, lanes, junk, nowhere);
}

// What each lane stores, one after another.
struct Staged {
    alignas(16) uint8_t bytes[kLanes * 32];
};

void stage(Warp& warp, const Instruction& instruction, uint32_t active, Staged& staged) {
    const Register* places = element_registers(warp, instruction);
    const uint32_t stride = instruction.bytes();
    for (int element = 0; element < instruction.elements; ++element) {
        uint8_t* to = staged.bytes + element * instruction.width;
        const bool wide = instruction.width == 8;
        for_each_lane(active, [&](int lane) {
            const void* from = wide ? static_cast<const void*>(warp.lanes<uint64_t>(places[element]) + lane)
                                    : warp.lanes<uint32_t>(places[element]) + lane;
            std::memcpy(to + lane * stride, from, instruction.width);
        });
    }
}

uint64_t words_of(const Instruction& instruction) {
    return (instruction.bytes() + 3) / 4;
}

uint32_t count_lanes(uint32_t active) {
    return static_cast<uint32_t>(__builtin_popcount(active));
}

// ---- global memory ----

void count_global(Warp& warp, const Instruction& instruction, uint32_t active, const uint64_t* addresses) {
    InstructionCount& count = warp.block->launch->counters->of(instruction);
    count.requests += 1;
    count.sectors += count_sectors(addresses, active, instruction.bytes());
    count.words += count_lanes(active) * words_of(instruction);
}

GlobalAccess read_access(const Instruction& instruction) {
    if ((instruction.option[1] & kReadOnly) != 0) return GlobalAccess::ReadOnly;
    return (instruction.option[1] & kStrong) != 0 ? GlobalAccess::StrongRead : GlobalAccess::Read;
}

void load_global(Warp& warp, const Instruction& instruction, uint32_t active, const uint64_t* addresses) {
    const Launch& launch = *warp.block->launch;
    const uint32_t bytes = instruction.bytes();
    const bool constant = instruction.space == Space::Constant;
    if (launch.counters != nullptr && !constant) count_global(warp, instruction, active, addresses);
    for_each_buffer(
        warp, instruction, active, addresses, bytes, bytes, "reads",
        [&](Buffer* buffer, const uint64_t* offsets, uint32_t good, uint32_t all) {
            deliver_junk(warp, instruction, all & ~good);
            if (good == 0) return;
            if (launch.find && launch.program->stores_global)
                check_global(warp, instruction, *buffer, good, offsets, bytes, read_access(instruction),
                             nullptr);
            if (launch.counters != nullptr && !constant)
                Counters::mark_sectors(buffer->sectors_loaded, buffer->bytes, offsets, good, bytes);
            deliver(warp, instruction, good, buffer->data, offsets);
        });
}

void store_global(Warp& warp, const Instruction& instruction, uint32_t active, const uint64_t* addresses) {
    const Launch& launch = *warp.block->launch;
    const uint32_t bytes = instruction.bytes();
    if (launch.counters != nullptr) count_global(warp, instruction, active, addresses);
    Staged staged;
    stage(warp, instruction, active, staged);
    for_each_buffer(
        warp, instruction, active, addresses, bytes, bytes, "writes",
        [&](Buffer* buffer, const uint64_t* offsets, uint32_t good, uint32_t) {
            if (good == 0) return;
            if (launch.counters != nullptr)
                Counters::mark_sectors(buffer->sectors_stored, buffer->bytes, offsets, good, bytes);
            if (launch.find) {
                check_global(
                    warp, instruction, *buffer, good, offsets, bytes,
                    (instruction.option[1] & kStrong) != 0 ? GlobalAccess::StrongWrite : GlobalAccess::Write,
                    staged.bytes);
                return;
            }
            for_each_lane(good, [&](int lane) {
                std::memcpy(buffer->data + offsets[lane], staged.bytes + lane * bytes, bytes);
            });
        });
}

// ---- shared memory ----

void count_shared(Warp& warp, const Instruction& instruction, uint32_t active, const uint32_t* addresses) {
    const Launch& launch = *warp.block->launch;
    InstructionCount& count = launch.counters->of(instruction);
    count.words += count_lanes(active) * words_of(instruction);
    const InstructionNote& note = launch.program->notes[instruction.index];
    if (note.merged_bytes == 0) return;  // part of a neighbour
    uint32_t starts[kLanes];
    for (int lane = 0; lane < kLanes; ++lane)
        starts[lane] = addresses[lane] - note.merged_shift;
    const SharedCost cost = instruction.access == Access::Load
                                ? shared_load_cost(starts, active, note.merged_bytes)
                                : shared_store_cost(starts, active, note.merged_bytes);
    count.requests += 1;
    count.wavefronts += cost.wavefronts;
    count.phases += cost.phases;
}

void load_shared(Warp& warp, const Instruction& instruction, uint32_t active,
                 const uint64_t* wide_addresses) {
    const Launch& launch = *warp.block->launch;
    uint32_t addresses[kLanes];
    narrow_addresses(wide_addresses, addresses);
    if (launch.counters != nullptr) count_shared(warp, instruction, active, addresses);
    const uint32_t bytes = instruction.bytes();
    const uint32_t good = check_shared(warp, instruction, active, addresses, bytes, bytes, "reads");
    deliver_junk(warp, instruction, active & ~good);
    if (good == 0) return;
    if (launch.find) {
        if ((instruction.option[1] & kStrong) != 0)
            warp.block->shared_check.strong(warp, instruction, addresses, good, bytes, false);
        else
            warp.block->shared_check.load(warp, instruction, addresses, good, bytes);
    }
    deliver(warp, instruction, good, warp.block->shared.data(), addresses);
}

void store_shared(Warp& warp, const Instruction& instruction, uint32_t active,
                  const uint64_t* wide_addresses) {
    const Launch& launch = *warp.block->launch;
    uint32_t addresses[kLanes];
    narrow_addresses(wide_addresses, addresses);
    if (launch.counters != nullptr) count_shared(warp, instruction, active, addresses);
    const uint32_t bytes = instruction.bytes();
    const uint32_t good = check_shared(warp, instruction, active, addresses, bytes, bytes, "writes");
    Staged staged;
    stage(warp, instruction, good, staged);
    const bool strong = (instruction.option[1] & kStrong) != 0;
    if (launch.find && !strong) {
        warp.block->shared_check.store(warp, instruction, addresses, good, bytes, staged.bytes);
        return;
    }
    if (launch.find) warp.block->shared_check.strong(warp, instruction, addresses, good, bytes, true);
    for_each_lane(good, [&](int lane) {
        std::memcpy(&warp.block->shared[addresses[lane]], staged.bytes + lane * bytes, bytes);
    });
}

// ---- local memory and parameters ----

// Where a lane's local variable lies, or null (reported) when it is none.
uint8_t* local_place(Warp& warp, const Instruction& instruction, int lane, uint64_t address,
                     const char* verb) {
    const Launch& launch = *warp.block->launch;
    const uint64_t size = launch.program->local_bytes;
    if (address + instruction.bytes() <= size && (address & (instruction.bytes() - 1)) == 0)
        return &warp.block->local[warp.thread(lane) * size + address];
    const bool outside = address + instruction.bytes() > size;
    const FindingKind kind = outside ? FindingKind::OutOfBounds : FindingKind::Misaligned;
    if (launch.findings->first(kind, instruction, *launch.program))
        launch.findings->describe(warp, lane,
                                  std::string(verb) + " " + std::to_string(instruction.bytes()) +
                                      " bytes at byte " + std::to_string(static_cast<int64_t>(address)) +
                                      " of its local memory, which has " + std::to_string(size));
    return nullptr;
}

void load_local(Warp& warp, const Instruction& instruction, uint32_t active, const uint64_t* addresses) {
    const uint8_t* base = warp.block->local.data();
    uint64_t offsets[kLanes] = {};
    uint32_t good = 0;
    for_each_lane(active, [&](int lane) {
        const uint8_t* place = local_place(warp, instruction, lane, addresses[lane], "reads");
        if (place == nullptr) return;
        offsets[lane] = static_cast<uint64_t>(place - base);
        good |= 1u << lane;
    });
    deliver_junk(warp, instruction, active & ~good);
    if (good != 0) deliver(warp, instruction, good, base, offsets);
}

void store_local(Warp& warp, const Instruction& instruction, uint32_t active, const uint64_t* addresses) {
    Staged staged;
    stage(warp, instruction, active, staged);
    const uint32_t bytes = instruction.bytes();
    for_each_lane(active, [&](int lane) {
        uint8_t* place = local_place(warp, instruction, lane, addresses[lane], "writes");
        if (place != nullptr) std::memcpy(place, staged.bytes + lane * bytes, bytes);
    });
}

void load_parameter(Warp& warp, const Instruction& instruction, uint32_t active, const uint64_t* addresses) {
    const Launch& launch = *warp.block->launch;
    const uint64_t size = launch.program->parameter_bytes;
    uint32_t good = 0;
    for_each_lane(active, [&](int lane) {
        if (addresses[lane] + instruction.bytes() <= size) {
            good |= 1u << lane;
            return;
        }
        if (launch.findings->first(FindingKind::OutOfBounds, instruction, *launch.program))
            launch.findings->describe(warp, lane,
                                      "reads byte " + std::to_string(static_cast<int64_t>(addresses[lane])) +
                                          " of the parameters, which have " + std::to_string(size));
    });
    deliver_junk(warp, instruction, active & ~good);
    if (good != 0) deliver(warp, instruction, good, launch.parameters, addresses);
}

// A parameter at a place known beforehand is the same for all lanes.
void broadcast_parameter(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint8_t* from = warp.block->launch->parameters + instruction.target;
    const Register* places = element_registers(warp, instruction);
    for (int element = 0; element < instruction.elements; ++element) {
        const uint64_t value =
            extended(from + element * instruction.width, instruction.width, is_signed(instruction.type));
        if ((instruction.option[1] & kWideRegister) != 0)
            write_lanes<uint64_t>(warp, places[element], active, [=](int) { return value; });
        else
            write_lanes<uint32_t>(warp, places[element], active,
                                  [=](int) { return static_cast<uint32_t>(value); });
    }
}

using SpaceFunction = void (*)(Warp&, const Instruction&, uint32_t, const uint64_t*);

// A release orders what came before it, an acquire what comes after.
void order_before_store(Warp& warp, const Instruction& instruction) {
    if ((instruction.option[1] & kOrdering) != 0 && instruction.access == Access::Store) order_by_fence(warp);
}

void order_after_load(Warp& warp, const Instruction& instruction) {
    if ((instruction.option[1] & kOrdering) != 0 && instruction.access == Access::Load) order_by_fence(warp);
}

template <SpaceFunction kFunction>
void in_space(Warp& warp, const Instruction& instruction, uint32_t active) {
    uint64_t addresses[kLanes];
    lane_addresses(warp, instruction, active, addresses);
    order_before_store(warp, instruction);
    kFunction(warp, instruction, active, addresses);
    order_after_load(warp, instruction);
}

// A generic address names its space; the lanes of each are taken together.
template <SpaceFunction kGlobal, SpaceFunction kShared, SpaceFunction kLocal, SpaceFunction kParameter>
void in_generic_space(Warp& warp, const Instruction& instruction, uint32_t active) {
    uint64_t generic[kLanes];
    lane_addresses(warp, instruction, active, generic);
    order_before_store(warp, instruction);
    for (uint32_t rest = active; rest != 0;) {
        const SpaceLanes chosen = lanes_of_one_space(rest, generic);
        uint64_t addresses[kLanes];
        const uint64_t window = chosen.space == Space::Global ? 0 : kWindowBytes - 1;
        const uint64_t first = generic[__builtin_ctz(chosen.lanes)];
        for (int lane = 0; lane < kLanes; ++lane) {
            const bool inside = (chosen.lanes >> lane & 1) != 0;
            const uint64_t address = inside ? generic[lane] : first;
            addresses[lane] = window != 0 ? address & window : address;
        }
        switch (chosen.space) {
            case Space::Shared:
                kShared(warp, instruction, chosen.lanes, addresses);
                break;
            case Space::Local:
                kLocal(warp, instruction, chosen.lanes, addresses);
                break;
            case Space::Parameter:
                kParameter(warp, instruction, chosen.lanes, addresses);
                break;
            default:
                kGlobal(warp, instruction, chosen.lanes, addresses);
        }
        rest &= ~chosen.lanes;
    }
    order_after_load(warp, instruction);
}

// Parameters aren't writable: such a store shows as one outside every buffer.
void store_parameter(Warp& warp, const Instruction& instruction, uint32_t active, const uint64_t* addresses) {
    uint64_t generic[kLanes];
    for (int lane = 0; lane < kLanes; ++lane)
        generic[lane] = addresses[lane] + kParameterWindow;
    report_no_buffer(warp, instruction, active, generic, instruction.bytes(), "writes");
}

// ---- decoding ----

// Cache hints change no value.
void drop_cache_hints(Decoder& decoder) {
    for (const char* hint : {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "weak"})
        decoder.take(hint);
    for (const char* hint :
         {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
          "L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::64B", "L2::128B", "L2::256B"})
        decoder.take(hint);
}

void take_strength(Decoder& decoder, Instruction& instruction) {
    const bool ordering = decoder.take("acquire") || decoder.take("release");
    const bool scoped = ordering || decoder.take("relaxed") || decoder.take("mmio");
    if (scoped) decoder.take_one_of({"cta", "cluster", "gpu", "sys"}, -1);
    if (!scoped && !decoder.take("volatile")) return;
    instruction.option[1] |= kStrong;
    decoder.note().is_volatile = true;
    const bool within_block = instruction.space == Space::Shared || instruction.space == Space::Local;
    if (!within_block) decoder.program().blocks_communicate = true;
    if (!ordering) return;
    instruction.option[1] |= kOrdering;
    decoder.program().partial_ordering = true;
}

void take_shape(Decoder& decoder, Instruction& instruction) {
    instruction.elements = static_cast<uint8_t>(1 << (decoder.take_one_of({"v2", "v4", "v8"}, -1) + 1));
    instruction.type = decoder.take_type();
    instruction.width = static_cast<uint8_t>(bytes_of(instruction.type));
    if (instruction.width == 0 || instruction.bytes() > 32) decoder.unsupported();
}

// Narrow accesses need finer granules to be watched in.
void note_granule(Decoder& decoder, const Instruction& instruction) {
    const uint32_t shift = instruction.width >= 4 ? 2 : instruction.width == 2 ? 1 : 0;
    Program& program = decoder.program();
    const Space space = instruction.space;
    if (space == Space::Shared || space == Space::Generic)
        program.shared_granule_shift = std::min(program.shared_granule_shift, shift);
    if (space == Space::Global || space == Space::Generic)
        program.global_granule_shift = std::min(program.global_granule_shift, shift);
}

bool decode_load(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    decoder.expect_operands(2, 2);
    instruction.space = decoder.take_space();
    take_strength(decoder, instruction);
    if (decoder.take("nc") || decoder.opcode() == "ldu") instruction.option[1] |= kReadOnly;
    drop_cache_hints(decoder);
    take_shape(decoder, instruction);
    instruction.access = Access::Load;
    decoder.address(1);

    uint8_t register_bits = 0;
    const std::vector<std::string> names = decoder.pieces(0);
    if (names.size() != instruction.elements) decoder.unsupported();
    for (const std::string& name : names) {
        const uint8_t bits = decoder.register_bits(name);
        if (bits != 0) register_bits = bits;
    }
    if (register_bits == 0) register_bits = instruction.width == 8 ? 64 : 32;
    for (const std::string& name : names) {
        const Register place = name == "_" ? decoder.scratch(register_bits) : decoder.destination(name);
        if (instruction.elements == 1)
            instruction.destination = place;
        else
            decoder.add_output(place);
    }
    if (instruction.width == 4 && register_bits == 32)
        instruction.option[0] = kWord;
    else if (instruction.width == 8 && register_bits == 64)
        instruction.option[0] = kDoubleWord;
    else if (instruction.width < 8)
        instruction.option[0] = kExtended;
    else
        decoder.unsupported();
    if (register_bits == 64) instruction.option[1] |= kWideRegister;

    note_granule(decoder, instruction);
    switch (instruction.space) {
        case Space::Global:
        case Space::Constant:
            instruction.execute = in_space<load_global>;
            break;
        case Space::Shared:
            instruction.execute = in_space<load_shared>;
            break;
        case Space::Local:
            instruction.execute = in_space<load_local>;
            break;
        case Space::Parameter: {
            uint64_t offset = 0;
            const bool known = decoder.fixed_address(1, offset) &&
                               offset + instruction.bytes() <= decoder.program().parameter_bytes;
            instruction.target = static_cast<uint32_t>(offset);
            instruction.execute =
                known ? static_cast<Handler>(broadcast_parameter) : in_space<load_parameter>;
            break;
        }
        case Space::Generic:
            instruction.execute = in_generic_space<load_global, load_shared, load_local, load_parameter>;
    }
    return true;
}

bool decode_store(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    decoder.expect_operands(2, 2);
    instruction.space = decoder.take_space();
    take_strength(decoder, instruction);
    drop_cache_hints(decoder);
    take_shape(decoder, instruction);
    instruction.access = Access::Store;
    decoder.address(0);
    const std::vector<std::string> names = decoder.pieces(1);
    if (names.size() != instruction.elements) decoder.unsupported();
    for (const std::string& name : names) {
        const uint8_t bits = decoder.register_bits(name);
        if (bits != 0 && (bits == 64) != (instruction.width == 8)) decoder.unsupported();
        const Register place = decoder.source(name, instruction.type);
        if (instruction.elements == 1)
            instruction.b = place;
        else
            decoder.add_input(place);
    }
    note_granule(decoder, instruction);
    if (instruction.space == Space::Global || instruction.space == Space::Generic)
        decoder.program().stores_global = true;
    switch (instruction.space) {
        case Space::Global:
            instruction.execute = in_space<store_global>;
            break;
        case Space::Shared:
            instruction.execute = in_space<store_shared>;
            break;
        case Space::Local:
            instruction.execute = in_space<store_local>;
            break;
        case Space::Generic:
            instruction.execute = in_generic_space<store_global, store_shared, store_local, store_parameter>;
            break;
        default:
            decoder.unsupported();
    }
    return true;
}

}  // namespace

void register_memory_operations(OpcodeTable& table) {
    table["ld"].push_back(decode_load);
    table["ldu"].push_back(decode_load);
    table["st"].push_back(decode_store);
}

}  // namespace ptx
