// What a PTX file says, cut into statements but not yet understood.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "types.h"

namespace ptx {

enum class Space : uint8_t { Generic, Global, Shared, Local, Constant, Parameter };

struct SourceLine {
    uint32_t file = 0;  // number of the .file directive; 0 when unknown
    uint32_t line = 0;
};

enum class StatementKind : uint8_t { Instruction, Declaration, Label, OpenScope, CloseScope };

struct Statement {
    StatementKind kind;
    std::string text;
    SourceLine source;
};

struct Parameter {
    std::string name;
    uint32_t bytes = 0;
    uint32_t alignment = 1;
    uint32_t offset = 0;  // in the block of all parameters of the entry
};

// A variable declared with a space: `.shared .align 4 .b8 tile[1024]`.
struct Variable {
    std::string name;
    Space space = Space::Generic;
    uint64_t bytes = 0;  // 0 for the array of unknown size that is dynamic shared memory
    uint32_t alignment = 1;
    uint32_t element_bytes = 1;
    std::vector<uint8_t> initial;  // empty: zeroes
    bool unknown_initial = false;  // holds addresses, which the emulator can't fill in
};

struct EntryText {
    std::string name;
    std::vector<Parameter> parameters;
    uint32_t parameter_bytes = 0;
    uint32_t max_threads = 0;  // from .maxntid or .reqntid; 0 when there is none
    std::vector<Statement> body;
};

struct ModuleText {
    unsigned architecture = 0;   // 90 of `.target sm_90a`
    bool joins_accesses = true;  // whether ptxas, which the text goes to, optimises
    std::map<uint32_t, std::string> files;
    std::vector<Variable> variables;
    std::vector<EntryText> entries;
};

// Throws BadArgument when the text isn't PTX.
ModuleText parse_module(std::string_view text);

// Reads a variable's declaration without its `;`; false when it declares none in a known space.
bool parse_variable(std::string_view declaration, Variable& variable);

}  // namespace ptx
