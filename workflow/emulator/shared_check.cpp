#include "shared_check.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "execution.h"
#include "lanes.h"
#include "ordering.h"

namespace ptx {

// What the checks of one instruction have in common.
struct SharedCheck::Context {
    Warp& warp;
    const Instruction& instruction;
    uint32_t begin;
    uint32_t now;
    uint32_t ordered_until;  // by all threads of the block
    uint32_t how;            // kStrongWriter, kPendingCopy or 0
    const uint8_t* shared;
};

namespace {

// Lanes that start a run of equal addresses among the active lanes, so that a broadcast is looked at once.
struct Runs {
    uint32_t heads;
    uint32_t members;  // lanes that belong to a run of several
};

Runs runs_of(const uint32_t* addresses, uint32_t active) {
    Runs runs{0, 0};
    if (active == kAllLanes) {
        uint32_t same = 0;
        for (int lane = 1; lane < kLanes; ++lane)
            same |= static_cast<uint32_t>(addresses[lane] == addresses[lane - 1]) << lane;
        runs.heads = ~same;
        runs.members = same | same >> 1;
        return runs;
    }
    uint32_t previous = 0;
    bool any = false;
    int head = 0;
    for_each_lane(active, [&](int lane) {
        if (any && addresses[lane] == previous) {
            runs.members |= 1u << head;
            return;
        }
        runs.heads |= 1u << lane;
        head = lane;
        previous = addresses[lane];
        any = true;
    });
    return runs;
}

// The lanes of the run that `head` starts.
uint32_t lanes_of_run(const uint32_t* addresses, uint32_t active, uint32_t heads, uint32_t head) {
    const uint32_t later_heads = heads & ~((2u << head) - 1);
    const uint32_t before_next = later_heads != 0 ? (later_heads & (0 - later_heads)) - 1 : kAllLanes;
    const uint32_t run = active & before_next & ~((1u << head) - 1);
    return run & lanes_where([=](int lane) { return addresses[lane] == addresses[head]; });
}

uint32_t warp_of_reader(uint32_t reader) {
    return (reader & kSeveralLanes) != 0 ? reader & kThreadMask : (reader & kThreadMask) / kLanes;
}

void report_race(Warp& warp, const Instruction& instruction, int lane, const char* verb, int other,
                 const std::string& other_did) {
    const Launch& launch = *warp.block->launch;
    if (!launch.findings->first(FindingKind::Race, instruction, *launch.program)) return;
    const bool same_warp = other >= 0 && static_cast<uint32_t>(other) / kLanes == warp.index;
    launch.findings->describe(warp, lane,
                              std::string(verb) + " shared memory that " + other_did + " with no " +
                                  (same_warp ? "__syncwarp or barrier" : "barrier") + " between",
                              other);
}

}  // namespace

void SharedCheck::prepare(uint32_t shared_bytes, uint32_t granule_shift, uint32_t warps, bool by_warp,
                          bool by_lane) {
    const size_t cells = (shared_bytes >> granule_shift) + 1;
    if (granule_shift != shift_ || warps != warps_ || by_warp != by_warp_ || by_lane != by_lane_) reset();
    if (cells_.size() < cells) cells_.resize(cells);
    if (by_warp && reads_by_warp_.size() < cells * warps) reads_by_warp_.resize(cells * warps);
    const size_t by_thread = cells * warps * kLanes;
    if (by_lane && reads_by_lane_.size() < by_thread) reads_by_lane_.resize(by_thread);
    shift_ = granule_shift;
    warps_ = warps;
    by_warp_ = by_warp;
    by_lane_ = by_lane;
}

void SharedCheck::reset() {
    std::fill(cells_.begin(), cells_.end(), SharedCell());
    std::fill(reads_by_warp_.begin(), reads_by_warp_.end(), ReadRecord());
    std::fill(reads_by_lane_.begin(), reads_by_lane_.end(), 0u);
}

// Whether what `other_warp` did at `time` is ordered before what `warp`, another one, does now.
bool SharedCheck::ordered(const Warp& warp, uint32_t other_warp, uint32_t time) {
    if (time <= warp.block_ordered_until) return true;
    const Block& block = *warp.block;
    if (!block.launch->program->partial_ordering) return false;
    return time <= block.known[warp.index * block.launch->warps + other_warp];
}

void SharedCheck::load(Warp& warp, const Instruction& instruction, const uint32_t* addresses, uint32_t active,
                       uint32_t bytes) {
    const bool one_cell = bytes >> shift_ == 1;
    if (by_warp_)
        load_cells<true, false>(warp, instruction, addresses, active, bytes);
    else if (one_cell)
        load_cells<false, true>(warp, instruction, addresses, active, bytes);
    else
        load_cells<false, false>(warp, instruction, addresses, active, bytes);
    if (by_lane_) record_lanes(warp, addresses, active, bytes);
}

// This loop decides how fast a checked kernel runs: what it needs stays in registers, and the rest is called.
template <bool kByWarp, bool kOneCell>
void SharedCheck::load_cells(Warp& warp, const Instruction& instruction, const uint32_t* addresses,
                             uint32_t active, uint32_t bytes) {
    const Block& block = *warp.block;
    const uint32_t shift = shift_;
    const uint32_t now = *block.launch->now;
    const uint32_t until = warp.block_ordered_until;
    const uint32_t begin = block.begin;
    const uint32_t window = until - begin;
    const uint32_t first_thread = warp.thread(0);
    const uint32_t several_lanes = kSeveralLanes | warp.index;
    SharedCell* const cells = cells_.data();
    const Runs runs = runs_of(addresses, active);
    for (uint32_t rest = runs.heads; rest != 0; rest &= rest - 1) {
        const auto lane = static_cast<uint32_t>(__builtin_ctz(rest));
        const uint32_t reader = (runs.members >> lane & 1) != 0 ? several_lanes : first_thread + lane;
        uint32_t index = addresses[lane] >> shift;
        const uint32_t last = kOneCell ? index : (addresses[lane] + bytes - 1) >> shift;
        do {
            SharedCell& cell = cells[index];
            // Written in this block, and ordered before this read? One comparison, since times wrap below
            // `begin`.
            if (__builtin_expect(cell.write_time - begin > window, 0))
                check_read(warp, instruction, lanes_of_run(addresses, active, runs.heads, lane), cell);
            if (cell.read_time <= until)
                cell.reader = reader;
            else if (cell.reader != reader && (cell.reader & kSeveralWarps) == 0)
                cell.reader = joint_reader(warp, cell, reader);
            cell.read_time = now;
            if (kByWarp) record_read(warp, index, reader);
        } while (!kOneCell && ++index <= last);
    }
}

void SharedCheck::check_read(Warp& warp, const Instruction& instruction, uint32_t lanes,
                             const SharedCell& cell) {
    const Block& block = *warp.block;
    const Context context{warp, instruction, block.begin, *block.launch->now, warp.block_ordered_until,
                          0,    nullptr};
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1)
        if (check_previous_write(context, cell, __builtin_ctz(rest), true)) return;
}

