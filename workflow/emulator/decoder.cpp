#include "decoder.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "errors.h"
#include "memory.h"
#include "merging.h"
#include "registers.h"
#include "text.h"

namespace ptx {

namespace {

struct SpecialName {
    const char* name;
    SpecialRegister which;
};

constexpr SpecialName kSpecialNames[] = {
    {"%tid.x", SpecialRegister::ThreadX},
    {"%tid.y", SpecialRegister::ThreadY},
    {"%tid.z", SpecialRegister::ThreadZ},
    {"%ntid.x", SpecialRegister::BlockDimX},
    {"%ntid.y", SpecialRegister::BlockDimY},
    {"%ntid.z", SpecialRegister::BlockDimZ},
    {"%ctaid.x", SpecialRegister::BlockX},
    {"%ctaid.y", SpecialRegister::BlockY},
    {"%ctaid.z", SpecialRegister::BlockZ},
    {"%nctaid.x", SpecialRegister::GridDimX},
    {"%nctaid.y", SpecialRegister::GridDimY},
    {"%nctaid.z", SpecialRegister::GridDimZ},
    {"%laneid", SpecialRegister::Lane},
    {"%warpid", SpecialRegister::WarpInBlock},
    {"%nwarpid", SpecialRegister::WarpsInBlock},
    {"%lanemask_eq", SpecialRegister::LaneMaskEqual},
    {"%lanemask_lt", SpecialRegister::LaneMaskLess},
    {"%lanemask_le", SpecialRegister::LaneMaskLessEqual},
    {"%lanemask_gt", SpecialRegister::LaneMaskGreater},
    {"%lanemask_ge", SpecialRegister::LaneMaskGreaterEqual},
    {"%dynamic_smem_size", SpecialRegister::DynamicSharedBytes},
    {"%total_smem_size", SpecialRegister::TotalSharedBytes},
    {"%smid", SpecialRegister::Zero},
    {"%gridid", SpecialRegister::Zero},
    // Without clusters every block is a cluster of one.
    {"%cluster_ctaid.x", SpecialRegister::Zero},
    {"%cluster_ctaid.y", SpecialRegister::Zero},
    {"%cluster_ctaid.z", SpecialRegister::Zero},
    {"%cluster_ctarank", SpecialRegister::Zero},
    {"%cluster_nctaid.x", SpecialRegister::One},
    {"%cluster_nctaid.y", SpecialRegister::One},
    {"%cluster_nctaid.z", SpecialRegister::One},
    {"%cluster_nctarank", SpecialRegister::One},
    {"%clusterid.x", SpecialRegister::BlockX},
    {"%clusterid.y", SpecialRegister::BlockY},
    {"%clusterid.z", SpecialRegister::BlockZ},
    {"%nclusterid.x", SpecialRegister::GridDimX},
    {"%nclusterid.y", SpecialRegister::GridDimY},
    {"%nclusterid.z", SpecialRegister::GridDimZ},
};

uint64_t round_up(uint64_t value, uint64_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

// Whether `name` stands in `text` as a word of its own.
bool mentions(const std::string& text, const std::string& name) {
    const auto inside_word = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$';
    };
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
        const bool starts = at == 0 || !inside_word(text[at - 1]);
        const size_t end = at + name.size();
        if (starts && (end == text.size() || !inside_word(text[end]))) return true;
    }
    return false;
}

bool is_float_literal(const std::string& text) {
    return text.size() > 2 && text[0] == '0' && std::strchr("fFdD", text[1]) != nullptr;
}

}  // namespace

Decoder::Decoder(const ModuleText& module, const EntryText& entry, const VariableAddresses& addresses)
    : module_(module), entry_(entry), addresses_(addresses) {
    program_.name = entry.name;
    program_.parameters = entry.parameters;
    program_.parameter_bytes = entry.parameter_bytes;
    program_.max_threads = entry.max_threads;
}

