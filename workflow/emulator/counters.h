// What the memory system would see: requests, sectors, wavefronts, and instruction counts.
#pragma once

#include <cstdint>
#include <vector>

#include "instruction.h"

namespace ptx {

struct Buffer;

// Of one instruction, over the launches counted.
struct InstructionCount {
    uint64_t executed = 0;  // by a warp with a lane active
    uint64_t lanes = 0;
    uint64_t requests = 0;  // of shared memory: LDS and STS, without LDSM
    uint64_t sectors = 0;
    uint64_t wavefronts = 0;
    uint64_t phases = 0;  // wavefronts without bank conflicts
    uint64_t words = 0;   // of 4 bytes, lane by lane
};

// Distinct 32-byte sectors that the active lanes touch with `bytes` each.
uint32_t count_sectors(const uint64_t* addresses, uint32_t active, uint32_t bytes);

struct SharedCost {
    uint32_t wavefronts = 0;
    uint32_t phases = 0;
};

// Wavefronts of a shared access of `bytes` a lane; phases are those it would take without bank conflicts.
SharedCost shared_load_cost(const uint32_t* addresses, uint32_t active, uint32_t bytes);
SharedCost shared_store_cost(const uint32_t* addresses, uint32_t active, uint32_t bytes);

// Order and names of the counters in the C interface.
enum class Counter : uint8_t {
    GlobalLoadRequests,
    GlobalStoreRequests,
    GlobalLoadSectors,
    GlobalStoreSectors,
    SharedLoadWavefronts,
    SharedStoreWavefronts,
    SharedLoadConflicts,
    SharedStoreConflicts,
    SharedLoadInstructions,
    SharedStoreInstructions,
    GlobalLoadInstructions,
    GlobalStoreInstructions,
    FfmaThreads,
    PtxInstructions,
    PtxBarriers,
    PtxBlockBarriers,
    PtxThreadFma,
    PtxThreadFlops,
    PtxSharedLoads,
    PtxSharedStores,
    PtxGlobalLoads,
    PtxGlobalStores,
    PtxThreadSharedLoads,
    PtxThreadSharedStores,
    PtxThreadGlobalLoads,
    PtxThreadGlobalStores,
    PtxGlobalUniqueSectorsLoaded,
    PtxGlobalUniqueSectorsStored,
    PtxLocalLoads,
    PtxLocalStores,
    PtxAsyncCopies,
    PtxTensorFlops,
    Count,
};

constexpr int kCounters = static_cast<int>(Counter::Count);

const char* counter_name(Counter counter);

class Counters {
  public:
    // Begins a launch of `program`.
    void begin(const Program& program);

    // Adds what the launch since `begin` counted to the totals.
    void end(const Program& program);

    void clear();

    InstructionCount& of(const Instruction& instruction) { return counts_[instruction.index]; }
    InstructionCount* data() { return counts_.data(); }

    void add(Counter counter, uint64_t amount) { totals_[static_cast<int>(counter)] += amount; }
    const uint64_t* totals() const { return totals_; }

    // Remembers the sectors that lanes touch, with `bytes` each, in a buffer of `buffer_bytes`.
    static void mark_sectors(std::vector<uint64_t>& touched, uint64_t buffer_bytes, const uint64_t* offsets,
                             uint32_t lanes, uint32_t bytes);

    // Adds the sectors that the launch touched, and forgets them.
    void add_unique_sectors(std::vector<Buffer>& buffers);

  private:
    void add_access(const Instruction& instruction, const InstructionNote& note,
                    const InstructionCount& count);

    std::vector<InstructionCount> counts_;
    uint64_t totals_[kCounters] = {};
};

}  // namespace ptx