// Who has read the cell since it was last ordered: so far one warp, and now `reader` of `warp` as well.
uint32_t SharedCheck::joint_reader(const Warp& warp, const SharedCell& cell, uint32_t reader) {
    if (warp_of_reader(cell.reader) != warp.index) return kSeveralWarps;
    return cell.read_time <= warp.lanes_ordered_until ? reader : kSeveralLanes | warp.index;
}

void SharedCheck::record_read(const Warp& warp, uint32_t index, uint32_t reader) {
    ReadRecord& record = reads_by_warp_[index * warps_ + warp.index];
    const bool fresh = record.time > warp.lanes_ordered_until && record.time >= warp.block->begin;
    record.reader = fresh && record.reader != reader ? kSeveralLanes | warp.index : reader;
    record.time = *warp.block->launch->now;
}

// The times of the latest reads by each lane of the warp.
uint32_t* SharedCheck::lane_reads(const Warp& warp, uint32_t index) {
    return &reads_by_lane_[(size_t{index} * warps_ + warp.index) * kLanes];
}

void SharedCheck::record_lanes(const Warp& warp, const uint32_t* addresses, uint32_t active,
                               uint32_t bytes) {
    const uint32_t now = *warp.block->launch->now;
    for_each_lane(active, [&](int lane) {
        const uint32_t last = (addresses[lane] + bytes - 1) >> shift_;
        for (uint32_t index = addresses[lane] >> shift_; index <= last; ++index)
            lane_reads(warp, index)[lane] = now;
    });
}