Program Decoder::decode() {
    scopes_.emplace_back();
    for (const Parameter& parameter : entry_.parameters)
        add_symbol(parameter.name, {Symbol::Kind::Parameter, 0, 0, parameter.offset, Space::Parameter});
    declare_module_variables();

    int next_scope = 1;
    for (const Statement& statement : entry_.body) {
        switch (statement.kind) {
            case StatementKind::OpenScope:
                scopes_.emplace_back();
                scopes_.back().parent = scope_;
                scope_ = next_scope++;
                break;
            case StatementKind::CloseScope:
                scope_ = scopes_[scope_].parent;
                break;
            case StatementKind::Label:
                scopes_[scope_].labels[statement.text] = static_cast<uint32_t>(program_.code.size());
                break;
            case StatementKind::Declaration:
                declare(statement.text);
                break;
            case StatementKind::Instruction:
                decode_instruction(statement);
                break;
        }
    }
    // A last label may stand behind the last instruction, and a kernel may end without `ret`.
    decode_instruction({StatementKind::Instruction, "ret", {}});
    resolve_jumps();
    predict_merging(program_, module_.joins_accesses);
    predict_padding(program_, module_.architecture);
    place_registers(program_, register_bits_);
    return std::move(program_);
}

// Shared memory: first the variables of fixed size that this entry names, then the dynamic array.
void Decoder::declare_module_variables() {
    std::vector<Variable> shared;
    for (const Variable& variable : module_.variables) {
        if (variable.space != Space::Shared) {
            const auto address = addresses_.find(variable.name);
            if (address != addresses_.end())
                add_symbol(variable.name, {Symbol::Kind::Variable, 0, 0, address->second, variable.space});
            continue;
        }
        const bool used = std::any_of(entry_.body.begin(), entry_.body.end(), [&](const Statement& s) {
            return s.kind == StatementKind::Instruction && mentions(s.text, variable.name);
        });
        if (used) shared.push_back(variable);
    }
    for (const Statement& statement : entry_.body) {
        Variable variable;
        if (statement.kind == StatementKind::Declaration && parse_variable(statement.text, variable) &&
            variable.space == Space::Shared)
            shared.push_back(variable);
    }
    uint64_t end = 0;
    for (const bool dynamic : {false, true}) {
        for (const Variable& variable : shared) {
            if ((variable.bytes == 0) != dynamic) continue;
            const uint64_t start =
                round_up(end, dynamic ? std::max(variable.alignment, 16u) : variable.alignment);
            add_symbol(variable.name, {Symbol::Kind::Variable, 0, 0, start, Space::Shared});
            if (dynamic)
                program_.static_shared_bytes = static_cast<uint32_t>(start);
            else
                end = start + variable.bytes;
        }
    }
    program_.static_shared_bytes = std::max(program_.static_shared_bytes, static_cast<uint32_t>(end));
}

void Decoder::declare(const std::string& declaration) {
    if (declaration.rfind(".reg", 0) == 0) {
        declare_registers(declaration);
        return;
    }
    if (declaration.rfind(".pragma", 0) == 0 || declaration == ".") return;
    Variable variable;
    if (!parse_variable(declaration, variable)) throw Unavailable("not supported: " + declaration);
    if (variable.space == Space::Shared) return;  // placed before
    if (variable.space != Space::Local) throw Unavailable("not supported: " + declaration);
    const uint64_t start = round_up(program_.local_bytes, variable.alignment);
    add_symbol(variable.name, {Symbol::Kind::Variable, 0, 0, start, Space::Local});
    program_.local_bytes = static_cast<uint32_t>(round_up(start + variable.bytes, 16));
}

