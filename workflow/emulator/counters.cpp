#include "counters.h"

#include <algorithm>
#include <cstring>

#include "lanes.h"
#include "memory.h"

namespace ptx {

namespace {

constexpr int kSectorShift = 5;
constexpr uint32_t kBanks = 32;

constexpr const char* kNames[kCounters] = {
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
    "smsp__inst_executed_op_global_ld.sum",
    "smsp__inst_executed_op_global_st.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "ptx_instructions",
    "ptx_barriers",
    "ptx_block_barriers",
    "ptx_thread_fma",
    "ptx_thread_flops",
    "ptx_shared_loads",
    "ptx_shared_stores",
    "ptx_global_loads",
    "ptx_global_stores",
    "ptx_thread_shared_loads",
    "ptx_thread_shared_stores",
    "ptx_thread_global_loads",
    "ptx_thread_global_stores",
    "ptx_global_unique_sectors_ld",
    "ptx_global_unique_sectors_st",
    "ptx_local_loads",
    "ptx_local_stores",
    "ptx_async_copies",
    "ptx_tensor_flops",
};

// Lanes that one phase of a shared access serves: 128 bytes of them.
uint32_t lanes_of_phase(uint32_t bytes) {
    return bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
}

// The distinct words that one phase wants, bank by bank; the fullest bank says how many wavefronts it takes.
class Banks {
  public:
    void add(uint32_t word) {
        const uint32_t bank = word % kBanks;
        for (uint32_t i = 0; i < counts_[bank]; ++i)
            if (words_[bank][i] == word) return;
        words_[bank][counts_[bank]++] = word;
        fullest_ = std::max(fullest_, counts_[bank]);
    }

    uint32_t fullest() const { return fullest_; }

