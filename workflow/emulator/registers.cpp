#include "registers.h"

#include <algorithm>
#include <numeric>

namespace ptx {

namespace {

constexpr uint32_t kWordPlace = 128;        // 32 lanes of 32 bits
constexpr uint32_t kDoubleWordPlace = 256;  // 32 lanes of 64 bits
constexpr uint32_t kPredicatePlace = 4;     // a bit a lane

// Calls use(register) for what the instruction reads and define(register) for what it writes.
template <class Use, class Define>
void for_each_register(const Program& program, const Instruction& instruction, Use use, Define define) {
    for (const Register place : {instruction.a, instruction.b, instruction.c, instruction.guard})
        if (place != kNoRegister) use(place);
    const Register* list = program.operand_lists.data() + instruction.list;
    for (int i = 0; i < instruction.list_inputs; ++i)
        use(list[instruction.list_outputs + i]);
    for (int i = 0; i < instruction.list_outputs; ++i)
        define(list[i]);
    if (instruction.destination != kNoRegister) define(instruction.destination);
}

using Bits = std::vector<uint64_t>;

bool test(const Bits& bits, uint32_t index) {
    return (bits[index / 64] >> (index % 64) & 1) != 0;
}

void set(Bits& bits, uint32_t index) {
    bits[index / 64] |= uint64_t{1} << (index % 64);
}

// Straight-line code, entered at its first instruction only.
struct BasicBlock {
    uint32_t first;
    uint32_t last;
    std::vector<uint32_t> successors;
    Bits reads;   // before any write in the block
    Bits writes;  // by an instruction that every lane executes
    Bits live_in;
    Bits live_out;
};

std::vector<BasicBlock> find_blocks(const Program& program) {
    const size_t size = program.code.size();
    std::vector<char> leads(size + 1, 0);
    leads[0] = 1;
    for (const Instruction& instruction : program.code) {
        if (instruction.kind == Kind::Branch) leads[instruction.target] = 1;
        if (instruction.kind == Kind::Branch || instruction.kind == Kind::Exit)
            leads[instruction.index + 1] = 1;
    }
    std::vector<BasicBlock> blocks;
    std::vector<uint32_t> block_at(size + 1, 0);
    for (uint32_t i = 0; i < size; ++i) {
        if (leads[i]) blocks.push_back({i, i, {}, {}, {}, {}, {}});
        blocks.back().last = i;
        block_at[i] = static_cast<uint32_t>(blocks.size() - 1);
    }
    for (BasicBlock& block : blocks) {
        const Instruction& end = program.code[block.last];
        const bool conditional = end.guard != kNoRegister;
        if (end.kind == Kind::Branch) block.successors.push_back(block_at[end.target]);
        const bool falls_through = conditional || (end.kind != Kind::Branch && end.kind != Kind::Exit);
        if (falls_through && block.last + 1 < size) block.successors.push_back(block_at[block.last + 1]);
    }
    return blocks;
}

void find_liveness(const Program& program, std::vector<BasicBlock>& blocks, size_t registers) {
    const size_t words = registers / 64 + 1;
    for (BasicBlock& block : blocks) {
        block.reads.assign(words, 0);
        block.writes.assign(words, 0);
        block.live_in.assign(words, 0);
        block.live_out.assign(words, 0);
        for (uint32_t i = block.first; i <= block.last; ++i) {
            const Instruction& instruction = program.code[i];
            const bool partial = instruction.guard != kNoRegister;
            const auto use = [&](Register place) {
                if (!test(block.writes, place)) set(block.reads, place);
            };
            const auto define = [&](Register place) {
                if (partial)
                    use(place);  // lanes without the guard keep what was there
                else
                    set(block.writes, place);
            };
            for_each_register(program, instruction, use, define);
        }
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t b = blocks.size(); b-- > 0;) {
            BasicBlock& block = blocks[b];
            for (size_t word = 0; word < words; ++word) {
                uint64_t out = 0;
                for (const uint32_t successor : block.successors)
                    out |= blocks[successor].live_in[word];
                const uint64_t in = block.reads[word] | (out & ~block.writes[word]);
                changed |= in != block.live_in[word] || out != block.live_out[word];
                block.live_out[word] = out;
                block.live_in[word] = in;
            }
        }
    }
}

// From the first to the last instruction at which a register must keep its place.
struct Interval {
    uint32_t first = 0xffffffffu;
    uint32_t last = 0;

