#include "access.h"

#include <cinttypes>
#include <cstdio>
#include <string>

namespace ptx {

namespace {

std::string bytes_text(int64_t offset, uint32_t bytes) {
    const int64_t last = offset + bytes - 1;
    return "bytes " + std::to_string(offset) + " to " + std::to_string(last);
}

void report_misaligned(Warp& warp, const Instruction& instruction, int lane, uint64_t offset, uint32_t bytes,
                       uint32_t alignment, const char* verb, const std::string& where) {
    Findings& findings = *warp.block->launch->findings;
    if (!findings.first(FindingKind::Misaligned, instruction, *warp.block->launch->program)) return;
    findings.describe(warp, lane,
                      std::string(verb) + " " + std::to_string(bytes) + " bytes at byte " +
                          std::to_string(offset) + " of " + where + ", which isn't a multiple of " +
                          std::to_string(alignment));
}

}  // namespace

void lane_addresses(Warp& warp, const Instruction& instruction, uint32_t active, uint64_t* addresses) {
    const int64_t displacement = instruction.displacement;
    if (instruction.narrow_address) {
        const uint32_t* base = warp.lanes<uint32_t>(instruction.a);
        for (int lane = 0; lane < kLanes; ++lane)
            addresses[lane] = static_cast<uint32_t>(base[lane] + static_cast<uint32_t>(displacement));
    } else {
        const uint64_t* base = warp.lanes<uint64_t>(instruction.a);
        for (int lane = 0; lane < kLanes; ++lane)
            addresses[lane] = base[lane] + static_cast<uint64_t>(displacement);
    }
    if (active == kAllLanes) return;
    const uint64_t first = addresses[__builtin_ctz(active)];
    const uint32_t* mask = warp.expand(active);
    for (int lane = 0; lane < kLanes; ++lane)
        addresses[lane] = mask[lane] != 0 ? addresses[lane] : first;
}

uint32_t check_shared(Warp& warp, const Instruction& instruction, uint32_t active, const uint32_t* addresses,
                      uint32_t bytes, uint32_t alignment, const char* verb) {
    const Launch& launch = *warp.block->launch;
    const uint32_t size = launch.shared_bytes;
    const uint32_t last_start = size >= bytes ? size - bytes : 0;
    uint32_t low_bits = 0;
    uint32_t beyond = size >= bytes ? 0 : 1;
    for (int lane = 0; lane < kLanes; ++lane) {
        low_bits |= addresses[lane];
        beyond |= addresses[lane] > last_start ? 1 : 0;
    }
    if (beyond == 0 && (low_bits & (alignment - 1)) == 0) return active;

    uint32_t good = active;
    for_each_lane(active, [&](int lane) {
        const uint32_t address = addresses[lane];
        if (uint64_t{address} + bytes > size) {
            good &= ~(1u << lane);
            if (launch.findings->first(FindingKind::OutOfBounds, instruction, *launch.program))
                launch.findings->describe(warp, lane,
                                          std::string(verb) + " " +
                                              bytes_text(static_cast<int32_t>(address), bytes) +
                                              " of shared memory, which has " + std::to_string(size));
        } else if ((address & (alignment - 1)) != 0) {
            good &= ~(1u << lane);
            report_misaligned(warp, instruction, lane, address, bytes, alignment, verb, "shared memory");
        }
    });
    return good;
}

uint32_t check_buffer(Warp& warp, const Instruction& instruction, uint32_t candidates, const Buffer& buffer,
                      const uint64_t* addresses, const uint64_t* offsets, uint32_t bytes, uint32_t alignment,
                      const char* verb) {
    uint64_t low_bits = 0;
    uint64_t beyond = 0;
    const int64_t last_start = static_cast<int64_t>(buffer.bytes) - bytes;
    for (int lane = 0; lane < kLanes; ++lane) {
        low_bits |= offsets[lane];
        beyond |= offsets[lane] | static_cast<uint64_t>(last_start - static_cast<int64_t>(offsets[lane]));
    }
    if (beyond >> 63 == 0 && (low_bits & (alignment - 1)) == 0) return candidates;

    const Launch& launch = *warp.block->launch;
    uint32_t good = candidates;
    for_each_lane(candidates, [&](int lane) {
        const uint64_t offset = offsets[lane];
        if (offset + bytes > buffer.bytes) {
            good &= ~(1u << lane);
            if (!launch.findings->first(FindingKind::OutOfBounds, instruction, *launch.program)) return;
            // An address before a buffer's start lies at the far end of the window of the buffer before it.
            const bool before_next = offset >> (kBufferShift - 1) != 0;
            const Buffer* next =
                before_next ? launch.memory->buffer_at(addresses[lane] + (uint64_t{1} << 35)) : nullptr;
            const Buffer& named = next != nullptr ? *next : buffer;
            const int64_t shown = next != nullptr
                                      ? static_cast<int64_t>(offset) - (int64_t{1} << kBufferShift)
                                      : static_cast<int64_t>(offset);
            launch.findings->describe(warp, lane,
                                      std::string(verb) + " " + bytes_text(shown, bytes) + " of buffer " +
                                          named.name + ", which has " + std::to_string(named.bytes));
        } else if ((offset & (alignment - 1)) != 0) {
            good &= ~(1u << lane);
            report_misaligned(warp, instruction, lane, offset, bytes, alignment, verb,
                              "buffer " + buffer.name);
        }
    });
    return good;
}

void report_no_buffer(Warp& warp, const Instruction& instruction, uint32_t lanes, const uint64_t* addresses,
                      uint32_t bytes, const char* verb) {
    const Launch& launch = *warp.block->launch;
    for_each_lane(lanes, [&](int lane) {
        if (!launch.findings->first(FindingKind::OutOfBounds, instruction, *launch.program)) return;
        const uint64_t address = addresses[lane];
        const uint64_t behind = address + (uint64_t{1} << (kBufferShift - 1));
        const Buffer* next = launch.memory->buffer_at(behind);
        if (next != nullptr) {
            const int64_t shown =
                static_cast<int64_t>(Memory::offset_in_buffer(address)) - (int64_t{1} << kBufferShift);
            launch.findings->describe(warp, lane,
                                      std::string(verb) + " " + bytes_text(shown, bytes) + " of buffer " +
                                          next->name + ", which has " + std::to_string(next->bytes));
            return;
        }
        char text[32];
        std::snprintf(text, sizeof text, "0x%" PRIx64, address);
        launch.findings->describe(warp, lane,
                                  std::string(verb) + " " + std::to_string(bytes) + " bytes at address " +
                                      text + ", where no buffer lies");
    });
}

SpaceLanes lanes_of_one_space(uint32_t active, const uint64_t* generic) {
    const uint64_t window = generic[__builtin_ctz(active)] / kWindowBytes;
    const uint32_t lanes =
        active & lanes_where([=](int lane) { return generic[lane] / kWindowBytes == window; });
    if (window == kSharedWindow / kWindowBytes) return {Space::Shared, lanes};
    if (window == kLocalWindow / kWindowBytes) return {Space::Local, lanes};
    if (window == kParameterWindow / kWindowBytes) return {Space::Parameter, lanes};
    return {Space::Global, lanes};
}

}  // namespace ptx
