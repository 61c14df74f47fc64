#include "global_check.h"

#include <cstring>
#include <string>

#include "lanes.h"
#include "ordering.h"

namespace ptx {

namespace {

bool is_read(GlobalAccess access) {
    return access == GlobalAccess::Read || access == GlobalAccess::ReadOnly ||
           access == GlobalAccess::StrongRead;
}

bool ordered_before(const Warp& warp, int lane, const GlobalCell& cell) {
    const Block& block = *warp.block;
    const uint32_t thread = cell.writer & kThreadMask;
    if (cell.block != block.number) return false;
    if (thread == warp.thread(lane)) return true;
    if (thread / kLanes == warp.index)
        return is_lane_ordered(warp, lane, static_cast<int>(thread % kLanes), cell.time);
    if (cell.time <= warp.block_ordered_until) return true;
    if (!block.launch->program->partial_ordering) return false;
    return cell.time <= block.known[warp.index * block.launch->warps + thread / kLanes];
}

void report(Warp& warp, const Instruction& instruction, int lane, const GlobalCell& cell,
            const Buffer& buffer, uint64_t offset, GlobalAccess access) {
    const Launch& launch = *warp.block->launch;
    if (!launch.findings->first(FindingKind::Race, instruction, *launch.program)) return;
    const int other = static_cast<int>(cell.writer & kThreadMask);
    const bool same_block = cell.block == warp.block->number;
    std::string partner = "thread " + name_thread(warp, other);
    if (!same_block) {
        const uint32_t position[3] = {cell.block % launch.grid[0],
                                      cell.block / launch.grid[0] % launch.grid[1],
                                      cell.block / launch.grid[0] / launch.grid[1]};
        partner += " of block " + name_position(position);
    }
    const bool read_only = access == GlobalAccess::ReadOnly;
    const bool no_barrier = same_block && !read_only;
    const char* verb = is_read(access) ? "reads" : access == GlobalAccess::Atomic ? "updates" : "writes";
    launch.findings->describe(warp, lane,
                              std::string(verb) + " byte " + std::to_string(offset) + " of buffer " +
                                  buffer.name + (read_only ? " as read-only data (.nc)" : "") +
                                  ", which " + partner + " wrote " +
                                  (no_barrier ? "with no barrier between" : "in the same launch"),
                              other);
}

}  // namespace

void check_global(Warp& warp, const Instruction& instruction, Buffer& buffer, uint32_t lanes,
                  const uint64_t* offsets, uint32_t bytes, GlobalAccess access, const uint8_t* values) {
    const Launch& launch = *warp.block->launch;
    if (is_read(access) && buffer.written_at < launch.begin) return;
    const uint32_t shift = launch.program->global_granule_shift;
    const uint64_t cells = (buffer.bytes >> shift) + 1;
    if (buffer.cells.size() < cells) buffer.cells.resize(cells);
    const uint32_t now = *launch.now;
    if (!is_read(access)) buffer.written_at = now;
    const bool strong = access == GlobalAccess::StrongRead || access == GlobalAccess::StrongWrite ||
                        access == GlobalAccess::Atomic;
    const uint32_t how = strong ? kStrongWriter : 0;
    for_each_lane(lanes, [&](int lane) {
        const uint64_t first = offsets[lane] >> shift;
        const uint64_t last = (offsets[lane] + bytes - 1) >> shift;
        for (uint64_t index = first; index <= last; ++index) {
            GlobalCell& cell = buffer.cells[index];
            const bool both_strong = how != 0 && (cell.writer & kStrongWriter) != 0;
            const bool touched = cell.time >= launch.begin;
            if (touched && access == GlobalAccess::ReadOnly) {
                report(warp, instruction, lane, cell, buffer, index << shift, access);
            } else if (touched && !both_strong && !ordered_before(warp, lane, cell)) {
                const bool elsewhere = cell.block != warp.block->number;
                const uint64_t at = index << shift;
                // The same value twice is no harm.
                const bool same = values != nullptr &&
                                  std::memcmp(buffer.data + at, values + lane * bytes + (at - offsets[lane]),
                                              size_t{1} << shift) == 0;
                if (!same && !(elsewhere && launch.program->blocks_communicate))
                    report(warp, instruction, lane, cell, buffer, at, access);
            }
            if (!is_read(access)) cell = {now, warp.block->number, warp.thread(lane) | how};
        }
        if (values != nullptr) std::memcpy(buffer.data + offsets[lane], values + lane * bytes, bytes);
    });
}

}  // namespace ptx
