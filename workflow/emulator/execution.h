// The state of a running launch: blocks, their warps and the lanes' registers.
#pragma once

#include <cstdint>
#include <vector>

#include "counters.h"
#include "findings.h"
#include "instruction.h"
#include "memory.h"
#include "shared_check.h"

namespace ptx {

struct Block;

// Everything that the blocks of a launch have in common.
struct Launch {
    const Program* program = nullptr;
    uint32_t grid[3] = {1, 1, 1};
    uint32_t block[3] = {1, 1, 1};
    uint32_t threads = 1;  // of a block
    uint32_t warps = 1;    // of a block
    uint32_t dynamic_shared_bytes = 0;
    uint32_t shared_bytes = 0;  // static and dynamic
    const uint8_t* parameters = nullptr;
    Memory* memory = nullptr;
    Findings* findings = nullptr;
    Counters* counters = nullptr;  // null unless counting
    bool find = true;
    uint32_t* now = nullptr;  // the time, which moves on whenever threads synchronise
    uint32_t begin = 0;       // time at which the launch began
    uint64_t order = 0;
    uint64_t block_budget = 0;  // instructions that a block may execute
};

// An asynchronous copy under way: its data land in shared memory when its thread waits for its group.
struct PendingCopy {
    uint32_t address = 0;  // in shared memory
    uint32_t group = 0;    // of its lane, counted from the start of the block
    uint8_t lane = 0;
    uint8_t bytes = 0;
    uint8_t data[16] = {};
};

// Lanes of a warp that execute together.
struct Group {
    uint32_t pc;
    uint32_t mask;
    bool parked;  // waits for the warp's other lanes
};

enum class WarpState : uint8_t { Ready, AtBarrier, Done };

struct Warp {
    uint8_t* registers = nullptr;
    Block* block = nullptr;
    uint32_t index = 0;  // in the block
    uint32_t live = 0;   // lanes that haven't ended
    WarpState state = WarpState::Ready;
    uint32_t barrier_pc = 0;  // where it waits, when it is AtBarrier
    uint32_t turns = 0;       // of its groups, since the one ahead had one
    uint32_t gathered = 0;    // lanes that execute the present .sync instruction, whatever their masks
    std::vector<Group> groups;
    std::vector<PendingCopy> copies;
    uint32_t copy_groups[kLanes] = {};  // committed by each lane

    // Shared and global accesses up to this time, by lanes of this warp, are ordered before what it does now
    // ...
    uint32_t lanes_ordered_until = 0;
    // ... and up to this time by any thread of the block.
    uint32_t block_ordered_until = 0;
    // After a meeting of some lanes only: those of lane j up to lane_orders[i * kLanes + j] are ordered
    // before what lane i does now. Empty until there is one.
    std::vector<uint32_t> lane_orders;

    // The mask expanded to all ones or zeroes a lane, for loops that blend.
    alignas(64) uint32_t lane_mask[kLanes];
    uint32_t expanded_mask = 0;

    template <class T>
    T* lanes(Register place) {
        return reinterpret_cast<T*>(registers + place);
    }

    uint32_t& predicate(Register place) { return *reinterpret_cast<uint32_t*>(registers + place); }

    const uint32_t* expand(uint32_t mask) {
        if (mask != expanded_mask) {
            for (int lane = 0; lane < kLanes; ++lane)
                lane_mask[lane] = 0u - ((mask >> lane) & 1u);
            expanded_mask = mask;
        }
        return lane_mask;
    }

    uint32_t thread(int lane) const { return index * kLanes + static_cast<uint32_t>(lane); }
};

// One of the sixteen named barriers of a block.
struct Barrier {
    uint32_t arrived = 0;            // warps, a bit each
    uint32_t waiting = 0;            // those of them that wait for completion
    uint32_t expected_warps = 0;     // 0: all that are alive
    uint32_t first_pc = 0;           // of the first arrival, to tell divergent code
    uint32_t reduction_count = 0;    // of barrier.red: threads whose predicate holds ...
    uint32_t reduction_threads = 0;  // ... out of so many
    std::vector<uint32_t> known;     // what the arrivals knew of each warp's past
};

constexpr int kBarriers = 16;

// All that the registers which stay the same for a launch depend on.
struct LaunchShape {
    const Program* program = nullptr;
    uint32_t grid[3] = {0, 0, 0};
    uint32_t block[3] = {0, 0, 0};
    uint32_t dynamic_shared_bytes = 0;
};

struct Block {
    const Launch* launch = nullptr;
    uint32_t position[3] = {0, 0, 0};
    uint32_t number = 0;        // in the natural order
    uint32_t begin = 0;         // time at which the block began
    uint64_t instructions = 0;  // executed by its warps so far, to the last branch
    std::vector<Warp> warps;
    std::vector<uint8_t> register_file;
    LaunchShape prepared;  // what the register file was filled for
    std::vector<uint8_t> shared;
    std::vector<uint8_t> local;  // thread after thread
    SharedCheck shared_check;
    Barrier barriers[kBarriers];
    // With partial ordering: accesses of warp j up to known[i * warps + j] are ordered before what warp i
    // does now.
    std::vector<uint32_t> known;
    // What the block's fences have published of each warp.
    std::vector<uint32_t> published;
};

}  // namespace ptx