  private:
    uint32_t counts_[kBanks] = {};
    uint32_t fullest_ = 0;
    uint32_t words_[kBanks][kLanes];  // a lane wants one word of a bank at most
};

SharedCost cost_by_phases(const uint32_t* addresses, uint32_t active, uint32_t bytes, uint32_t phase_lanes) {
    SharedCost cost;
    const uint32_t words_each = bytes < 4 ? 1 : bytes / 4;
    for (uint32_t first = 0; first < kLanes; first += phase_lanes) {
        Banks banks;
        for (uint32_t lane = first; lane < first + phase_lanes; ++lane) {
            if ((active >> lane & 1) == 0) continue;
            for (uint32_t word = 0; word < words_each; ++word)
                banks.add(addresses[lane] / 4 + word);
        }
        if (banks.fullest() == 0) continue;
        cost.wavefronts += banks.fullest();
        cost.phases += 1;
    }
    return cost;
}

}  // namespace

const char* counter_name(Counter counter) {
    return kNames[static_cast<int>(counter)];
}

uint32_t count_sectors(const uint64_t* addresses, uint32_t active, uint32_t bytes) {
    uint64_t sectors[kLanes * 2];
    uint32_t count = 0;
    for_each_lane(active, [&](int lane) {
        const uint64_t first = addresses[lane] >> kSectorShift;
        const uint64_t last = (addresses[lane] + bytes - 1) >> kSectorShift;
        if (count == 0 || sectors[count - 1] != first) sectors[count++] = first;
        if (last != first) sectors[count++] = last;
    });
    if (!std::is_sorted(sectors, sectors + count)) std::sort(sectors, sectors + count);
    return static_cast<uint32_t>(std::unique(sectors, sectors + count) - sectors);
}

// Measured on an H200: loads of 8 and 16 bytes serve twice the lanes in a phase when all neighbours (0,1)
// (2,3) ..., or all pairs (0,2) (1,3) (4,6) ..., hold the same address; an inactive lane matches any.
SharedCost shared_load_cost(const uint32_t* addresses, uint32_t active, uint32_t bytes) {
    uint32_t phase_lanes = lanes_of_phase(bytes);
    if (bytes > 4) {
        const auto same = [&](int a, int b) {
            return (active >> a & 1) == 0 || (active >> b & 1) == 0 || addresses[a] == addresses[b];
        };
        bool neighbours = true;
        bool second_neighbours = true;
        for (int lane = 0; lane < kLanes; lane += 2)
            neighbours &= same(lane, lane + 1);
        for (int lane = 0; lane < kLanes; lane += 4)
            second_neighbours &= same(lane, lane + 2) && same(lane + 1, lane + 3);
        if (neighbours || second_neighbours) phase_lanes *= 2;
    }
    return cost_by_phases(addresses, active, bytes, phase_lanes);
}

SharedCost shared_store_cost(const uint32_t* addresses, uint32_t active, uint32_t bytes) {
    return cost_by_phases(addresses, active, bytes, lanes_of_phase(bytes));
}

void Counters::clear() {
    std::fill(std::begin(totals_), std::end(totals_), 0);
}

void Counters::begin(const Program& program) {
    counts_.assign(program.code.size(), InstructionCount());
}

void Counters::end(const Program& program) {
    for (const Instruction& instruction : program.code) {
        const InstructionCount& count = counts_[instruction.index];
        const InstructionNote& note = program.notes[instruction.index];
        add(Counter::PtxInstructions, count.executed);
        add(Counter::PtxThreadFlops, count.lanes * note.flops);
        add(Counter::PtxTensorFlops, count.lanes * note.tensor_flops);
        if (note.is_fma) {
            add(Counter::FfmaThreads, count.lanes);
            add(Counter::PtxThreadFma, count.lanes);
        }
        if (instruction.kind == Kind::Barrier) add(Counter::PtxBarriers, count.executed);

        add_access(instruction, note, count);
    }
}

// A generic access is counted as one of global memory, which its address need not be.
void Counters::add_access(const Instruction& instruction, const InstructionNote& note,
                          const InstructionCount& count) {
    const bool global = instruction.space == Space::Global || instruction.space == Space::Generic;
    const bool shared = instruction.space == Space::Shared;
    const bool local = instruction.space == Space::Local;
    const bool loads = instruction.access == Access::Load || instruction.access == Access::MatrixLoad;
    const bool stores = instruction.access == Access::Store || instruction.access == Access::MatrixStore;
    if (instruction.access == Access::AsyncCopy) {  // the hardware counts these among global loads
        add(Counter::GlobalLoadRequests, count.requests);
        add(Counter::GlobalLoadSectors, count.sectors);
        add(Counter::SharedLoadInstructions, count.executed * note.padding);
        add(Counter::PtxAsyncCopies, count.executed);
    } else if (loads && global) {
        add(Counter::GlobalLoadRequests, count.requests);
        add(Counter::GlobalLoadInstructions, count.requests);
        add(Counter::GlobalLoadSectors, count.sectors);
        add(Counter::PtxGlobalLoads, count.executed);
        add(Counter::PtxThreadGlobalLoads, count.words);
    } else if (stores && global) {
        add(Counter::GlobalStoreRequests, count.requests);
        add(Counter::GlobalStoreInstructions, count.requests);
        add(Counter::GlobalStoreSectors, count.sectors);
        add(Counter::PtxGlobalStores, count.executed);
        add(Counter::PtxThreadGlobalStores, count.words);
    } else if (loads && shared) {
        add(Counter::SharedLoadInstructions, count.requests);
        add(Counter::SharedLoadWavefronts, count.wavefronts);
        add(Counter::SharedLoadConflicts, count.wavefronts - count.phases);
        add(Counter::PtxSharedLoads, count.executed);
        add(Counter::PtxThreadSharedLoads, count.words);
    } else if (stores && shared) {
        add(Counter::SharedStoreInstructions, count.requests);
        add(Counter::SharedStoreWavefronts, count.wavefronts);
        add(Counter::SharedStoreConflicts, count.wavefronts - count.phases);
        add(Counter::PtxSharedStores, count.executed);
        add(Counter::PtxThreadSharedStores, count.words);
    } else if (loads && local) {
        add(Counter::PtxLocalLoads, count.executed);
    } else if (stores && local) {
        add(Counter::PtxLocalStores, count.executed);
    }
}

void Counters::mark_sectors(std::vector<uint64_t>& touched, uint64_t buffer_bytes, const uint64_t* offsets,
                            uint32_t lanes, uint32_t bytes) {
    const uint64_t sectors = (buffer_bytes >> kSectorShift) + 1;
    if (touched.size() < sectors / 64 + 1) touched.resize(sectors / 64 + 1, 0);
    uint64_t previous = ~uint64_t{0};
    for_each_lane(lanes, [&](int lane) {
        const uint64_t last = (offsets[lane] + bytes - 1) >> kSectorShift;
        if (last == previous && offsets[lane] >> kSectorShift == last) return;
        for (uint64_t sector = offsets[lane] >> kSectorShift; sector <= last; ++sector)
            touched[sector / 64] |= uint64_t{1} << (sector % 64);
        previous = last;
    });
}

void Counters::add_unique_sectors(std::vector<Buffer>& buffers) {
    const auto take = [&](std::vector<uint64_t>& touched, Counter counter) {
        for (uint64_t& word : touched) {
            add(counter, static_cast<uint64_t>(__builtin_popcountll(word)));
            word = 0;
        }
    };
    for (Buffer& buffer : buffers) {
        take(buffer.sectors_loaded, Counter::PtxGlobalUniqueSectorsLoaded);
        take(buffer.sectors_stored, Counter::PtxGlobalUniqueSectorsStored);
    }
}

}  // namespace ptx