// `.reg .f32 %f<35>` or `.reg .pred P1, P2`.
void Decoder::declare_registers(const std::string& declaration) {
    const size_t dot = declaration.find('.', 1);
    const size_t blank = declaration.find(' ', dot);
    if (dot == std::string::npos || blank == std::string::npos)
        throw Unavailable("not supported: " + declaration);
    const Type type = parse_type(declaration.substr(dot + 1, blank - dot - 1));
    if (type == Type::None) throw Unavailable("not supported: " + declaration);
    const uint8_t bits = type == Type::Pred ? 1 : bytes_of(type) == 8 ? 64 : 32;
    for (const std::string& name : split(declaration.substr(blank), ',')) {
        const size_t bracket = name.find('<');
        if (bracket == std::string::npos) {
            add_symbol(name, {Symbol::Kind::Register, new_register(bits), bits, 0, Space::Generic});
            continue;
        }
        const int count = std::atoi(name.c_str() + bracket + 1);
        for (int i = 0; i < count; ++i)
            add_symbol(name.substr(0, bracket) + std::to_string(i),
                       {Symbol::Kind::Register, new_register(bits), bits, 0, Space::Generic});
    }
}

void Decoder::add_symbol(const std::string& name, const Symbol& symbol) {
    scopes_[scope_].symbols[name] = symbol;
}

const Decoder::Symbol* Decoder::find(const std::string& name) const {
    for (int scope = scope_; scope >= 0; scope = scopes_[scope].parent) {
        const auto found = scopes_[scope].symbols.find(name);
        if (found != scopes_[scope].symbols.end()) return &found->second;
    }
    return nullptr;
}

Register Decoder::new_register(uint8_t bits) {
    register_bits_.push_back(bits);
    return static_cast<Register>(register_bits_.size() - 1);
}

Register Decoder::constant(uint8_t bits, uint64_t value) {
    if (bits == 32) value &= 0xffffffffu;
    const auto key = std::make_pair(bits, value);
    const auto known = constant_index_.find(key);
    if (known != constant_index_.end()) return known->second;
    const Register place = new_register(bits);
    program_.constants.push_back({place, bits, value});
    constant_index_[key] = place;
    return place;
}

Register Decoder::scratch(uint8_t bits) {
    return new_register(bits);
}

bool Decoder::special_register(const std::string& name, Register& place) {
    for (const SpecialName& special : kSpecialNames) {
        if (name != special.name) continue;
        const auto known = special_index_.find(special.which);
        if (known != special_index_.end()) {
            place = known->second;
            return true;
        }
        place = new_register(32);
        special_index_[special.which] = place;
        program_.special_registers.push_back({special.which, place});
        return true;
    }
    return false;
}

void Decoder::decode_instruction(const Statement& statement) {
    instruction_ = Instruction();
    note_ = InstructionNote();
    statement_ = statement.text;
    split_instruction(statement.text);
    const auto functions = opcode_table().find(opcode_);
    if (functions == opcode_table().end()) unsupported();
    instruction_.list = static_cast<uint32_t>(program_.operand_lists.size());
    for (const DecodeFunction decode_function : functions->second) {
        if (decode_function(*this)) {
            finish_instruction(statement);
            return;
        }
    }
    unsupported();
}

void Decoder::split_instruction(const std::string& text) {
    std::string_view rest = text;
    if (rest[0] == '@') {
        const size_t blank = rest.find(' ');
        if (blank == std::string_view::npos) unsupported();
        std::string name(rest.substr(1, blank - 1));
        instruction_.guard_negated = name[0] == '!';
        if (instruction_.guard_negated) name.erase(0, 1);
        const Symbol* symbol = find(name);
        if (symbol == nullptr || symbol->bits != 1) unsupported();
        instruction_.guard = symbol->index;
        rest = trim(rest.substr(blank));
    }
    const size_t blank = rest.find(' ');
    const std::string_view operation = rest.substr(0, blank);
    operands_ = blank == std::string_view::npos ? std::vector<std::string>() : split(rest.substr(blank), ',');
    modifiers_ = split(operation, '.');
    opcode_ = modifiers_.front();
    modifiers_.erase(modifiers_.begin());
}

void Decoder::finish_instruction(const Statement& statement) {
    if (!modifiers_.empty()) unsupported();
    instruction_.index = static_cast<uint32_t>(program_.code.size());
    note_.text = statement.text;
    note_.opcode = opcode_;
    note_.source = statement.source;
    program_.code.push_back(instruction_);
    program_.notes.push_back(note_);
}

