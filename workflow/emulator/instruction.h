// A decoded kernel: an array of handlers with their operands resolved to places in the register file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "module_text.h"
#include "types.h"

namespace ptx {

struct Warp;
struct Instruction;

constexpr int kLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;

// Executes one instruction for the lanes of `active`, which is never empty.
using Handler = void (*)(Warp& warp, const Instruction& instruction, uint32_t active);

// While decoding a register is its number; afterwards its byte offset in the warp's register file.
using Register = uint32_t;
constexpr Register kNoRegister = 0xffffffffu;

enum class Kind : uint8_t {
    Plain,      // the handler is all there is
    Branch,     // to `target`
    Exit,       // the active lanes end
    Barrier,    // waits for other warps of the block
    Converged,  // waits until all lanes named in the mask register `c` (all live lanes without one) are here;
                // lanes with one mask execute together
    Yield,      // like Plain; afterwards other warps get a turn, since this one may be polling
    Trap,       // ends the launch
};

// What a memory instruction does, for the counters and the prediction of ptxas's merging.
enum class Access : uint8_t { None, Load, Store, Atomic, AsyncCopy, MatrixLoad, MatrixStore };

struct Instruction {
    Handler execute = nullptr;
    Register destination = kNoRegister;
    Register a = kNoRegister;  // the address, in a memory instruction
    Register b = kNoRegister;
    Register c = kNoRegister;
    Register guard = kNoRegister;  // predicate that lets a lane take part
    uint32_t list = 0;             // first entry of this instruction in Program::operand_lists
    uint8_t list_outputs = 0;      // entries that are written; they come first
    uint8_t list_inputs = 0;
    Kind kind = Kind::Plain;
    bool guard_negated = false;
    Access access = Access::None;
    Space space = Space::Generic;
    Type type = Type::None;
    uint8_t width = 0;            // bytes of an element in memory
    uint8_t elements = 1;         // elements of a vector access
    bool narrow_address = false;  // the address register has 32 bits
    uint8_t option[2] = {0, 0};   // the handler's own
    int64_t displacement = 0;     // added to the address
    uint32_t target = 0;          // of a branch; otherwise the handler's own immediate
    uint32_t index = 0;           // in Program::code

    uint32_t bytes() const { return uint32_t{width} * elements; }
};

// Facts about an instruction that its execution doesn't need.
struct InstructionNote {
    std::string text;
    std::string opcode;
    SourceLine source;
    uint16_t flops = 0;         // of a thread, as add, mul and fma
    uint16_t tensor_flops = 0;  // of a thread's share of a matrix instruction
    bool is_fma = false;        // a float32 fused multiply-add, one FFMA in SASS
    bool is_volatile = false;
    // Shared loads and stores: bytes of the one instruction that ptxas makes of this and its neighbours, and
    // how far before this one it starts; 0 bytes when a neighbour stands for it.
    uint8_t merged_bytes = 0;
    uint8_t merged_shift = 0;
    uint8_t padding = 0;  // shared loads with all lanes switched off that ptxas puts before this one
};

// A register that holds the same bits in all lanes for a whole launch.
struct Constant {
    Register place;
    uint8_t bits;  // 1 (predicate), 32 or 64
    uint64_t value;
};

enum class SpecialRegister : uint8_t {
    ThreadX,
    ThreadY,
    ThreadZ,
    BlockDimX,
    BlockDimY,
    BlockDimZ,
    BlockX,
    BlockY,
    BlockZ,
    GridDimX,
    GridDimY,
    GridDimZ,
    Lane,
    WarpInBlock,
    WarpsInBlock,
    LaneMaskEqual,
    LaneMaskLess,
    LaneMaskLessEqual,
    LaneMaskGreater,
    LaneMaskGreaterEqual,
    DynamicSharedBytes,
    TotalSharedBytes,
    Zero,  // %smid, %gridid and the like: a constant that no kernel here depends on
    One,
    Count,
};

struct SpecialRegisterUse {
    SpecialRegister which;
    Register place;
};

struct Program {
    std::string name;
    std::vector<Parameter> parameters;
    uint32_t parameter_bytes = 0;
    uint32_t max_threads = 0;
    std::vector<Instruction> code;
    std::vector<InstructionNote> notes;  // beside `code`
    std::vector<Register> operand_lists;
    std::vector<Constant> constants;
    std::vector<SpecialRegisterUse> special_registers;
    uint32_t register_bytes = 0;  // of one warp
    uint32_t static_shared_bytes = 0;
    uint32_t local_bytes = 0;  // of one thread
    // Accesses are watched in granules: 4 bytes, or less when the kernel has narrower accesses.
    uint32_t shared_granule_shift = 2;
    uint32_t global_granule_shift = 2;
    bool stores_global = false;
    // Named barriers with a thread count, arrivals without waiting, fences: warps are then ordered pair by
    // pair.
    bool partial_ordering = false;
    // A bar.warp.sync whose mask may leave lanes out: lanes are then ordered pair by pair.
    bool lane_ordering = false;
    // Fences or atomics let blocks talk to each other, which the check of global memory can't follow.
    bool blocks_communicate = false;
};

}  // namespace ptx