void SharedCheck::store(Warp& warp, const Instruction& instruction, const uint32_t* addresses,
                        uint32_t active, uint32_t bytes, const uint8_t* values) {
    Block& block = *warp.block;
    const Context context{warp, instruction,        block.begin, *block.launch->now, warp.block_ordered_until,
                          0,    block.shared.data()};
    for_each_lane(active, [&](int lane) {
        const uint32_t last = (addresses[lane] + bytes - 1) >> shift_;
        const uint8_t* value = values + lane * bytes;
        for (uint32_t cell = addresses[lane] >> shift_; cell <= last; ++cell) {
            write_cell(context, cell, lane, value);
            value += size_t{1} << shift_;
        }
        std::memcpy(&block.shared[addresses[lane]], values + lane * bytes, bytes);
    });
}

void SharedCheck::write_cell(const Context& context, uint32_t index, int lane, const uint8_t* value) {
    SharedCell& cell = cells_[index];
    if (cell.write_time > context.ordered_until) {
        // Writing what is already there is no harm.
        const uint8_t* present = context.shared + (size_t{index} << shift_);
        if (value == nullptr || std::memcmp(present, value, size_t{1} << shift_) != 0)
            check_previous_write(context, cell, lane, false);
    }
    if (cell.read_time > context.ordered_until) check_readers(context, index, lane);
    cell.write_time = context.how == kPendingCopy ? kPendingTime : context.now;
    cell.writer = context.warp.thread(lane) | context.how;
}

void SharedCheck::load_for_warp(Warp& warp, const Instruction& instruction, uint32_t address,
                                uint32_t bytes) {
    const Block& block = *warp.block;
    const uint32_t reader = kSeveralLanes | warp.index;
    for (uint32_t index = address >> shift_; index <= (address + bytes - 1) >> shift_; ++index) {
        SharedCell& cell = cells_[index];
        if (cell.write_time - block.begin > warp.block_ordered_until - block.begin) {
            // Whoever wrote it, another lane reads it: the first or the second stands for all, unless lanes
            // are ordered one by one.
            const uint32_t other = (cell.writer & kThreadMask) == warp.thread(0) ? 2u : 1u;
            check_read(warp, instruction, by_lane_ ? kAllLanes : other, cell);
        }
        const bool joins = cell.read_time > warp.block_ordered_until && cell.reader != reader;
        if (!joins)
            cell.reader = reader;
        else if ((cell.reader & kSeveralWarps) == 0)
            cell.reader = warp_of_reader(cell.reader) == warp.index ? reader : kSeveralWarps;
        cell.read_time = *block.launch->now;
        if (by_warp_) record_read(warp, index, reader);
        if (by_lane_) std::fill_n(lane_reads(warp, index), kLanes, cell.read_time);
    }
}

void SharedCheck::start_copy(Warp& warp, const Instruction& instruction, const uint32_t* addresses,
                             uint32_t active, uint32_t bytes) {
    const Block& block = *warp.block;
    const Context context{
        warp,         instruction,        block.begin, *block.launch->now, warp.block_ordered_until,
        kPendingCopy, block.shared.data()};
    for_each_lane(active, [&](int lane) {
        const uint32_t last = (addresses[lane] + bytes - 1) >> shift_;
        for (uint32_t index = addresses[lane] >> shift_; index <= last; ++index)
            write_cell(context, index, lane, nullptr);
    });
}

void SharedCheck::land(Warp& warp, uint32_t lane, uint32_t address, uint32_t bytes) {
    const uint32_t last = (address + bytes - 1) >> shift_;
    for (uint32_t index = address >> shift_; index <= last; ++index) {
        cells_[index].write_time = *warp.block->launch->now;
        cells_[index].writer = warp.thread(static_cast<int>(lane));
    }
}

