// Small helpers for PTX text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ptx {

std::string_view trim(std::string_view text);

// Splits at `separator` wherever it stands outside brackets, braces and parentheses; pieces are trimmed.
std::vector<std::string> split(std::string_view text, char separator);

// An identifier of PTX: letters, digits, and _ $ % . inside.
bool is_identifier(std::string_view text);

// Reads a decimal, octal, hexadecimal or binary integer, with sign and U suffix; false if it is none.
bool parse_integer(std::string_view text, uint64_t& value);

// Runs of white space become one blank, so that an instruction reads as one line.
std::string one_line(std::string_view text);

}  // namespace ptx
