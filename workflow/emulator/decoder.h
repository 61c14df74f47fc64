// Turns an entry's statements into a Program.
//
// The instructions live in operations/, a file a family. Each file registers a function for every opcode that
// it knows; several may share an opcode (`add` of integers, of floats, of halves), and each declines what
// isn't its own by returning false before it takes anything. Modifiers are taken one by one, and any left
// over makes the instruction unknown: nothing is skipped in silence.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "instruction.h"
#include "module_text.h"

namespace ptx {

class Decoder;

using DecodeFunction = bool (*)(Decoder& decoder);
using OpcodeTable = std::unordered_map<std::string, std::vector<DecodeFunction>>;

// Where a module's variables ended up: their addresses in device memory.
using VariableAddresses = std::map<std::string, uint64_t>;

// Throws Unavailable, naming the instruction, when the entry needs something that the emulator lacks.
Program decode_entry(const ModuleText& module, const EntryText& entry, const VariableAddresses& addresses);

class Decoder {
  public:
    Decoder(const ModuleText& module, const EntryText& entry, const VariableAddresses& addresses);

    Program decode();

    // ---- for the decode functions of operations/ ----

    Instruction& instruction() { return instruction_; }
    InstructionNote& note() { return note_; }
    Program& program() { return program_; }

    const std::string& opcode() const { return opcode_; }

    // Takes the modifier wherever it stands; false when it isn't there.
    bool take(std::string_view modifier);
    bool has(std::string_view modifier) const;

    // The type that stands last, which is what most instructions are about; take_type() takes it.
    Type last_type() const;
    Type take_type();
    void take_types(Type& destination, Type& source);

    // Takes one of the modifiers, or the default, and gives its place in the list.
    int take_one_of(std::initializer_list<const char*> modifiers, int otherwise);

    size_t operands() const { return operands_.size(); }
    const std::string& operand(size_t index) const;
    void expect_operands(size_t least, size_t most) const;

    // Registers of operands; a source may be an immediate, a special register or a variable's address.
    Register source(size_t index, Type type);
    Register source(const std::string& text, Type type);
    Register destination(size_t index);
    Register destination(const std::string& text);
    uint8_t register_bits(const std::string& text) const;  // 0 when it isn't a register

    // The usual shapes: destination and one, two, three sources of the same type.
    void unary(Type type);
    void binary(Type type);
    void ternary(Type type);

    // `{%r1, %r2}` or a single name, one piece each.
    std::vector<std::string> pieces(size_t index) const;

    // Reads `[register + offset]` into a, displacement and narrow_address.
    void address(size_t index);

    // The same for an instruction's second address, which it keeps itself.
    struct Place {
        Register base;
        int64_t displacement;
        bool narrow;
    };
    Place place(size_t index);
    Space take_space();

    // Whether the operand's address is known now: `[parameter + 4]`.
    bool fixed_address(size_t index, uint64_t& address) const;

    // Appends to the operand list of the instruction; outputs must come before inputs.
    void add_output(Register place);
    void add_input(Register place);

    // A value that must be known now, such as the number of a barrier.
    bool immediate(size_t index, uint64_t& value) const;

    void branch_to(const std::string& label);

    Register constant(uint8_t bits, uint64_t value);

    // A register that holds nothing that matters, for `_`.
    Register scratch(uint8_t bits);

    [[noreturn]] void unsupported() const;

  private:
    struct Symbol {
        enum class Kind : uint8_t { Register, Variable, Parameter } kind;
        uint32_t index = 0;    // of a register
        uint8_t bits = 0;      // of a register: 1, 32 or 64
        uint64_t address = 0;  // of a variable or parameter, within its space
        Space space = Space::Generic;
    };

    struct Scope {
        int parent = -1;
        std::map<std::string, Symbol> symbols;
        std::map<std::string, uint32_t> labels;
    };

    struct Jump {
        uint32_t instruction;
        int scope;
        std::string label;
    };

    void declare_module_variables();
    void declare(const std::string& declaration);
    void declare_registers(const std::string& declaration);
    void add_symbol(const std::string& name, const Symbol& symbol);
    const Symbol* find(const std::string& name) const;
    Register new_register(uint8_t bits);
    bool special_register(const std::string& name, Register& place);
    void decode_instruction(const Statement& statement);
    void split_instruction(const std::string& text);
    void finish_instruction(const Statement& statement);
    void resolve_jumps();
    bool symbol_address(const std::string& text, uint64_t& address) const;
    static bool immediate_bits(const std::string& text, Type type, uint64_t& bits);

    const ModuleText& module_;
    const EntryText& entry_;
    const VariableAddresses& addresses_;
    Program program_;
    std::vector<Scope> scopes_;
    int scope_ = 0;
    std::vector<Jump> jumps_;
    std::vector<uint8_t> register_bits_;
    std::map<std::pair<uint8_t, uint64_t>, Register> constant_index_;
    std::map<SpecialRegister, Register> special_index_;

    // The instruction being decoded.
    std::string statement_;
    std::string opcode_;
    std::vector<std::string> modifiers_;
    std::vector<std::string> operands_;
    Instruction instruction_;
    InstructionNote note_;
};

const OpcodeTable& opcode_table();

// One for each file of operations/.
void register_integer_operations(OpcodeTable& table);
void register_bit_operations(OpcodeTable& table);
void register_float_operations(OpcodeTable& table);
void register_half_operations(OpcodeTable& table);
void register_compare_operations(OpcodeTable& table);
void register_convert_operations(OpcodeTable& table);
void register_move_operations(OpcodeTable& table);
void register_memory_operations(OpcodeTable& table);
void register_atomic_operations(OpcodeTable& table);
void register_warp_operations(OpcodeTable& table);
void register_control_operations(OpcodeTable& table);
void register_async_copy_operations(OpcodeTable& table);
void register_ldmatrix_operations(OpcodeTable& table);
void register_wmma_operations(OpcodeTable& table);
void register_mma_operations(OpcodeTable& table);

}  // namespace ptx
