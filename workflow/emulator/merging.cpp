#include "merging.h"

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

// Accesses off one register that ptxas may join, by the bytes that they cover.
class Window {
  public:
    explicit Window(Program& program) : program_(&program) {}

    void add(uint32_t index) { accesses_.push_back(index); }
    bool empty() const { return accesses_.empty(); }

    // Whether the access lies next to those here, without a gap.
    bool adjoins(const Instruction& access) const {
        int64_t low = first(accesses_[0]);
        int64_t high = low;
        for (const uint32_t index : accesses_) {
            low = std::min(low, first(index));
            high = std::max(high, first(index) + program_->code[index].bytes());
        }
        return access.displacement == high || access.displacement + access.bytes() == low;
    }

    // Joins what fills an aligned window of 16, else 8, else 4 bytes. `may_fill`: loads of three words out of
    // four read the fourth as well.
    void merge(int alignment, bool may_fill) {
        std::stable_sort(accesses_.begin(), accesses_.end(),
                         [&](uint32_t a, uint32_t b) { return first(a) < first(b); });
        for (const int64_t size : {16, 8, 4}) {
            if (alignment < __builtin_ctzll(static_cast<uint64_t>(size))) continue;
            for (size_t i = 0; i < accesses_.size();)
                i += merge_at(i, size, may_fill && size == 16);
        }
    }

  private:
    static int whole_words(uint32_t bytes) {
        int words = 0;
        for (int word = 0; word < 4; ++word)
            words += (bytes >> (4 * word) & 0xf) == 0xf ? 1 : 0;
        return words;
    }

    int64_t first(uint32_t index) const { return program_->code[index].displacement; }

    // Tries to join the accesses from the i-th on that lie in its window; gives how many to move on by.
    size_t merge_at(size_t i, int64_t size, bool may_fill) {
        const int64_t start = first(accesses_[i]) & ~(size - 1);
        uint32_t covered = 0;
        size_t end = i;
        for (; end < accesses_.size() && first(accesses_[end]) < start + size; ++end) {
            const Instruction& access = program_->code[accesses_[end]];
            if (first(accesses_[end]) + access.bytes() > start + size) return 1;
            covered |= ((1u << access.bytes()) - 1) << (first(accesses_[end]) - start);
        }
        const uint32_t whole = (1u << size) - 1;
        const bool fillable = may_fill && whole_words(covered) == 3 && __builtin_popcount(covered) == 12;
        if (end - i < 2 || (covered != whole && !fillable)) return 1;
        for (size_t j = i; j < end; ++j)
            program_->notes[accesses_[j]].merged_bytes = 0;
        InstructionNote& leader = program_->notes[accesses_[i]];
        leader.merged_bytes = static_cast<uint8_t>(size);
        leader.merged_shift = static_cast<uint8_t>(first(accesses_[i]) - start);
        accesses_.erase(accesses_.begin() + static_cast<std::ptrdiff_t>(i),
                        accesses_.begin() + static_cast<std::ptrdiff_t>(end));
        return 0;
    }

    Program* program_;
    std::vector<uint32_t> accesses_;
};

bool is_shared(const Instruction& instruction, Access access) {
    return instruction.access == access && instruction.space == Space::Shared;
}

bool ends_stretch(const Instruction& instruction) {
    const bool warp_barrier = instruction.kind == Kind::Converged &&
                              instruction.destination == kNoRegister && instruction.a == kNoRegister;
    return warp_barrier || instruction.kind == Kind::Barrier || instruction.kind == Kind::Branch ||
           instruction.kind == Kind::Exit;
}

// Volatile and guarded accesses stay alone.
bool may_merge(const Program& program, const Instruction& instruction) {
    return instruction.bytes() < 16 && instruction.guard == kNoRegister &&
           !program.notes[instruction.index].is_volatile;
}

class Merger {
  public:
    explicit Merger(Program& program) : program_(program), alignment_(program), stores_(program) {}

    void run() {
        std::vector<char> is_target(program_.code.size() + 1, 0);
        for (const Instruction& instruction : program_.code)
            if (instruction.kind == Kind::Branch) is_target[instruction.target] = 1;
        for (const Instruction& instruction : program_.code) {
            if (is_target[instruction.index]) end_all();
            look_at(instruction);
        }
        end_all();
    }

