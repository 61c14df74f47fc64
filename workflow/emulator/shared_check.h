// Watches shared memory for races and for reads of what nobody wrote.
//
// Each granule remembers who wrote and who read it last, and when. Time is a number that moves on at every
// synchronisation, and each warp knows up to when all others' accesses are ordered before its own
// (execution.h), so the usual check is one comparison. Cells of earlier blocks are older than the present
// block and count as untouched.
#pragma once

#include <cstdint>
#include <vector>

#include "instruction.h"

namespace ptx {

struct Warp;
struct Block;

constexpr uint32_t kThreadMask = 0x3ff;  // of a block, which has 1,024 threads at most

// How a granule was last written, beside the thread.
constexpr uint32_t kStrongWriter = 1u << 16;  // by an atomic, or volatile and the like: may meet its own kind
constexpr uint32_t kPendingCopy = 1u << 17;   // an asynchronous copy that nobody has waited for
constexpr uint32_t kPendingTime = 0xffffffffu;  // of such a copy: later than anything ordered

// Readers, instead of one thread.
constexpr uint32_t kSeveralLanes = 1u << 16;  // of the warp in the low bits
constexpr uint32_t kSeveralWarps = 1u << 17;

struct SharedCell {
    uint32_t write_time = 0;
    uint32_t writer = 0;
    uint32_t read_time = 0;
    uint32_t reader = 0;
};

struct ReadRecord {
    uint32_t time = 0;
    uint32_t reader = 0;
};

class SharedCheck {
  public:
    // Makes room for a launch; `by_warp` keeps the readers of each warp apart, which partial ordering needs,
    // and `by_lane`, which comes with it, those of each lane.
    void prepare(uint32_t shared_bytes, uint32_t granule_shift, uint32_t warps, bool by_warp, bool by_lane);

    // Forgets everything: the clock is about to start again.
    void reset();

    // Checks loads of `bytes` at each active lane's address, all inside shared memory.
    void load(Warp& warp, const Instruction& instruction, const uint32_t* addresses, uint32_t active,
              uint32_t bytes);

    // Checks stores likewise, and does each lane's before it looks at the next: `values` holds them one after
    // another.
    void store(Warp& warp, const Instruction& instruction, const uint32_t* addresses, uint32_t active,
               uint32_t bytes, const uint8_t* values);

    // Checks a read of `bytes` contiguous ones by the warp as a whole, each lane for others, as of a matrix.
    void load_for_warp(Warp& warp, const Instruction& instruction, uint32_t address, uint32_t bytes);

    // Asynchronous copies of `bytes` to each active lane's address: they write like a store, but nobody may
    // touch the place until `land` tells that the copying thread has waited.
    void start_copy(Warp& warp, const Instruction& instruction, const uint32_t* addresses, uint32_t active,
                    uint32_t bytes);
    void land(Warp& warp, uint32_t lane, uint32_t address, uint32_t bytes);

    // A read, write or read-modify-write that may meet others of its kind: an atomic, volatile or relaxed
    // access.
    void strong(Warp& warp, const Instruction& instruction, const uint32_t* addresses, uint32_t active,
                uint32_t bytes, bool writes);

  private:
    struct Context;

    template <bool kByWarp, bool kOneCell>
    void load_cells(Warp& warp, const Instruction& instruction, const uint32_t* addresses, uint32_t active,
                    uint32_t bytes);
    void check_read(Warp& warp, const Instruction& instruction, uint32_t lanes, const SharedCell& cell);
    static uint32_t joint_reader(const Warp& warp, const SharedCell& cell, uint32_t reader);
    void record_read(const Warp& warp, uint32_t cell, uint32_t reader);
    void record_lanes(const Warp& warp, const uint32_t* addresses, uint32_t active, uint32_t bytes);
    void write_cell(const Context& context, uint32_t cell, int lane, const uint8_t* value);
    bool check_previous_write(const Context& context, const SharedCell& cell, int lane, bool reading);
    void check_readers(const Context& context, uint32_t cell, int lane);
    uint32_t* lane_reads(const Warp& warp, uint32_t cell);
    static bool ordered(const Warp& warp, uint32_t other_warp, uint32_t time);

    std::vector<SharedCell> cells_;
    std::vector<ReadRecord> reads_by_warp_;  // cell after cell, when kept
    std::vector<uint32_t> reads_by_lane_;    // times likewise, thread after thread
    uint32_t shift_ = 2;
    uint32_t warps_ = 1;
    bool by_warp_ = false;
    bool by_lane_ = false;
};

}  // namespace ptx
