// The named barriers of a block.
#pragma once

#include <cstdint>

#include "execution.h"

namespace ptx {

enum class BarrierAction : uint8_t { Sync, Arrive, ReduceCount, ReduceAnd, ReduceOr };

// The warp arrives; afterwards it waits (WarpState::AtBarrier) unless that completed the barrier or it only
// arrives.
void arrive_at_barrier(Warp& warp, const Instruction& instruction, uint32_t active);

// A warp has ended: barriers that wait for all live warps may be complete now.
void complete_barriers_without(Block& block);

// No warp can go on: reports where they wait.
void report_deadlock(Block& block);

}  // namespace ptx
