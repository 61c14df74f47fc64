#include "ordering.h"

#include <algorithm>

#include "lanes.h"

namespace ptx {

namespace {

uint32_t* known_of(Warp& warp) {
    return &warp.block->known[size_t{warp.index} * warp.block->launch->warps];
}

// The quick bound of a warp: what it knows of every other warp's past.
void update_bound(Warp& warp) {
    const uint32_t warps = warp.block->launch->warps;
    const uint32_t* known = known_of(warp);
    uint32_t least = ~0u;
    for (uint32_t other = 0; other < warps; ++other)
        if (other != warp.index) least = std::min(least, known[other]);
    if (warps > 1) warp.block_ordered_until = std::max(warp.block_ordered_until, least);
}

void learn(Warp& warp, const std::vector<uint32_t>& facts) {
    uint32_t* known = known_of(warp);
    for (size_t other = 0; other < facts.size(); ++other)
        known[other] = std::max(known[other], facts[other]);
    update_bound(warp);
}

void tell(Warp& warp, std::vector<uint32_t>& facts) {
    const uint32_t warps = warp.block->launch->warps;
    if (facts.size() != warps) facts.assign(warps, warp.block->begin);
    const uint32_t* known = known_of(warp);
    for (uint32_t other = 0; other < warps; ++other)
        facts[other] = std::max(facts[other], std::max(known[other], warp.block_ordered_until));
    facts[warp.index] = *warp.block->launch->now;
}

}  // namespace

void begin_block_order(Block& block) {
    const Launch& launch = *block.launch;
    block.begin = ++*launch.now;
    for (Warp& warp : block.warps) {
        warp.lanes_ordered_until = block.begin;
        warp.block_ordered_until = block.begin;
        warp.lane_orders.clear();
    }
    if (launch.program->partial_ordering) {
        block.known.assign(size_t{launch.warps} * launch.warps, block.begin);
        block.published.clear();
    }
    ++*launch.now;
}

void order_lanes(Warp& warp) {
    uint32_t& now = *warp.block->launch->now;
    warp.lanes_ordered_until = now;
    ++now;
}

void order_some_lanes(Warp& warp, uint32_t lanes) {
    if ((warp.live & ~lanes) == 0) {
        order_lanes(warp);
        return;
    }
    if (warp.lane_orders.empty()) warp.lane_orders.assign(size_t{kLanes} * kLanes, 0);
    uint32_t& now = *warp.block->launch->now;
    uint32_t joint[kLanes] = {};
    for_each_lane(lanes, [&](int lane) {
        const uint32_t* known = &warp.lane_orders[static_cast<size_t>(lane) * kLanes];
        for (int other = 0; other < kLanes; ++other)
            joint[other] = std::max(joint[other], known[other]);
    });
    for_each_lane(lanes, [&](int lane) { joint[lane] = now; });
    for_each_lane(lanes, [&](int lane) {
        std::copy_n(joint, kLanes, &warp.lane_orders[static_cast<size_t>(lane) * kLanes]);
    });
    ++now;
}

void order_by_fence(Warp& warp) {
    Block& block = *warp.block;
    if (!block.launch->program->partial_ordering) return;
    tell(warp, block.published);
    learn(warp, block.published);
    ++*block.launch->now;
}

void order_block(Block& block) {
    uint32_t& now = *block.launch->now;
    for (Warp& warp : block.warps) {
        warp.lanes_ordered_until = now;
        warp.block_ordered_until = now;
    }
    ++now;
}

void join_arrival(Warp& warp, std::vector<uint32_t>& known) {
    tell(warp, known);
    order_lanes(warp);
}

void learn_arrivals(Warp& warp, const std::vector<uint32_t>& known) {
    learn(warp, known);
    order_lanes(warp);
}

}  // namespace ptx
