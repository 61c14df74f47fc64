#include "scheduler.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>

#include "barrier.h"
#include "lanes.h"
#include "ordering.h"

namespace ptx {

namespace {

constexpr uint64_t kSlice = 1 << 14;  // instructions until another warp gets a turn
constexpr uint32_t kNoLimit = 0xffffffffu;
constexpr uint32_t kGroupTurns = 1 << 10;  // of the groups of a warp, until the one ahead gets one

enum class Stop : uint8_t { Barrier, Ended, Slice, Reselect, Trap };

// ---- order ----

uint64_t mix(uint64_t& state) {
    state += 0x9e3779b97f4a7c15ull;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void shuffle(std::vector<uint32_t>& order, uint64_t seed) {
    for (size_t left = order.size(); left > 1; --left)
        std::swap(order[left - 1], order[mix(seed) % left]);
}

// ---- one warp ----

std::string hexadecimal(uint32_t value) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%08" PRIx32, value);
    return text;
}

class WarpRunner {
  public:
    explicit WarpRunner(Warp& warp)
        : warp_(warp),
          code_(warp.block->launch->program->code.data()),
          counts_(warp.block->launch->counters != nullptr ? warp.block->launch->counters->data() : nullptr) {}

    Stop run() {
        slice_end_ = warp_.block->instructions + kSlice;
        while (true) {
            if (warp_.groups.empty()) return Stop::Ended;
            merge_groups();
            Group* group = select();
            if (group == nullptr) {
                if (!resolve_parked()) return Stop::Barrier;
                continue;
            }
            const Stop stop = counts_ != nullptr ? run_group<true>(*group) : run_group<false>(*group);
            if (stop != Stop::Reselect) return stop;
        }
    }

  private:
    void merge_groups() {
        std::vector<Group>& groups = warp_.groups;
        for (size_t i = 0; i + 1 < groups.size(); ++i) {
            for (size_t j = i + 1; j < groups.size();) {
                if (groups[i].pc != groups[j].pc) {
                    ++j;
                    continue;
                }
                groups[i].mask |= groups[j].mask;
                groups[i].parked = false;
                groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(j));
            }
        }
    }

    // The group furthest behind, so that the others are met again; null when all are parked.
    Group* select() {
        std::vector<Group>& groups = warp_.groups;
        Group* chosen = nullptr;
        Group* ahead = nullptr;
        for (Group& group : groups) {
            if (group.parked) continue;
            if (chosen == nullptr || group.pc < chosen->pc) chosen = &group;
            if (ahead == nullptr || group.pc > ahead->pc) ahead = &group;
        }
        if (chosen == nullptr) return nullptr;
        alone_ = groups.size() == 1;
        // A group that goes round and round may wait for something that the one ahead would do.
        if (!alone_ && ++warp_.turns > kGroupTurns) {
            warp_.turns = 0;
            chosen = ahead;
        }
        limit_ = kNoLimit;
        for (const Group& group : groups)
            if (&group != chosen && group.pc > chosen->pc) limit_ = std::min(limit_, group.pc);
        return chosen;
    }

    // Every group waits for lanes that wait elsewhere. False when the warp now waits at a barrier of the
    // block.
    bool resolve_parked() {
        std::vector<Group>& groups = warp_.groups;
        if (meet_across_branches()) return true;
        Group& lowest = *std::min_element(groups.begin(), groups.end(),
                                          [](const Group& a, const Group& b) { return a.pc < b.pc; });
        const Instruction& instruction = code_[lowest.pc];
        report_divergence(instruction, lowest.mask);
        if (instruction.kind != Kind::Barrier) {  // it goes on without the missing lanes
            execute_by_mask(instruction, lowest.mask);
            ++lowest.pc;
            lowest.parked = false;
            return true;
        }
        // The hardware counts warps, so all lanes that wait at some barrier arrive together.
        for (Group& group : groups) {
            if (code_[group.pc].kind != Kind::Barrier) continue;
            ++group.pc;
            group.parked = false;
        }
        arrive_at_barrier(warp_, instruction, warp_.live);
        return false;
    }