void Decoder::resolve_jumps() {
    for (const Jump& jump : jumps_) {
        int scope = jump.scope;
        while (scope >= 0 && scopes_[scope].labels.count(jump.label) == 0)
            scope = scopes_[scope].parent;
        if (scope < 0) throw BadArgument("label " + jump.label + " isn't in entry " + entry_.name);
        program_.code[jump.instruction].target = scopes_[scope].labels[jump.label];
    }
}

void Decoder::branch_to(const std::string& label) {
    jumps_.push_back({static_cast<uint32_t>(program_.code.size()), scope_, label});
}

bool Decoder::has(std::string_view modifier) const {
    return std::find(modifiers_.begin(), modifiers_.end(), modifier) != modifiers_.end();
}

bool Decoder::take(std::string_view modifier) {
    const auto found = std::find(modifiers_.begin(), modifiers_.end(), modifier);
    if (found == modifiers_.end()) return false;
    modifiers_.erase(found);
    return true;
}

int Decoder::take_one_of(std::initializer_list<const char*> modifiers, int otherwise) {
    int place = 0;
    for (const char* modifier : modifiers) {
        if (take(modifier)) return place;
        ++place;
    }
    return otherwise;
}

Type Decoder::last_type() const {
    return modifiers_.empty() ? Type::None : parse_type(modifiers_.back());
}

Type Decoder::take_type() {
    const Type type = last_type();
    if (type == Type::None) unsupported();
    modifiers_.pop_back();
    return type;
}

void Decoder::take_types(Type& destination, Type& source) {
    source = take_type();
    destination = take_type();
}

const std::string& Decoder::operand(size_t index) const {
    if (index >= operands_.size()) unsupported();
    return operands_[index];
}

void Decoder::expect_operands(size_t least, size_t most) const {
    if (operands_.size() < least || operands_.size() > most) unsupported();
}

Register Decoder::source(size_t index, Type type) {
    return source(operand(index), type);
}

Register Decoder::source(const std::string& text, Type type) {
    const Symbol* symbol = find(text);
    if (symbol != nullptr && symbol->kind == Symbol::Kind::Register) return symbol->index;
    Register place = kNoRegister;
    if (special_register(text, place)) return place;
    const uint8_t bits = type == Type::Pred ? 1 : bytes_of(type) == 8 ? 64 : 32;
    uint64_t value = 0;
    if (text == "WARP_SZ") return constant(bits, kLanes);
    if (immediate_bits(text, type, value) || symbol_address(text, value)) {
        if (bits == 1) value = value != 0 ? kAllLanes : 0;
        return constant(bits, value);
    }
    unsupported();
}

// `tile` or `tile+16`.
bool Decoder::symbol_address(const std::string& text, uint64_t& address) const {
    const size_t plus = text.find('+');
    const Symbol* symbol = find(std::string(trim(text.substr(0, plus))));
    if (symbol == nullptr || symbol->kind == Symbol::Kind::Register) return false;
    uint64_t offset = 0;
    if (plus != std::string::npos && !parse_integer(text.substr(plus + 1), offset)) return false;
    address = symbol->address + offset;
    return true;
}

bool Decoder::immediate_bits(const std::string& text, Type type, uint64_t& bits) {
    if (is_float_literal(text)) {
        char* end = nullptr;
        bits = std::strtoull(text.c_str() + 2, &end, 16);
        return *end == '\0';
    }
    if (parse_integer(text, bits)) {
        if (!is_float(type)) return true;
    } else if (text.empty() || (std::isdigit(static_cast<unsigned char>(text[0])) == 0 && text[0] != '-')) {
        return false;
    }
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (*end != '\0') return false;
    if (type == Type::F32) {
        const float narrow = static_cast<float>(value);
        uint32_t word = 0;
        std::memcpy(&word, &narrow, sizeof word);
        bits = word;
    } else {
        std::memcpy(&bits, &value, sizeof bits);
    }
    return true;
}

bool Decoder::immediate(size_t index, uint64_t& value) const {
    return parse_integer(operand(index), value);
}

Register Decoder::destination(size_t index) {
    return destination(operand(index));
}