    void extend(uint32_t at) {
        first = std::min(first, at);
        last = std::max(last, at);
    }
};

std::vector<Interval> find_intervals(const Program& program, const std::vector<BasicBlock>& blocks,
                                     size_t registers) {
    std::vector<Interval> intervals(registers);
    for (const BasicBlock& block : blocks) {
        for (uint32_t i = block.first; i <= block.last; ++i) {
            const auto extend = [&](Register place) { intervals[place].extend(i); };
            for_each_register(program, program.code[i], extend, extend);
        }
        for (uint32_t place = 0; place < registers; ++place) {
            if (test(block.live_in, place)) intervals[place].extend(block.first);
            if (test(block.live_out, place)) intervals[place].extend(block.last);
        }
    }
    return intervals;
}

uint32_t place_bytes(uint8_t bits) {
    return bits == 64 ? kDoubleWordPlace : bits == 1 ? kPredicatePlace : kWordPlace;
}

// Hands out places of one size. A place is free again after the last instruction of its interval, never
// within it, so that no instruction reads and writes one place under two names.
class PlacePool {
  public:
    uint32_t take(uint32_t bytes, uint32_t& end, uint32_t first, uint32_t last) {
        for (Place& place : places_) {
            if (place.busy_until >= first) continue;
            place.busy_until = last;
            return place.offset;
        }
        places_.push_back({end, last});
        end += bytes;
        return places_.back().offset;
    }

  private:
    struct Place {
        uint32_t offset;
        uint32_t busy_until;
    };
    std::vector<Place> places_;
};

}  // namespace

void place_registers(Program& program, const std::vector<uint8_t>& bits) {
    const size_t registers = bits.size();
    std::vector<BasicBlock> blocks = find_blocks(program);
    find_liveness(program, blocks, registers);
    std::vector<Interval> intervals = find_intervals(program, blocks, registers);

    // Constants and special registers are set before the launch and stay.
    const auto last_instruction = static_cast<uint32_t>(program.code.size());
    const auto keep = [&](Register place) { intervals[place] = {0, last_instruction}; };
    for (const Constant& constant : program.constants)
        keep(constant.place);
    for (const SpecialRegisterUse& use : program.special_registers)
        keep(use.place);

    std::vector<Register> by_start(registers);
    std::iota(by_start.begin(), by_start.end(), 0u);
    std::stable_sort(by_start.begin(), by_start.end(),
                     [&](Register a, Register b) { return intervals[a].first < intervals[b].first; });

    std::vector<uint32_t> offsets(registers, 0);
    uint32_t end = 0;
    for (const uint8_t size : {64, 32, 1}) {
        PlacePool pool;
        for (const Register place : by_start) {
            if (bits[place] != size || intervals[place].first > intervals[place].last) continue;
            offsets[place] = pool.take(place_bytes(size), end, intervals[place].first, intervals[place].last);
        }
    }
    program.register_bytes = end;

    const auto move = [&](Register& place) {
        if (place != kNoRegister) place = offsets[place];
    };
    for (Instruction& instruction : program.code) {
        for (Register* place :
             {&instruction.destination, &instruction.a, &instruction.b, &instruction.c, &instruction.guard})
            move(*place);
    }
    for (Register& place : program.operand_lists)
        move(place);
    for (Constant& constant : program.constants)
        move(constant.place);
    for (SpecialRegisterUse& use : program.special_registers)
        move(use.place);
}

}  // namespace ptx
