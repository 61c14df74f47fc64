// What happens before what. Time is one number for the emulator; it moves on at every synchronisation, so
// that accesses before and after one bear different times.
#pragma once

#include <cstdint>

#include "execution.h"

namespace ptx {

// A block begins: nothing that it does is ordered yet.
void begin_block_order(Block& block);

// The lanes of the warp have met (__syncwarp).
void order_lanes(Warp& warp);

// Only these lanes have met; what each knew of others' past they all know now.
void order_some_lanes(Warp& warp, uint32_t lanes);

// Whether what `other` of the same warp did at `time` is ordered before what `lane` does now.
inline bool is_lane_ordered(const Warp& warp, int lane, int other, uint32_t time) {
    if (time <= warp.lanes_ordered_until) return true;
    return !warp.lane_orders.empty() &&
           time <= warp.lane_orders[static_cast<size_t>(lane) * kLanes + static_cast<size_t>(other)];
}

// A fence, release or acquire. Taken generously: the warp learns of everything that any fence of the block
// has published so far, since the flag that it saw isn't followed.
void order_by_fence(Warp& warp);

// A barrier that all warps of the block have reached.
void order_block(Block& block);

// A barrier among some warps: what an arriving warp knows joins `known`, which each waiting warp then learns.
void join_arrival(Warp& warp, std::vector<uint32_t>& known);
void learn_arrivals(Warp& warp, const std::vector<uint32_t>& known);

}  // namespace ptx
