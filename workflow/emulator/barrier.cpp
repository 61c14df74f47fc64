#include "barrier.h"

#include <string>

#include "lanes.h"
#include "ordering.h"

namespace ptx {

namespace {

uint32_t live_warps(const Block& block) {
    uint32_t warps = 0;
    for (const Warp& warp : block.warps)
        if (warp.state != WarpState::Done) warps |= 1u << warp.index;
    return warps;
}

uint32_t count_warps(uint32_t warps) {
    return static_cast<uint32_t>(__builtin_popcount(warps));
}

bool is_complete(const Block& block, const Barrier& barrier) {
    if (barrier.arrived == 0) return false;
    if (barrier.expected_warps != 0) return count_warps(barrier.arrived) >= barrier.expected_warps;
    return (live_warps(block) & ~barrier.arrived) == 0;
}

void deliver_reduction(Warp& warp, const Instruction& instruction, const Barrier& barrier) {
    const auto action = static_cast<BarrierAction>(instruction.option[0]);
    if (action == BarrierAction::Sync) return;
    const uint32_t count = barrier.reduction_count;
    if (action == BarrierAction::ReduceCount) {
        write_lanes<uint32_t>(warp, instruction.destination, warp.live, [=](int) { return count; });
        return;
    }
    const bool all = action == BarrierAction::ReduceAnd ? count == barrier.reduction_threads : count != 0;
    write_predicate(warp, instruction.destination, warp.live, all ? kAllLanes : 0);
}

const Instruction& barrier_of(const Warp& warp) {
    return warp.block->launch->program->code[warp.barrier_pc];
}

void complete(Block& block, Barrier& barrier) {
    const bool whole_block = (live_warps(block) & ~barrier.waiting) == 0;
    if (whole_block) order_block(block);
    for (Warp& warp : block.warps) {
        if ((barrier.waiting >> warp.index & 1) == 0) continue;
        warp.state = WarpState::Ready;
        deliver_reduction(warp, barrier_of(warp), barrier);
        if (!whole_block) learn_arrivals(warp, barrier.known);
    }
    if (block.launch->counters != nullptr) block.launch->counters->add(Counter::PtxBlockBarriers, 1);
    barrier = Barrier();
}

// Different __syncthreads of one block may not meet, though the hardware lets them.
void check_convergence(Warp& warp, const Instruction& instruction, Barrier& barrier) {
    const Launch& launch = *warp.block->launch;
    const bool plain = instruction.b == kNoRegister;
    if (barrier.arrived == 0) {
        barrier.first_pc = instruction.index;
        return;
    }
    if (!plain || barrier.first_pc == instruction.index || !launch.find) return;
    const Instruction& first = launch.program->code[barrier.first_pc];
    if (first.b != kNoRegister) return;
    if (!launch.findings->first(FindingKind::DivergentBarrier, instruction, *launch.program)) return;
    const uint32_t line = launch.program->notes[first.index].source.line;
    launch.findings->describe(
        warp, __builtin_ctz(warp.live),
        "waits here while another warp of its block waits at the barrier of line " + std::to_string(line));
}

}  // namespace

void arrive_at_barrier(Warp& warp, const Instruction& instruction, uint32_t active) {
    Block& block = *warp.block;
    const int lane = __builtin_ctz(active);
    Barrier& barrier = block.barriers[warp.lanes<uint32_t>(instruction.a)[lane] % kBarriers];
    check_convergence(warp, instruction, barrier);
    if (instruction.b != kNoRegister)
        barrier.expected_warps = (warp.lanes<uint32_t>(instruction.b)[lane] + kLanes - 1) / kLanes;
    if (instruction.c != kNoRegister) {
        const uint32_t predicate =
            warp.predicate(instruction.c) ^ (instruction.option[1] != 0 ? kAllLanes : 0);
        barrier.reduction_count += static_cast<uint32_t>(__builtin_popcount(predicate & active));
        barrier.reduction_threads += static_cast<uint32_t>(__builtin_popcount(active));
    }
    barrier.arrived |= 1u << warp.index;
    if (block.launch->program->partial_ordering) join_arrival(warp, barrier.known);
    if (static_cast<BarrierAction>(instruction.option[0]) != BarrierAction::Arrive) {
        barrier.waiting |= 1u << warp.index;
        warp.state = WarpState::AtBarrier;
        warp.barrier_pc = instruction.index;
    }
    if (is_complete(block, barrier)) complete(block, barrier);
}

void complete_barriers_without(Block& block) {
    for (Barrier& barrier : block.barriers)
        if (barrier.expected_warps == 0 && is_complete(block, barrier)) complete(block, barrier);
}

void report_deadlock(Block& block) {
    const Launch& launch = *block.launch;
    for (Warp& warp : block.warps) {
        if (warp.state != WarpState::AtBarrier) continue;
        const Instruction& instruction = barrier_of(warp);
        if (!launch.findings->first(FindingKind::NoProgress, instruction, *launch.program)) continue;
        launch.findings->describe(warp, __builtin_ctz(warp.live),
                                  "waits for ever at a barrier that other threads of its block don't reach");
    }
}

}  // namespace ptx
