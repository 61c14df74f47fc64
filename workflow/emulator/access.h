// Where a memory instruction's lanes go: their addresses, checked against what they may touch.
#pragma once

#include <cstdint>

#include "execution.h"
#include "lanes.h"

namespace ptx {

// A store's values or a load's places: the destination, or the list of a vector access.
inline const Register* element_registers(const Warp& warp, const Instruction& instruction) {
    if (instruction.elements == 1 && instruction.list_outputs + instruction.list_inputs == 0)
        return instruction.destination != kNoRegister ? &instruction.destination : &instruction.b;
    return &warp.block->launch->program->operand_lists[instruction.list];
}

// Address of each lane; inactive lanes get that of the first active one, so that loops needn't look at the
// mask.
void lane_addresses(Warp& warp, const Instruction& instruction, uint32_t active, uint64_t* addresses);

// The lanes whose access of `bytes` is inside shared memory and aligned; the others are reported. `verb` is
// "reads" and the like.
uint32_t check_shared(Warp& warp, const Instruction& instruction, uint32_t active, const uint32_t* addresses,
                      uint32_t bytes, uint32_t alignment, const char* verb);

// Likewise for the lanes of `candidates` in one buffer, at `offsets` from its start.
uint32_t check_buffer(Warp& warp, const Instruction& instruction, uint32_t candidates, const Buffer& buffer,
                      const uint64_t* addresses, const uint64_t* offsets, uint32_t bytes, uint32_t alignment,
                      const char* verb);

void report_no_buffer(Warp& warp, const Instruction& instruction, uint32_t lanes, const uint64_t* addresses,
                      uint32_t bytes, const char* verb);

// The lanes of the space that the first active lane's generic address names, and addresses within that space.
struct SpaceLanes {
    Space space;
    uint32_t lanes;
};
SpaceLanes lanes_of_one_space(uint32_t active, const uint64_t* generic);

inline void narrow_addresses(const uint64_t* addresses, uint32_t* narrow) {
    for (int lane = 0; lane < kLanes; ++lane)
        narrow[lane] = static_cast<uint32_t>(addresses[lane]);
}

// Calls body(buffer, offsets, good, all) for each buffer that lanes name: `all` are its lanes, `good` those
// of them that may proceed. Lanes that name no buffer are reported.
template <class Body>
void for_each_buffer(Warp& warp, const Instruction& instruction, uint32_t active, const uint64_t* addresses,
                     uint32_t bytes, uint32_t alignment, const char* verb, Body body) {
    Memory& memory = *warp.block->launch->memory;
    uint64_t offsets[kLanes];
    for (uint32_t rest = active; rest != 0;) {
        const uint64_t first = addresses[__builtin_ctz(rest)];
        Buffer* buffer = memory.buffer_at(first);
        const uint64_t base = first - Memory::offset_in_buffer(first);
        uint64_t outside = 0;
        for (int lane = 0; lane < kLanes; ++lane) {
            offsets[lane] = addresses[lane] - base;
            outside |= offsets[lane] >> kBufferShift;
        }
        uint32_t lanes = rest;
        if (outside != 0) lanes &= lanes_where([&](int lane) { return offsets[lane] >> kBufferShift == 0; });
        if (buffer == nullptr) {
            report_no_buffer(warp, instruction, lanes, addresses, bytes, verb);
            body(static_cast<Buffer*>(nullptr), offsets, 0u, lanes);
        } else {
            const uint32_t good =
                check_buffer(warp, instruction, lanes, *buffer, addresses, offsets, bytes, alignment, verb);
            body(buffer, offsets, good, lanes);
        }
        rest &= ~lanes;
    }
}

}  // namespace ptx
