// Control flow, barriers of a block, fences, and instructions that do nothing here. The scheduler acts on
// branches, exits and barriers itself, by their kind.
#include "../barrier.h"
#include "../decoder.h"
#include "../lanes.h"
#include "../ordering.h"

namespace ptx {

namespace {

void nothing(Warp&, const Instruction&, uint32_t) {}

bool decode_branch(Decoder& decoder) {
    decoder.take("uni");
    decoder.expect_operands(1, 1);
    decoder.branch_to(decoder.operand(0));
    decoder.instruction().kind = Kind::Branch;
    decoder.instruction().execute = nothing;
    return true;
}

bool decode_exit(Decoder& decoder) {
    decoder.take("uni");
    decoder.expect_operands(0, 0);
    decoder.instruction().kind = Kind::Exit;
    decoder.instruction().execute = nothing;
    return true;
}

bool decode_barrier(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    if (decoder.has("warp") || decoder.has("cluster")) return false;
    decoder.take("cta");
    decoder.take("aligned");
    BarrierAction action = BarrierAction::Sync;
    size_t first = 0;
    if (decoder.take("arrive")) {
        action = BarrierAction::Arrive;
    } else if (decoder.take("red")) {
        decoder.take_type();
        const int reduction = decoder.take_one_of({"popc", "and", "or"}, -1);
        if (reduction < 0) decoder.unsupported();
        action = static_cast<BarrierAction>(static_cast<int>(BarrierAction::ReduceCount) + reduction);
        instruction.destination = decoder.destination(0);
        first = 1;
    } else if (!decoder.take("sync")) {
        decoder.unsupported();
    }
    size_t last = decoder.operands();
    if (first == 1) {
        --last;
        std::string predicate = decoder.operand(last);
        instruction.option[1] = predicate[0] == '!';
        if (predicate[0] == '!') predicate.erase(0, 1);
        instruction.c = decoder.source(predicate, Type::Pred);
    }
    decoder.expect_operands(first * 2 + 1, first * 2 + 2);
    instruction.a = decoder.source(first, Type::U32);
    if (last == first + 2) {
        instruction.b = decoder.source(first + 1, Type::U32);
        decoder.program().partial_ordering = true;
    }
    instruction.option[0] = static_cast<uint8_t>(action);
    instruction.kind = Kind::Barrier;
    instruction.execute = arrive_at_barrier;
    return true;
}

void fence(Warp& warp, const Instruction&, uint32_t) {
    order_by_fence(warp);
}

bool decode_fence(Decoder& decoder) {
    // membar.gl, fence.acq_rel.gpu, fence.proxy.async and their kin: none weaker than another here.
    for (const char* modifier : {"sc", "acq_rel", "acquire", "release"})
        decoder.take(modifier);
    const int scope = decoder.take_one_of({"cta", "cluster", "gpu", "sys", "gl"}, -1);
    if (scope < 0) return false;
    decoder.program().partial_ordering = true;
    if (scope > 0) decoder.program().blocks_communicate = true;
    decoder.instruction().execute = fence;
    return true;
}

bool decode_trap(Decoder& decoder) {
    decoder.expect_operands(0, 0);
    decoder.instruction().kind = Kind::Trap;
    decoder.instruction().execute = nothing;
    return true;
}

bool decode_sleep(Decoder& decoder) {
    decoder.take_type();
    decoder.instruction().kind = Kind::Yield;
    decoder.instruction().execute = nothing;
    return true;
}

bool decode_prefetch(Decoder& decoder) {
    decoder.take_space();
    decoder.take_one_of({"L1", "L2", "L2::evict_last", "L2::evict_normal"}, -1);
    decoder.instruction().execute = nothing;
    return true;
}

}  // namespace

void register_control_operations(OpcodeTable& table) {
    table["bra"].push_back(decode_branch);
    table["ret"].push_back(decode_exit);
    table["exit"].push_back(decode_exit);
    table["bar"].push_back(decode_barrier);
    table["barrier"].push_back(decode_barrier);
    table["membar"].push_back(decode_fence);
    table["fence"].push_back(decode_fence);
    table["trap"].push_back(decode_trap);
    table["nanosleep"].push_back(decode_sleep);
    table["prefetch"].push_back(decode_prefetch);
    table["prefetchu"].push_back(decode_prefetch);
}

}  // namespace ptx
