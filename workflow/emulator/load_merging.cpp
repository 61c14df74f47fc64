#include "load_merging.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

namespace ptx {

namespace {

constexpr int kMostAligned = 31;

// Trailing zero bits that each register's value is known to have, whatever the launch.
class Alignment {
  public:
    explicit Alignment(const Program& program) : program_(program) {
        for (const Constant& constant : program.constants) {
            constants_[constant.place] = constant.value;
            zeros_[constant.place] = trailing_zeros(constant.value);
        }
        for (const SpecialRegisterUse& use : program.special_registers)
            zeros_[use.place] = 0;
        // Loops make values depend on themselves: start from the best and lower until nothing changes.
        for (bool changed = true; changed;) {
            changed = false;
            for (const Instruction& instruction : program.code)
                changed |= lower(instruction);
        }
    }

    int of(Register place) const {
        const auto found = zeros_.find(place);
        return found == zeros_.end() ? kMostAligned : found->second;
    }

  private:
    static int trailing_zeros(uint64_t value) { return value == 0 ? kMostAligned : __builtin_ctzll(value); }

    bool lower(const Instruction& instruction) {
        bool changed = false;
        const int zeros = std::clamp(result_zeros(instruction), 0, kMostAligned);
        const auto lower_one = [&](Register place) {
            const int known = of(place);
            if (zeros < known) {
                zeros_[place] = zeros;
                changed = true;
            }
        };
        if (instruction.destination != kNoRegister) lower_one(instruction.destination);
        for (int i = 0; i < instruction.list_outputs; ++i)
            lower_one(program_.operand_lists[instruction.list + static_cast<uint32_t>(i)]);
        return changed;
    }

    int result_zeros(const Instruction& instruction) const {
        const std::string& opcode = program_.notes[instruction.index].opcode;
        if (instruction.a == kNoRegister || instruction.access != Access::None) return 0;
        const int a = of(instruction.a);
        if (opcode == "mov" || opcode == "cvt" || opcode == "cvta") return a;
        if (instruction.b == kNoRegister) return 0;
        const int b = of(instruction.b);
        if (opcode == "add" || opcode == "sub" || opcode == "or" || opcode == "xor" || opcode == "selp")
            return std::min(a, b);
        if (opcode == "and") return std::max(a, b);
        if (opcode == "mul") return a + b;
        if (opcode == "mad") return std::min(a + b, of(instruction.c));
        const auto amount = constants_.find(instruction.b);
        if (opcode == "shl") return amount == constants_.end() ? a : a + static_cast<int>(amount->second);
        if (opcode == "shr") return amount == constants_.end() ? 0 : a - static_cast<int>(amount->second);
        return 0;
    }

    const Program& program_;
    std::unordered_map<Register, uint64_t> constants_;
    std::unordered_map<Register, int> zeros_;
};

// Single 4-byte loads off one register, waiting for neighbours.
using Candidates = std::vector<uint32_t>;

void merge(Program& program, const Alignment& alignment, Candidates& loads) {
    std::stable_sort(loads.begin(), loads.end(), [&](uint32_t a, uint32_t b) {
        return program.code[a].displacement < program.code[b].displacement;
    });
    for (size_t i = 0; i < loads.size();) {
        const Instruction& first = program.code[loads[i]];
        size_t taken = 1;
        for (const size_t words : {size_t{4}, size_t{2}}) {
            const auto bytes = static_cast<int64_t>(4 * words);
            const int wanted = words == 4 ? 4 : 3;
            if (i + words > loads.size() || first.displacement % bytes != 0 || alignment.of(first.a) < wanted) continue;
            bool contiguous = true;
            for (size_t word = 1; word < words; ++word)
                contiguous &= program.code[loads[i + word]].displacement ==
                              first.displacement + static_cast<int64_t>(4 * word);
            if (!contiguous) continue;
            for (size_t word = 1; word < words; ++word)
                program.notes[loads[i + word]].merged_bytes = 0;
            program.notes[loads[i]].merged_bytes = static_cast<uint8_t>(bytes);
            taken = words;
            break;
        }
        i += taken;
    }
}

}  // namespace

void predict_load_merging(Program& program) {
    std::vector<char> is_target(program.code.size() + 1, 0);
    bool any = false;
    for (const Instruction& instruction : program.code) {
        if (instruction.kind == Kind::Branch) is_target[instruction.target] = 1;
        if (instruction.access != Access::Load || instruction.space != Space::Shared) continue;
        program.notes[instruction.index].merged_bytes = static_cast<uint8_t>(instruction.bytes());
        any = true;
    }
    if (!any) return;

    const Alignment alignment(program);
    std::map<Register, Candidates> by_base;
    const auto flush = [&] {
        for (auto& base : by_base)
            merge(program, alignment, base.second);
        by_base.clear();
    };
    for (const Instruction& instruction : program.code) {
        if (is_target[instruction.index]) flush();
        const bool single_word = instruction.width == 4 && instruction.elements == 1;
        if (instruction.access == Access::Load && instruction.space == Space::Shared && single_word &&
            instruction.guard == kNoRegister)
            by_base[instruction.a].push_back(instruction.index);
        const bool writes_shared = (instruction.access == Access::Store && instruction.space == Space::Shared) ||
                                   instruction.access == Access::AsyncCopy;
        const bool redefines_base = instruction.destination != kNoRegister && by_base.count(instruction.destination) != 0;
        if (writes_shared || redefines_base || instruction.kind == Kind::Barrier || instruction.kind == Kind::Branch ||
            instruction.kind == Kind::Exit)
            flush();
    }
    flush();
}

}  // namespace ptx