  private:
    void look_at(const Instruction& instruction) {
        if (is_shared(instruction, Access::Load)) {
            end_stores();
            if (may_merge(program_, instruction)) loads_of(instruction.a).add(instruction.index);
        } else if (is_shared(instruction, Access::Store)) {
            end_loads();
            add_store(instruction);
        } else if (ends_runs(instruction)) {
            end_all();
        }
        for_each_output(instruction, [&](Register place) {
            if (loads_.count(place) != 0) end_loads();
            if (store_base_ == place) end_stores();
        });
    }

    static bool ends_runs(const Instruction& instruction) {
        return instruction.access == Access::AsyncCopy || instruction.access == Access::Atomic ||
               ends_stretch(instruction);
    }

    template <class Body>
    void for_each_output(const Instruction& instruction, Body body) {
        if (instruction.destination != kNoRegister) body(instruction.destination);
        for (uint32_t i = 0; i < instruction.list_outputs; ++i)
            body(program_.operand_lists[instruction.list + i]);
    }

    Window& loads_of(Register base) { return loads_.emplace(base, Window(program_)).first->second; }

    // Stores are joined only with their neighbours in time.
    void add_store(const Instruction& instruction) {
        const bool fits = may_merge(program_, instruction);
        if (!stores_.empty() && (!fits || store_base_ != instruction.a || !stores_.adjoins(instruction)))
            end_stores();
        if (!fits) return;
        store_base_ = instruction.a;
        stores_.add(instruction.index);
    }

    void end_loads() {
        for (auto& base : loads_)
            base.second.merge(alignment_.of(base.first), true);
        loads_.clear();
    }

    void end_stores() {
        if (!stores_.empty()) stores_.merge(alignment_.of(store_base_), false);
        stores_ = Window(program_);
        store_base_ = kNoRegister;
    }

    void end_all() {
        end_loads();
        end_stores();
    }

    Program& program_;
    Alignment alignment_;
    std::map<Register, Window> loads_;
    Window stores_;
    Register store_base_ = kNoRegister;
};

// Whether ptxas makes guards of a branch: one forward over a little arithmetic. What it does to branches over
// accesses depends on the code around them (docs/emulator.md).
bool becomes_guards(const Program& program, const Instruction& branch) {
    constexpr std::ptrdiff_t kLittle = 16;
    if (branch.guard == kNoRegister || branch.target <= branch.index) return false;
    const auto first = program.code.begin() + branch.index + 1;
    const auto last = program.code.begin() + branch.target;
    return last - first <= kLittle && std::all_of(first, last, [](const Instruction& instruction) {
               return instruction.kind == Kind::Plain && instruction.access == Access::None;
           });
}

}  // namespace

void predict_merging(Program& program, bool joins) {
    bool any = false;
    for (const Instruction& instruction : program.code) {
        if (!is_shared(instruction, Access::Load) && !is_shared(instruction, Access::Store)) continue;
        program.notes[instruction.index].merged_bytes = static_cast<uint8_t>(instruction.bytes());
        any = true;
    }
    if (any && joins) Merger(program).run();
}

// From sm_90 on three `@!PT LDS RZ, [RZ]` stand before an asynchronous copy, unless another copy came
// before in the same stretch of code and nothing touched shared memory in between.
void predict_padding(Program& program, unsigned architecture) {
    constexpr unsigned kFirstPadded = 90;
    constexpr uint8_t kPadding = 3;
    if (architecture < kFirstPadded) return;
    std::vector<char> is_target(program.code.size() + 1, 0);
    std::vector<char> is_guards(program.code.size(), 0);
    for (const Instruction& instruction : program.code) {
        if (instruction.kind != Kind::Branch) continue;
        is_guards[instruction.index] = becomes_guards(program, instruction);
        if (!is_guards[instruction.index]) is_target[instruction.target] = 1;
    }
    bool padded = false;
    for (const Instruction& instruction : program.code) {
        if (is_target[instruction.index]) padded = false;
        if (is_guards[instruction.index]) continue;
        if (instruction.access == Access::AsyncCopy) {
            program.notes[instruction.index].padding = padded ? 0 : kPadding;
            padded = true;
        } else if (ends_stretch(instruction)) {
            padded = false;
        } else if (instruction.access != Access::None) {  // a generic address may be one of shared memory
            padded &= instruction.space != Space::Shared && instruction.space != Space::Generic;
        }
    }
}

}  // namespace ptx