    // __syncwarp on different branches is one meeting of the lanes with one mask. False when none is
    // complete.
    bool meet_across_branches() {
        std::vector<Group>& groups = warp_.groups;
        uint32_t masks[kLanes] = {};
        uint32_t waiting = 0;
        for (const Group& group : groups) {
            const Instruction& instruction = code_[group.pc];
            if (!is_warp_barrier(instruction)) continue;
            waiting |= group.mask;
            for_each_lane(group.mask,
                          [&](int lane) { masks[lane] = warp_.lanes<uint32_t>(instruction.c)[lane]; });
        }
        uint32_t met = 0;
        for (uint32_t rest = waiting; rest != 0;) {
            const uint32_t mask = masks[__builtin_ctz(rest)];
            const uint32_t same = rest & lanes_where([&](int lane) { return masks[lane] == mask; });
            if ((mask & warp_.live & ~same) == 0) {
                met |= same;
                order_some_lanes(warp_, same & mask);
            }
            rest &= ~same;
        }
        for (size_t i = groups.size(); i-- > 0;) {
            Group& group = groups[i];
            const uint32_t going = group.mask & met;
            if (going == 0) continue;
            const Group ahead{group.pc + 1, going, false};
            group.mask &= ~met;
            if (group.mask == 0)
                group = ahead;
            else
                groups.push_back(ahead);
        }
        return met != 0;
    }

    void unpark_groups() {
        for (Group& group : warp_.groups)
            group.parked = false;
    }

    static bool is_warp_barrier(const Instruction& instruction) {
        return instruction.kind == Kind::Converged && instruction.c != kNoRegister &&
               instruction.destination == kNoRegister && instruction.list_outputs == 0;
    }

    void report_divergence(const Instruction& instruction, uint32_t mask) {
        const Launch& launch = *warp_.block->launch;
        if (!launch.findings->first(FindingKind::DivergentBarrier, instruction, *launch.program)) return;
        const int lane = __builtin_ctz(mask);
        const bool masked = instruction.kind == Kind::Converged && instruction.c != kNoRegister;
        const uint32_t member_mask = masked ? warp_.lanes<uint32_t>(instruction.c)[lane] : kAllLanes;
        const uint32_t wanted = warp_.live & member_mask;
        const uint32_t same_mask = masked ? lanes_with_mask(instruction, member_mask) : kAllLanes;
        launch.findings->describe(
            warp_, lane,
            "reaches " + launch.program->notes[instruction.index].text.substr(0, 40) + " with only " +
                std::to_string(__builtin_popcount(mask & wanted & same_mask)) + " of the " +
                std::to_string(__builtin_popcount(wanted)) + " live lanes of its " +
                (masked ? "mask " + hexadecimal(member_mask) : "warp"));
    }

    uint32_t lanes_with_mask(const Instruction& instruction, uint32_t member_mask) const {
        const uint32_t* masks = warp_.lanes<uint32_t>(instruction.c);
        return lanes_where([=](int lane) { return masks[lane] == member_mask; });
    }

    uint32_t guarded(const Instruction& instruction, uint32_t mask) const {
        if (instruction.guard == kNoRegister) return mask;
        const uint32_t predicate = warp_.predicate(instruction.guard);
        return mask & (instruction.guard_negated ? ~predicate : predicate);
    }

    // The lanes of `active` whose mask names no lane that isn't here with the same mask. Without a mask all
    // live lanes are wanted.
    uint32_t lanes_that_met(const Instruction& instruction, uint32_t active) const {
        if (instruction.c == kNoRegister) return (warp_.live & ~active) == 0 ? active : 0;
        uint32_t met = 0;
        for (uint32_t rest = active; rest != 0;) {
            const uint32_t member_mask = warp_.lanes<uint32_t>(instruction.c)[__builtin_ctz(rest)];
            const uint32_t same = active & lanes_with_mask(instruction, member_mask);
            const uint32_t others = member_mask & active & ~same;
            if (others != 0) report_other_mask(instruction, same, others);
            if ((member_mask & warp_.live & ~same) == 0) met |= same;
            rest &= ~same;
        }
        return met;
    }

    void report_other_mask(const Instruction& instruction, uint32_t lanes, uint32_t others) const {
        const Launch& launch = *warp_.block->launch;
        if (!launch.findings->first(FindingKind::DivergentBarrier, instruction, *launch.program)) return;
        const uint32_t* masks = warp_.lanes<uint32_t>(instruction.c);
        const int lane = __builtin_ctz(lanes);
        const int other = __builtin_ctz(others);
        launch.findings->describe(warp_, lane,
                                  "executes " + first_word(instruction) + " with the mask " +
                                      hexadecimal(masks[lane]) + " together with lane " +
                                      std::to_string(other) + ", whose mask is " + hexadecimal(masks[other]),
                                  static_cast<int>(warp_.thread(other)));
    }