Register Decoder::destination(const std::string& text) {
    const Symbol* symbol = find(text);
    if (symbol == nullptr || symbol->kind != Symbol::Kind::Register) unsupported();
    return symbol->index;
}

uint8_t Decoder::register_bits(const std::string& text) const {
    const Symbol* symbol = find(text);
    return symbol == nullptr ? 0 : symbol->bits;
}

void Decoder::unary(Type type) {
    expect_operands(2, 2);
    instruction_.destination = destination(0);
    instruction_.a = source(1, type);
}

void Decoder::binary(Type type) {
    expect_operands(3, 3);
    instruction_.destination = destination(0);
    instruction_.a = source(1, type);
    instruction_.b = source(2, type);
}

void Decoder::ternary(Type type) {
    expect_operands(4, 4);
    instruction_.destination = destination(0);
    instruction_.a = source(1, type);
    instruction_.b = source(2, type);
    instruction_.c = source(3, type);
}

std::vector<std::string> Decoder::pieces(size_t index) const {
    const std::string& text = operand(index);
    if (text.front() == '{' && text.back() == '}') return split(text.substr(1, text.size() - 2), ',');
    if (text.find('|') != std::string::npos) return split(text, '|');
    return {text};
}

void Decoder::address(size_t index) {
    const Place found = place(index);
    instruction_.a = found.base;
    instruction_.displacement = found.displacement;
    instruction_.narrow_address = found.narrow;
}

Decoder::Place Decoder::place(size_t index) {
    const std::string& text = operand(index);
    if (text.front() != '[' || text.back() != ']') unsupported();
    const std::string inside(trim(text.substr(1, text.size() - 2)));
    const size_t plus = inside.find('+');
    const std::string base(trim(inside.substr(0, plus)));
    uint64_t offset = 0;
    if (plus != std::string::npos && !parse_integer(inside.substr(plus + 1), offset)) unsupported();
    const auto displacement = static_cast<int64_t>(offset);
    const Symbol* symbol = find(base);
    uint64_t value = 0;
    if (symbol != nullptr && symbol->kind == Symbol::Kind::Register)
        return {symbol->index, displacement, symbol->bits == 32};
    if (symbol != nullptr) return {constant(64, symbol->address), displacement, false};
    if (parse_integer(base, value)) return {constant(64, value), displacement, false};
    unsupported();
}

bool Decoder::fixed_address(size_t index, uint64_t& address) const {
    const std::string& text = operand(index);
    return text.front() == '[' && symbol_address(text.substr(1, text.size() - 2), address);
}

Space Decoder::take_space() {
    if (take("global")) return Space::Global;
    if (take("shared") || take("shared::cta")) return Space::Shared;
    if (take("local")) return Space::Local;
    if (take("const")) return Space::Constant;
    if (take("param") || take("param::entry")) return Space::Parameter;
    return Space::Generic;
}

void Decoder::add_output(Register place) {
    program_.operand_lists.push_back(place);
    ++instruction_.list_outputs;
}

void Decoder::add_input(Register place) {
    program_.operand_lists.push_back(place);
    ++instruction_.list_inputs;
}

void Decoder::unsupported() const {
    throw Unavailable("PTX instruction not supported by the emulator: " + statement_);
}

Program decode_entry(const ModuleText& module, const EntryText& entry, const VariableAddresses& addresses) {
    return Decoder(module, entry, addresses).decode();
}

const OpcodeTable& opcode_table() {
    static const OpcodeTable table = [] {
        OpcodeTable made;
        register_integer_operations(made);
        register_bit_operations(made);
        register_float_operations(made);
        register_half_operations(made);
        register_compare_operations(made);
        register_convert_operations(made);
        register_move_operations(made);
        register_memory_operations(made);
        register_atomic_operations(made);
        register_warp_operations(made);
        register_control_operations(made);
        register_async_copy_operations(made);
        register_ldmatrix_operations(made);
        register_wmma_operations(made);
        register_mma_operations(made);
        return made;
    }();
    return table;
}

}  // namespace ptx