void SharedCheck::strong(Warp& warp, const Instruction& instruction, const uint32_t* addresses,
                         uint32_t active, uint32_t bytes, bool writes) {
    const Block& block = *warp.block;
    const Context context{
        warp,          instruction,        block.begin, *block.launch->now, warp.block_ordered_until,
        kStrongWriter, block.shared.data()};
    for_each_lane(active, [&](int lane) {
        const uint32_t last = (addresses[lane] + bytes - 1) >> shift_;
        for (uint32_t index = addresses[lane] >> shift_; index <= last; ++index) {
            const SharedCell& cell = cells_[index];
            const bool reads_unordered =
                cell.write_time - context.begin > context.ordered_until - context.begin;
            if (writes) {
                if (cell.write_time < context.begin && instruction.access == Access::Atomic)
                    check_previous_write(context, cell, lane, true);
                write_cell(context, index, lane, nullptr);
            } else if (reads_unordered) {
                check_previous_write(context, cell, lane, true);
            }
        }
    });
}

// Tells why an earlier write isn't known to come before this access; false when it does come before.
bool SharedCheck::check_previous_write(const Context& context, const SharedCell& cell, int lane,
                                       bool reading) {
    Warp& warp = context.warp;
    const Launch& launch = *warp.block->launch;
    if (cell.write_time < context.begin) {
        if (!reading) return false;
        if (launch.findings->first(FindingKind::UninitialisedRead, context.instruction, *launch.program))
            launch.findings->describe(warp, lane,
                                      "reads shared memory that no thread of its block has written");
        return true;
    }
    const uint32_t thread = cell.writer & kThreadMask;
    const bool pending = (cell.writer & kPendingCopy) != 0;
    if (!pending) {
        if (thread == warp.thread(lane)) return false;
        if (context.how == kStrongWriter && (cell.writer & kStrongWriter) != 0) return false;
        const uint32_t other_warp = thread / kLanes;
        if (other_warp == warp.index
                ? is_lane_ordered(warp, lane, static_cast<int>(thread % kLanes), cell.write_time)
                : ordered(warp, other_warp, cell.write_time))
            return false;
    }
    const char* verb = reading ? "reads" : "writes";
    const std::string partner = "thread " + name_thread(warp, static_cast<int>(thread));
    if (pending && thread == warp.thread(lane))
        report_race(warp, context.instruction, lane, verb, static_cast<int>(thread),
                    "its own asynchronous copy, not waited for, writes");
    else
        report_race(warp, context.instruction, lane, verb, static_cast<int>(thread),
                    partner + (pending ? "'s asynchronous copy, not waited for, writes" : " wrote"));
    return true;
}

void SharedCheck::check_readers(const Context& context, uint32_t index, int lane) {
    Warp& warp = context.warp;
    const auto report = [&](uint32_t reader) {
        int other = -1;
        std::string did = "several warps read";
        if ((reader & kSeveralLanes) != 0) {
            did = "several threads of one warp read";
            other = static_cast<int>((reader & kThreadMask) * kLanes);
            if (other == static_cast<int>(warp.thread(lane))) ++other;
        } else if ((reader & kSeveralWarps) == 0) {
            other = static_cast<int>(reader & kThreadMask);
            did = "thread " + name_thread(warp, other) + " read";
        }
        report_race(warp, context.instruction, lane, "writes", other, did);
    };
    // Reads by the own warp: those of other lanes need a __syncwarp.
    const auto own_warp_races = [&](uint32_t reader, uint32_t time) {
        if (time <= warp.lanes_ordered_until) return false;
        return reader != warp.thread(lane);
    };
    if (!by_warp_) {
        const SharedCell& cell = cells_[index];
        const bool own_warp = (cell.reader & kSeveralWarps) == 0 && warp_of_reader(cell.reader) == warp.index;
        if (!own_warp || own_warp_races(cell.reader, cell.read_time)) report(cell.reader);
        return;
    }
    for (uint32_t other_warp = 0; other_warp < warps_; ++other_warp) {
        if (by_lane_ && other_warp == warp.index) {
            const uint32_t* times = lane_reads(warp, index);
            for (int other = 0; other < kLanes; ++other)
                if (other != lane && !is_lane_ordered(warp, lane, other, times[other]))
                    report(warp.thread(other));
            continue;
        }
        const ReadRecord& record = reads_by_warp_[index * warps_ + other_warp];
        if (record.time < context.begin) continue;
        const bool races = other_warp == warp.index ? own_warp_races(record.reader, record.time)
                                                    : !ordered(warp, other_warp, record.time);
        if (races) report(record.reader);
    }
}

}  // namespace ptx