    std::string first_word(const Instruction& instruction) const {
        const std::string& text = warp_.block->launch->program->notes[instruction.index].text;
        return text.substr(0, text.find(' '));
    }

    // Executes an instruction for lanes that have met, those of each mask by themselves.
    void execute_by_mask(const Instruction& instruction, uint32_t active) {
        if (instruction.c == kNoRegister) {
            instruction.execute(warp_, instruction, active);
            return;
        }
        warp_.gathered = active;
        for (uint32_t rest = active; rest != 0;) {
            const uint32_t member_mask = warp_.lanes<uint32_t>(instruction.c)[__builtin_ctz(rest)];
            const uint32_t same = rest & lanes_with_mask(instruction, member_mask);
            if ((same & ~member_mask) != 0)
                report_outside_mask(instruction, same & ~member_mask, member_mask);
            instruction.execute(warp_, instruction, same);
            rest &= ~same;
        }
    }

    void report_outside_mask(const Instruction& instruction, uint32_t lanes, uint32_t member_mask) {
        const Launch& launch = *warp_.block->launch;
        for_each_lane(lanes, [&](int lane) {
            if (!launch.findings->first(FindingKind::DivergentBarrier, instruction, *launch.program)) return;
            launch.findings->describe(warp_, lane,
                                      "executes " + first_word(instruction) + " with the mask " +
                                          hexadecimal(member_mask) + ", which doesn't name its own lane " +
                                          std::to_string(lane));
        });
    }

    template <bool kCounting>
    void count(const Instruction& instruction, uint32_t active) {
        if (!kCounting) return;
        InstructionCount& counted = counts_[instruction.index];
        counted.executed += 1;
        counted.lanes += static_cast<uint64_t>(__builtin_popcount(active));
    }

    // Runs the group until it has to wait, ends, splits, or comes to where another group is.
    template <bool kCounting>
    Stop run_group(Group& group) {
        uint32_t pc = group.pc;
        uint32_t mask = group.mask;
        uint32_t straight_from = pc;  // instructions are added up at branches
        uint64_t& instructions = warp_.block->instructions;
        const auto leave = [&](Stop stop) {
            instructions += pc - straight_from;
            group.pc = pc;
            group.mask = mask;
            return stop;
        };
        while (true) {
            const Instruction& instruction = code_[pc];
            const uint32_t active = guarded(instruction, mask);
            switch (instruction.kind) {
                case Kind::Plain:
                    if (active != 0) {
                        count<kCounting>(instruction, active);
                        instruction.execute(warp_, instruction, active);
                    }
                    ++pc;
                    break;

                case Kind::Branch: {
                    count<kCounting>(instruction, mask);
                    instructions += pc + 1 - straight_from;
                    const bool backward = instruction.target <= pc;
                    if (active == 0) {
                        ++pc;
                    } else if (active == mask) {
                        pc = instruction.target;
                    } else {
                        group.pc = pc + 1;
                        group.mask = mask & ~active;
                        warp_.groups.push_back({instruction.target, active, false});
                        return Stop::Reselect;
                    }
                    straight_from = pc;
                    if (backward && active != 0 && instructions > slice_end_) return leave(Stop::Slice);
                    if (backward && !alone_) return leave(Stop::Reselect);
                    if (pc > limit_) return leave(Stop::Reselect);
                    break;
                }

                case Kind::Exit:
                    count<kCounting>(instruction, active);
                    if (active == 0) {
                        ++pc;
                        break;
                    }
                    warp_.live &= ~active;
                    mask &= ~active;
                    ++pc;
                    unpark_groups();  // they may have waited for these lanes
                    if (mask == 0) {
                        instructions += pc - straight_from;
                        warp_.groups.erase(warp_.groups.begin() + (&group - warp_.groups.data()));
                        return warp_.groups.empty() ? Stop::Ended : Stop::Reselect;
                    }
                    break;

                case Kind::Barrier:
                    if (active == 0) {
                        ++pc;
                        break;
                    }
                    if (active != warp_.live) {
                        group.parked = true;
                        return leave(Stop::Reselect);
                    }
                    count<kCounting>(instruction, active);
                    ++pc;
                    leave(Stop::Barrier);
                    instruction.execute(warp_, instruction, active);
                    return Stop::Barrier;

                case Kind::Converged:
                    if (active == 0) {
                        ++pc;
                        break;
                    }
                    if (const uint32_t met = lanes_that_met(instruction, active); met != active) {
                        // The others of those who execute it wait; whoever needn't goes on.
                        const uint32_t waiting = active & ~met;
                        if (met != 0) {
                            count<kCounting>(instruction, met);
                            execute_by_mask(instruction, met);
                        }
                        const Group ahead{pc + 1, mask & ~waiting, false};
                        mask = waiting;
                        group.parked = true;
                        const Stop stop = leave(Stop::Reselect);
                        if (ahead.mask != 0) warp_.groups.push_back(ahead);
                        return stop;
                    }
                    count<kCounting>(instruction, active);
                    execute_by_mask(instruction, active);
                    ++pc;
                    break;

                case Kind::Trap:
                    if (active == 0) {
                        ++pc;
                        break;
                    }
                    return leave(Stop::Trap);

                case Kind::Yield:
                    if (active != 0) {
                        count<kCounting>(instruction, active);
                        instruction.execute(warp_, instruction, active);
                    }
                    ++pc;
                    return leave(Stop::Slice);
            }
            if (pc == limit_) return leave(Stop::Reselect);
        }
    }

