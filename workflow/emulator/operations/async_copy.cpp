// cp.async: copies from global to shared memory that end when their thread waits for their group. The data
// are read when the copy starts and land at the wait; whoever touches the place in between is found.
#include <algorithm>
#include <cstring>

#include "../access.h"
#include "../decoder.h"
#include "../lanes.h"

namespace ptx {

namespace {

// Where each lane copies to; the destination's register and offset are apart from the source's.
void destinations(Warp& warp, const Instruction& instruction, uint32_t active, uint32_t* addresses) {
    Instruction to = instruction;
    to.a = instruction.b;
    to.displacement = static_cast<int32_t>(instruction.target);
    to.narrow_address = instruction.option[0] != 0;
    uint64_t wide[kLanes];
    lane_addresses(warp, to, active, wide);
    narrow_addresses(wide, addresses);
}

void count_copy(Warp& warp, const Instruction& instruction, uint32_t reading, const uint64_t* sources) {
    if (reading == 0) return;
    InstructionCount& count = warp.block->launch->counters->of(instruction);
    count.requests += 1;
    count.sectors += count_sectors(sources, reading, instruction.width);
}

// Reads what the lanes want to copy; bytes that aren't read are zeroes.
void fetch(Warp& warp, const Instruction& instruction, uint32_t active, const uint64_t* sources,
           const uint32_t* sizes, PendingCopy* copies) {
    for (uint32_t rest = active; rest != 0;) {
        const uint32_t size = sizes[__builtin_ctz(rest)];
        const uint32_t lanes = rest & lanes_where([&](int lane) { return sizes[lane] == size; });
        rest &= ~lanes;
        if (size == 0) continue;
        for_each_buffer(warp, instruction, lanes, sources, size, instruction.width, "reads",
                        [&](Buffer* buffer, const uint64_t* offsets, uint32_t good, uint32_t all) {
                            for_each_lane(all & ~good,
                                          [&](int lane) { std::memset(copies[lane].data, kJunkByte, size); });
                            for_each_lane(good, [&](int lane) {
                                std::memcpy(copies[lane].data, buffer->data + offsets[lane], size);
                            });
                            if (good != 0 && warp.block->launch->counters != nullptr)
                                Counters::mark_sectors(buffer->sectors_loaded, buffer->bytes, offsets, good,
                                                       size);
                        });
    }
}

void start_copy(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Launch& launch = *warp.block->launch;
    uint64_t sources[kLanes];
    uint32_t targets[kLanes];
    lane_addresses(warp, instruction, active, sources);
    destinations(warp, instruction, active, targets);

    uint32_t sizes[kLanes];
    const uint32_t* wanted = instruction.c != kNoRegister ? warp.lanes<uint32_t>(instruction.c) : nullptr;
    for (int lane = 0; lane < kLanes; ++lane)
        sizes[lane] =
            wanted != nullptr ? std::min<uint32_t>(wanted[lane], instruction.width) : instruction.width;
    if (instruction.option[1] != 0) {  // a predicate tells which lanes ignore the source
        const Register* list = &launch.program->operand_lists[instruction.list];
        const uint32_t ignoring = warp.predicate(list[0]);
        for (int lane = 0; lane < kLanes; ++lane)
            if ((ignoring >> lane & 1) != 0) sizes[lane] = 0;
    }
    if (launch.counters != nullptr)
        count_copy(warp, instruction, active & lanes_where([&](int lane) { return sizes[lane] != 0; }),
                   sources);

    PendingCopy copies[kLanes];
    fetch(warp, instruction, active, sources, sizes, copies);
    const uint32_t good =
        check_shared(warp, instruction, active, targets, instruction.width, instruction.width, "writes");
    if (good != 0 && launch.find)
        warp.block->shared_check.start_copy(warp, instruction, targets, good, instruction.width);
    for_each_lane(good, [&](int lane) {
        PendingCopy& copy = copies[lane];
        copy.address = targets[lane];
        copy.group = warp.copy_groups[lane];
        copy.lane = static_cast<uint8_t>(lane);
        copy.bytes = instruction.width;
        warp.copies.push_back(copy);
    });
}

void commit(Warp& warp, const Instruction&, uint32_t active) {
    for_each_lane(active, [&](int lane) { ++warp.copy_groups[lane]; });
}

// Ends the copies of the active lanes that `is_due` names.
template <class IsDue>
void land(Warp& warp, uint32_t active, IsDue is_due) {
    Block& block = *warp.block;
    auto kept = warp.copies.begin();
    for (const PendingCopy& copy : warp.copies) {
        if ((active >> copy.lane & 1) == 0 || !is_due(copy)) {
            *kept++ = copy;
            continue;
        }
        std::memcpy(&block.shared[copy.address], copy.data, copy.bytes);
        if (block.launch->find) block.shared_check.land(warp, copy.lane, copy.address, copy.bytes);
    }
    warp.copies.erase(kept, warp.copies.end());
}

void wait_group(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint32_t pending = instruction.target;
    land(warp, active,
         [&](const PendingCopy& copy) { return copy.group + pending < warp.copy_groups[copy.lane]; });
}

void wait_all(Warp& warp, const Instruction&, uint32_t active) {
    land(warp, active, [](const PendingCopy&) { return true; });
}

bool decode_start(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    decoder.take_one_of({"ca", "cg"}, 0);
    if (!decoder.take("shared") && !decoder.take("shared::cta")) decoder.unsupported();
    if (!decoder.take("global")) decoder.unsupported();
    for (const char* hint : {"L2::64B", "L2::128B", "L2::256B"})
        decoder.take(hint);
    decoder.expect_operands(3, 4);
    decoder.address(1);
    const Decoder::Place to = decoder.place(0);
    uint64_t bytes = 0;
    if (!decoder.immediate(2, bytes) || (bytes != 4 && bytes != 8 && bytes != 16)) decoder.unsupported();
    instruction.b = to.base;
    instruction.target = static_cast<uint32_t>(to.displacement);
    instruction.option[0] = to.narrow;
    instruction.width = static_cast<uint8_t>(bytes);
    instruction.access = Access::AsyncCopy;
    instruction.space = Space::Global;
    if (decoder.operands() == 4) {
        if (decoder.register_bits(decoder.operand(3)) == 1) {
            instruction.option[1] = 1;
            decoder.add_input(decoder.source(3, Type::Pred));
        } else {
            instruction.c = decoder.source(3, Type::U32);
        }
    }
    instruction.execute = start_copy;
    return true;
}

bool decode_async_copy(Decoder& decoder) {
    if (decoder.has("bulk") || decoder.has("mbarrier") || !decoder.take("async")) return false;
    Instruction& instruction = decoder.instruction();
    if (decoder.take("commit_group")) {
        decoder.expect_operands(0, 0);
        instruction.execute = commit;
        return true;
    }
    if (decoder.take("wait_all")) {
        decoder.expect_operands(0, 0);
        instruction.execute = wait_all;
        return true;
    }
    if (decoder.take("wait_group")) {
        uint64_t pending = 0;
        decoder.expect_operands(1, 1);
        if (!decoder.immediate(0, pending)) decoder.unsupported();
        instruction.target = static_cast<uint32_t>(pending);
        instruction.execute = wait_group;
        return true;
    }
    return decode_start(decoder);
}

}  // namespace

void register_async_copy_operations(OpcodeTable& table) {
    table["cp"].push_back(decode_async_copy);
}

}  // namespace ptx