    Warp& warp_;
    const Instruction* code_;
    InstructionCount* counts_;
    uint64_t slice_end_ = 0;
    uint32_t limit_ = kNoLimit;
    bool alone_ = true;
};

// ---- one block ----

uint32_t special_value(const Launch& launch, SpecialRegister which, uint32_t thread) {
    const uint32_t lane = thread % kLanes;
    switch (which) {
        case SpecialRegister::ThreadX:
            return thread % launch.block[0];
        case SpecialRegister::ThreadY:
            return thread / launch.block[0] % launch.block[1];
        case SpecialRegister::ThreadZ:
            return thread / launch.block[0] / launch.block[1];
        case SpecialRegister::BlockDimX:
            return launch.block[0];
        case SpecialRegister::BlockDimY:
            return launch.block[1];
        case SpecialRegister::BlockDimZ:
            return launch.block[2];
        case SpecialRegister::GridDimX:
            return launch.grid[0];
        case SpecialRegister::GridDimY:
            return launch.grid[1];
        case SpecialRegister::GridDimZ:
            return launch.grid[2];
        case SpecialRegister::Lane:
            return lane;
        case SpecialRegister::WarpInBlock:
            return thread / kLanes;
        case SpecialRegister::WarpsInBlock:
            return launch.warps;
        case SpecialRegister::LaneMaskEqual:
            return 1u << lane;
        case SpecialRegister::LaneMaskLess:
            return (1u << lane) - 1;
        case SpecialRegister::LaneMaskLessEqual:
            return (2u << lane) - 1;
        case SpecialRegister::LaneMaskGreater:
            return ~((2u << lane) - 1);
        case SpecialRegister::LaneMaskGreaterEqual:
            return ~((1u << lane) - 1);
        case SpecialRegister::DynamicSharedBytes:
            return launch.dynamic_shared_bytes;
        case SpecialRegister::TotalSharedBytes:
            return launch.shared_bytes;
        case SpecialRegister::One:
            return 1;
        default:
            return 0;
    }
}

void fill_lanes(Warp& warp, Register place, uint32_t value) {
    std::fill_n(warp.lanes<uint32_t>(place), kLanes, value);
}

void set_constants(const Launch& launch, Warp& warp) {
    for (const Constant& constant : launch.program->constants) {
        if (constant.bits == 1)
            warp.predicate(constant.place) = static_cast<uint32_t>(constant.value);
        else if (constant.bits == 64)
            std::fill_n(warp.lanes<uint64_t>(constant.place), kLanes, constant.value);
        else
            fill_lanes(warp, constant.place, static_cast<uint32_t>(constant.value));
    }
    for (const SpecialRegisterUse& use : launch.program->special_registers)
        for (int lane = 0; lane < kLanes; ++lane)
            warp.lanes<uint32_t>(use.place)[lane] = special_value(launch, use.which, warp.thread(lane));
}

bool same_shape(const LaunchShape& shape, const Launch& launch) {
    return shape.program == launch.program && std::equal(shape.grid, shape.grid + 3, launch.grid) &&
           std::equal(shape.block, shape.block + 3, launch.block) &&
           shape.dynamic_shared_bytes == launch.dynamic_shared_bytes;
}

// Makes room for the block's registers and memory, and sets what stays the same for the whole launch.
void prepare_block(const Launch& launch, Block& block) {
    const Program& program = *launch.program;
    block.launch = &launch;
    block.shared.resize(launch.shared_bytes + sizeof kJunk);
    if (launch.find)
        block.shared_check.prepare(launch.shared_bytes, program.shared_granule_shift, launch.warps,
                                   program.partial_ordering || program.lane_ordering,
                                   program.lane_ordering);
    block.local.resize(size_t{program.local_bytes} * launch.warps * kLanes);
    if (same_shape(block.prepared, launch)) return;

    constexpr size_t kAlignment = 64;
    const size_t stride = (program.register_bytes + kAlignment - 1) / kAlignment * kAlignment;
    block.register_file.assign(stride * launch.warps + kAlignment, 0);
    uint8_t* aligned = block.register_file.data();
    aligned += kAlignment - reinterpret_cast<uintptr_t>(aligned) % kAlignment;
    block.warps.resize(launch.warps);
    for (uint32_t index = 0; index < launch.warps; ++index) {
        Warp& warp = block.warps[index];
        warp.registers = aligned + stride * index;
        warp.block = &block;
        warp.index = index;
        set_constants(launch, warp);
    }
    block.prepared = {launch.program,
                      {launch.grid[0], launch.grid[1], launch.grid[2]},
                      {launch.block[0], launch.block[1], launch.block[2]},
                      launch.dynamic_shared_bytes};
}

void begin_block(const Launch& launch, Block& block, uint32_t number) {
    block.number = number;
    block.position[0] = number % launch.grid[0];
    block.position[1] = number / launch.grid[0] % launch.grid[1];
    block.position[2] = number / launch.grid[0] / launch.grid[1];
    block.instructions = 0;
    std::memset(block.shared.data(), kJunkByte, block.shared.size());
    std::fill(block.local.begin(), block.local.end(), kJunkByte);
    std::fill(std::begin(block.barriers), std::end(block.barriers), Barrier());
    for (Warp& warp : block.warps) {
        const uint32_t threads = launch.threads - warp.index * kLanes;
        warp.live = threads >= kLanes ? kAllLanes : (1u << threads) - 1;
        warp.state = WarpState::Ready;
        warp.turns = 0;
        warp.groups.assign(1, {0, warp.live, false});
        warp.copies.clear();
        std::fill_n(warp.copy_groups, kLanes, 0u);
        for (const SpecialRegisterUse& use : launch.program->special_registers) {
            const int axis = static_cast<int>(use.which) - static_cast<int>(SpecialRegister::BlockX);
            if (axis >= 0 && axis < 3) fill_lanes(warp, use.place, block.position[axis]);
        }
    }
    begin_block_order(block);
}

void report_stuck(Warp& warp, const std::string& what) {
    const Launch& launch = *warp.block->launch;
    const Group& group = warp.groups.front();
    const Instruction& instruction = launch.program->code[group.pc];
    if (!launch.findings->first(FindingKind::NoProgress, instruction, *launch.program)) return;
    launch.findings->describe(warp, __builtin_ctz(group.mask), what);
}

// False when the block can't end.
bool run_block(const Launch& launch, Block& block, uint64_t& seed) {
    std::vector<uint32_t> order(launch.warps);
    std::iota(order.begin(), order.end(), 0u);
    while (true) {
        if (launch.order != 0) shuffle(order, mix(seed));
        bool ran = false;
        bool ended = true;
        for (const uint32_t index : order) {
            Warp& warp = block.warps[index];
            if (warp.state != WarpState::Done) ended = false;
            if (warp.state != WarpState::Ready) continue;
            ran = true;
            switch (WarpRunner(warp).run()) {
                case Stop::Ended:
                    warp.state = WarpState::Done;
                    complete_barriers_without(block);
                    break;
                case Stop::Trap:
                    report_stuck(warp, "executes trap, which ends the launch");
                    return false;
                default:
                    break;
            }
            if (block.instructions > launch.block_budget) {
                report_stuck(warp, "is still here after its block has executed " +
                                       std::to_string(block.instructions) + " instructions");
                return false;
            }
        }
        if (ended) return true;
        if (!ran) {
            report_deadlock(block);
            return false;
        }
    }
}

}  // namespace

bool run_launch(const Launch& launch, Block& block) {
    prepare_block(launch, block);
    const uint32_t blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
    std::vector<uint32_t> shuffled;
    uint64_t seed = launch.order;
    if (launch.order != 0) {
        shuffled.resize(blocks);
        std::iota(shuffled.begin(), shuffled.end(), 0u);
        shuffle(shuffled, mix(seed));
    }
    for (uint32_t i = 0; i < blocks; ++i) {
        begin_block(launch, block, launch.order != 0 ? shuffled[i] : i);
        if (!run_block(launch, block, seed)) return false;
    }
    return true;
}

}  // namespace ptx
